"""The table of contact lists (specification, "Contact lists")."""

from __future__ import annotations

from airflow_provider_mail.warehouse.table import BIGINT, INTEGER, TEXT, TIMESTAMP, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import CONNECTION, LAST_SEEN, OTHER_FIELDS

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
