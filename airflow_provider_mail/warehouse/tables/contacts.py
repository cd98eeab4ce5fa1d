"""The table of contacts, one row per list and contact (specification, "Contact"); it holds personal data."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.request import READ_AT, ROWS, VALID_FROM, VALID_TO, History
from airflow_provider_mail.warehouse.table import BIGINT, JSON, TEXT, TIMESTAMP, Column, Table, TableName, text
from airflow_provider_mail.warehouse.tables.columns import (
    CONNECTION,
    OBSERVED,
    OTHER_FIELDS,
    derived_name,
    other_fields,
)

if TYPE_CHECKING:
    from airflow_provider_mail.api.contacts import Contact

CONTACTS = Table(
    comment="Contacts of lists, as the mail service has them; personal data",
    key=("mail_conn_id", "team", "list_name", "id"),
    columns=(
        CONNECTION,
        # Part of the key, so never null; with these lengths MySQL can index all four columns.
        Column("team", text(150), "Team that the list belongs to; empty when neither task nor connection names one"),
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

_LIST = CONTACTS.columns[:3]
_STORED = frozenset(CONTACTS.names)

CONTACTS_HISTORY = Table(
    comment="Membership of contacts in lists: from when to when each contact was in a list; without addresses",
    key=(*CONTACTS.key, VALID_FROM),
    columns=(
        *_LIST,
        CONTACTS["id"],
        Column(VALID_FROM, TIMESTAMP, "First complete reading of the list that has the contact"),
        Column(VALID_TO, TIMESTAMP, "First later one that does not; null while the contact is in it", nullable=True),
    ),
)

LIST_READINGS = Table(
    comment="Complete readings of lists that the history of their contacts is made of",
    key=(*CONTACTS.key[:3], READ_AT),
    columns=(
        *_LIST,
        Column(READ_AT, TIMESTAMP, "When the list was read"),
        Column(ROWS, BIGINT, "Number of contacts in the list"),
    ),
)


def contacts_history(name: str, where: Mapping[str, str], observed_at: datetime.datetime) -> History:
    """Declare the history of a list.

    :param where: the values of ``mail_conn_id``, ``team`` and ``list_name``.
    """
    readings = TableName.parse(derived_name(name, "_readings"))
    return History(CONTACTS_HISTORY, LIST_READINGS, TableName.parse(name), readings, where, observed_at)


def contact_row(
    contact: Contact, *, mail_conn_id: str, team: str, list_name: str, observed_at: datetime.datetime
) -> tuple[Any, ...]:
    """Build a row of `CONTACTS`.

    :param team: the team of the list; empty without one.
    """
    properties = contact.properties
    return (
        mail_conn_id,
        team,
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
        other_fields(contact, _STORED),
        observed_at,
    )


def list_part(team: str, list_name: str) -> str:
    """Name a list in ``mail_loads``: its name, after that of its team and a slash unless the team is empty.

    :param team: the team of the list; may be empty.
    """
    names = [name.replace("\\", "\\\\").replace("/", "\\/") for name in (team, list_name) if name]
    return "/".join(names)


def _whole_number(value: str | None) -> int | None:
    return int(value) if value and value.isdecimal() and len(value) <= 18 else None
