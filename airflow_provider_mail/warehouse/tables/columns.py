"""Columns that several tables have: where a row came from and when."""

from __future__ import annotations

from airflow_provider_mail.warehouse.table import TEXT, TIMESTAMP, Column, text

CONNECTION = Column("mail_conn_id", text(250), "Airflow connection of the account that the row came from")
TEAM = Column("team", TEXT, "Team name as set on that connection", nullable=True)
OBSERVED = Column(
    "observed_at",
    TIMESTAMP,
    "When the service was first seen to say so, or later; mail_loads has when it was last asked",
    observed=True,
)
GONE = Column(
    "gone_at",
    TIMESTAMP,
    "When the service was first seen not to have it any more; null while it has it",
    nullable=True,
    gone=True,
)
LAST_SEEN = Column("observed_at", TIMESTAMP, "When the service last said so", observed=True)
