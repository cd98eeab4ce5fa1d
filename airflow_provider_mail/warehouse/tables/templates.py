"""The table of templates (document, "Templates")."""

from __future__ import annotations

import datetime
from typing import Any

from airflow_provider_mail.api.templates import Template
from airflow_provider_mail.warehouse.table import TEXT, TIMESTAMP, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import CONNECTION, LAST_SEEN, resource_row

TEMPLATES = Table(
    comment="Stored templates, as the mail service has them",
    key=("mail_conn_id", "template_name"),
    columns=(
        CONNECTION,
        Column("template_name", text(250), "Name of the template"),
        Column("template_subject", TEXT, "Default subject", nullable=True),
        Column("template_content", TEXT, "HTML, with {{tags}}", nullable=True),
        Column("create_date", TIMESTAMP, "When the template was created", nullable=True),
        LAST_SEEN,
    ),
)


def template_row(record: Template, *, mail_conn_id: str, observed_at: datetime.datetime) -> tuple[Any, ...]:
    """Build a row of `TEMPLATES`.

    :param record: the template.
    :param mail_conn_id: the Airflow connection of the account.
    :param observed_at: the time at which reading began, with a zone.
    """
    return resource_row(TEMPLATES, record, mail_conn_id=mail_conn_id, observed_at=observed_at)
