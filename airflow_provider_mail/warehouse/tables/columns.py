"""Columns that several tables share."""

from __future__ import annotations

from pydantic import BaseModel

from airflow_provider_mail.warehouse.table import BIGINT, TEXT, TIMESTAMP, Column, text

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


def count_columns(record: type[BaseModel], *, besides: tuple[str, ...] = (), suffix: str = "") -> tuple[Column, ...]:
    """A column for each count of a statistics record: a new field of the model is a new column.

    :param record: the model of the record.
    :param besides: its fields that are not counts.
    :param suffix: appended to the fields' descriptions, which are the comments.
    """
    return tuple(
        Column(name, BIGINT, f"{field.description}{suffix}", nullable=not field.is_required(), least=0)
        for name, field in record.model_fields.items()
        if name not in besides
    )
