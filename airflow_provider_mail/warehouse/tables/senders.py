"""The table of senders (specification, "Verified senders")."""

from __future__ import annotations

import datetime
from typing import Any

from airflow_provider_mail.api.senders import Sender
from airflow_provider_mail.warehouse.table import INTEGER, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import CONNECTION, LAST_SEEN, OTHER_FIELDS, resource_row

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
    """Build a row of `SENDERS`.

    :param observed_at: the time at which the service was asked, with a zone.
    """
    if record.sender_type is None:
        record = record.model_copy(update={"sender_type": UNKNOWN_TYPE})
    return resource_row(SENDERS, record, mail_conn_id=mail_conn_id, observed_at=observed_at)
