"""The tables of contacts, campaigns, lists, templates and senders (specification, "Contact" and "Resources").

There is one row for each list and contact; it holds personal data. Campaigns are the send tasks, without their content.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from airflow_provider_mail.api._core.fields import MAX_MAIL_NAME_BYTES
from airflow_provider_mail.api._core.requests import OpenResource
from airflow_provider_mail.api.campaigns import Campaign, MailStats
from airflow_provider_mail.api.senders import Sender
from airflow_provider_mail.warehouse.request import LIST_ID, READ_AT, ROWS, VALID_FROM, VALID_TO, History
from airflow_provider_mail.warehouse.table import (
    BIGINT,
    CONNECTION,
    GONE,
    INTEGER,
    JSON,
    LAST_SEEN,
    OBSERVED,
    OTHER_FIELDS,
    TEXT,
    TIMESTAMP,
    Column,
    Table,
    TableName,
    derived_name,
    text,
)

if TYPE_CHECKING:
    from airflow_provider_mail.api.contacts import Contact


def count_columns(record: type[BaseModel], *, besides: tuple[str, ...] = (), suffix: str = "") -> tuple[Column, ...]:
    """A column for each count of a statistics record: a new field of the model is a new column.

    :param suffix: appended to the fields' descriptions, which are the comments.
    """
    return tuple(
        Column(name, BIGINT, f"{field.description}{suffix}", nullable=not field.is_required(), least=0)
        for name, field in record.model_fields.items()
        if name not in besides
    )


def resource_row(
    table: Table, record: OpenResource, *, mail_conn_id: str, observed_at: datetime.datetime
) -> tuple[Any, ...]:
    """Build a row of a table whose columns are fields of the record, between the connection and the time."""
    values = (getattr(record, name) for name in table.names[1:-2])
    return mail_conn_id, *values, other_fields(record, frozenset(table.names)), observed_at


def other_fields(record: OpenResource, stored: frozenset[str]) -> dict[str, Any] | None:
    """Return the fields of a record that have no column, as the service names them; ``None`` if there are none.

    Those are the fields that the model does not declare, and those that it declares and that are not ``stored``.

    :param stored: names of the columns, and of the fields that are deliberately left out.
    """
    if not (names := _without_column(type(record), stored)):
        return record.other_fields
    declared = record.model_dump(mode="json", by_alias=True, include=set(names), exclude_unset=True)
    return {**declared, **(record.other_fields or {})} or None


@cache
def _without_column(model: type[OpenResource], stored: frozenset[str]) -> frozenset[str]:
    return frozenset(model.model_fields) - stored


_COUNTS = count_columns(MailStats, suffix="; only when mail_status is 2")

CAMPAIGNS = Table(
    comment="Campaign send tasks, as the mail service has them",
    key=("mail_conn_id", "guid"),
    indexes=(("mail_conn_id", "send_by_date_time"), ("mail_name",), ("mail_status",)),
    columns=(
        CONNECTION,
        Column("guid", text(250), "Task unique identifier"),
        Column("team_name", text(150), "Owning team; empty when the service names none"),
        Column("mail_name", text(MAX_MAIL_NAME_BYTES), "Task name, unique within the team"),
        Column("subject", TEXT, "Subject", nullable=True),
        Column("sender_name", TEXT, "Sender display name", nullable=True),
        Column("sender_mail", TEXT, "Sender address", nullable=True),
        Column("reply_to", TEXT, "Reply-to address", nullable=True),
        Column("rcpt_list_names", JSON, "Target lists: an array of names"),
        Column("repel_list_names", JSON, "Exclusion lists: an array of names"),
        Column("send_by_date_time", TIMESTAMP, "Scheduled or actual send time", nullable=True),
        Column("task_type", TEXT, "MailList (ordinary) or ABTest", nullable=True),
        Column("mail_status", INTEGER, "-1 draft, 1 sending, 2 send complete, 4 send failed"),
        Column("language_code", TEXT, "As given at creation", nullable=True),
        Column("market_name", TEXT, "As given at creation", nullable=True),
        Column("subscript_name", TEXT, "As given at creation", nullable=True),
        Column("project_code", TEXT, "As given at creation", nullable=True),
        Column("reviewer_name", TEXT, "Reviewer who approved the task, if any", nullable=True),
        *_COUNTS,
        OTHER_FIELDS,
        LAST_SEEN,
        GONE,
    ),
)

_TASK_FIELDS = CAMPAIGNS.names[1 : CAMPAIGNS.names.index(_COUNTS[0].name)]
_LEFT_OUT = (
    "mail_content",  # a whole page of HTML
    "rcpt_emails",  # addresses are personal data
    "repel_emails",
    "mail_stats",  # its counts have columns
)
_STORED_OF_CAMPAIGNS = frozenset((*CAMPAIGNS.names, *_LEFT_OUT))
_LISTS = ("rcpt_list_names", "repel_list_names")  # empty if the service has none


def campaign_row(campaign: Campaign, *, mail_conn_id: str, observed_at: datetime.datetime) -> tuple[Any, ...]:
    fields = {name: getattr(campaign, name) for name in _TASK_FIELDS}
    for name in _LISTS:
        fields[name] = fields[name] or []
    fields["team_name"] = fields["team_name"] or ""  # never null, to compare with that of the statistics
    # Only a campaign that was sent has counts.
    counts = [getattr(campaign.mail_stats, column.name, None) for column in _COUNTS]
    others = other_fields(campaign, _STORED_OF_CAMPAIGNS)
    if campaign.mail_stats and (other_counts := campaign.mail_stats.other_fields):
        others = {**(others or {}), "mailStats": other_counts}
    return (
        mail_conn_id,
        *fields.values(),
        *counts,
        others,
        observed_at,
        None,
    )


LISTS = Table(
    comment="Contact lists, as the mail service has them",
    key=("mail_conn_id", "list_name"),
    columns=(
        CONNECTION,
        Column("list_name", text(250), "Name of the list"),
        Column("id", BIGINT, "Number of the list", nullable=True),
        Column("team_id", BIGINT, "Number of the owning team", nullable=True),
        Column("list_status", INTEGER, "As the service has it", nullable=True),
        Column("list_type", INTEGER, "0 dynamic, 1 static", nullable=True),
        Column("list_filters", TEXT, "Filters of a dynamic list", nullable=True),
        Column("create_user_id", BIGINT, "Id of the creating user", nullable=True),
        Column("create_date", TIMESTAMP, "When the list was created", nullable=True),
        Column("modify_date", TIMESTAMP, "When the list was last changed", nullable=True),
        OTHER_FIELDS,
        LAST_SEEN,
    ),
    load_columns=(),  # dlt has its own
)

TEMPLATES = Table(
    comment="Stored templates, as the mail service has them",
    key=("mail_conn_id", "template_name"),
    columns=(
        CONNECTION,
        Column("template_name", text(250), "Name of the template"),
        Column("template_subject", TEXT, "Default subject", nullable=True),
        Column("template_content", TEXT, "HTML, with {{tags}}", nullable=True),
        Column("create_date", TIMESTAMP, "When the template was created", nullable=True),
        OTHER_FIELDS,
        LAST_SEEN,
    ),
    load_columns=(),  # dlt has its own
)

UNKNOWN_TYPE = 0
"""Stored as `sender_type` where the service does not return one, since a column of the key cannot be null."""


def _check(name: str) -> Column:
    return Column(f"{name}_status", INTEGER, f"Result of the {name.upper()} check: 1 normal, 0 abnormal", nullable=True)


SENDERS = Table(
    comment="Senders with the results of their DNS checks, as the mail service has them",
    key=("mail_conn_id", "from_domain", "sender_type"),
    columns=(
        CONNECTION,
        Column("from_domain", text(250), "The registered address or domain"),
        Column("sender_type", INTEGER, "1 marketing, 2 transactional, 0 where the service does not return it"),
        _check("mx"),
        _check("spf"),
        _check("dkim"),
        _check("dmarc"),
        Column("is_validate", INTEGER, "As the service has it", nullable=True),
        Column("is_service_domain", INTEGER, "As the service has it", nullable=True),
        OTHER_FIELDS,
        LAST_SEEN,
    ),
    load_columns=(),  # dlt has its own
)


def sender_row(record: Sender, *, mail_conn_id: str, observed_at: datetime.datetime) -> tuple[Any, ...]:
    if record.sender_type is None:
        record = record.model_copy(update={"sender_type": UNKNOWN_TYPE})
    return resource_row(SENDERS, record, mail_conn_id=mail_conn_id, observed_at=observed_at)


CONTACTS = Table(
    comment="Contacts of lists, as the mail service has them; personal data",
    key=("mail_conn_id", "team_name", "list_name", "id"),
    columns=(
        CONNECTION,
        # With these lengths MySQL can index all four columns.
        Column(
            "team_name", text(150), "Team that the list belongs to; empty when neither task nor connection names one"
        ),
        Column("list_name", text(250), "Name of the list"),
        Column("id", text(100), "Contact identifier"),
        Column("email", TEXT, "Email address", nullable=True),
        Column("name", TEXT, "Name of the contact; the service uses the email when none was supplied", nullable=True),
        Column("phone_number", TEXT, "Phone number", nullable=True),
        Column("email_bounced_flag", TEXT, "System property, as the service writes it", nullable=True),
        Column("email_bounced_time", TEXT, "System property, as the service writes it", nullable=True),
        Column("email_open_count", BIGINT, "System property; null where it is no whole number", nullable=True),
        Column("properties", JSON, "All system and user-defined properties: text keys, text values"),
        Column("create_date", TIMESTAMP, "When the contact was created", nullable=True),
        Column("modify_time", TIMESTAMP, "When the contact was last changed", nullable=True),
        Column("create_user_id", BIGINT, "Id of the creating user", nullable=True),
        OTHER_FIELDS,
        OBSERVED,
    ),
)

_LIST = (
    *CONTACTS.columns[:2],
    Column(LIST_ID, text(250), "Id of the list, whatever its name; of a list of another team, its name"),
)
_STORED_OF_CONTACTS = frozenset(CONTACTS.names)

CONTACTS_HISTORY = Table(
    comment="Membership of contacts in lists: from when to when each contact was in a list; without addresses",
    key=("mail_conn_id", "team_name", LIST_ID, "id", VALID_FROM),
    columns=(
        *_LIST,
        CONTACTS["id"],
        Column(VALID_FROM, TIMESTAMP, "First complete reading of the list that has the contact"),
        Column(VALID_TO, TIMESTAMP, "First later one that does not; null while the contact is in it", nullable=True),
    ),
)

LIST_READINGS = Table(
    comment="Complete readings of lists that the history of their contacts is made of",
    key=("mail_conn_id", "team_name", LIST_ID, READ_AT),
    columns=(
        *_LIST,
        Column(READ_AT, TIMESTAMP, "When the list was read"),
        Column("list_name", text(250), "Name of the list at that time"),
        Column(ROWS, BIGINT, "Number of contacts in the list; 0 when the service does not have it any more"),
    ),
)


def contacts_history(
    name: str,
    where: Mapping[str, str],
    observed_at: datetime.datetime,
    list_id: str | None,
    ended: tuple[str, ...] = (),
) -> History:
    """Declare the history of a list.

    :param where: the values of ``mail_conn_id``, ``team_name`` and ``list_name``.
    """
    readings = TableName.parse(derived_name(name, "_readings"))
    return History(CONTACTS_HISTORY, LIST_READINGS, TableName.parse(name), readings, where, observed_at, list_id, ended)


def contact_row(
    contact: Contact, *, mail_conn_id: str, team_name: str, list_name: str, observed_at: datetime.datetime
) -> tuple[Any, ...]:
    properties = contact.properties
    return (
        mail_conn_id,
        team_name,
        list_name,
        contact.id,
        contact.email,
        contact.name,
        contact.phone_number,
        properties.get("email_bounced_flag"),
        properties.get("email_bounced_time"),
        _whole_number(properties.get("email_open_count")),
        properties,
        contact.create_date,
        contact.modify_time,
        contact.create_user_id,
        other_fields(contact, _STORED_OF_CONTACTS),
        observed_at,
    )


def _whole_number(value: str | None) -> int | None:
    return int(value) if value and value.isdecimal() and len(value) <= 18 else None
