"""The table of templates (specification, "Templates")."""

from __future__ import annotations

from airflow_provider_mail.warehouse.table import TEXT, TIMESTAMP, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import CONNECTION, LAST_SEEN, OTHER_FIELDS

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
