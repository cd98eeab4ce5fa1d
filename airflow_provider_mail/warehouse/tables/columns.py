"""Columns that several tables share."""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import BaseModel

from airflow_provider_mail.api._core.requests import OpenResource
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.table import BIGINT, JSON, TEXT, TIMESTAMP, Column, Table, TableName, text

CONNECTION = Column("mail_conn_id", text(250), "Airflow connection of the account that the row came from")
TEAM = Column("team", TEXT, "Team name as set on that connection", nullable=True)
OBSERVED = Column(
    "observed_at",
    TIMESTAMP,
    "When these values were first observed, or later; mail_loads has when they were last confirmed",
    observed=True,
)
GONE = Column(
    "gone_at",
    TIMESTAMP,
    "When it was first observed to be missing at the service; null while it exists",
    nullable=True,
    gone=True,
)
OTHER_FIELDS = Column(
    "other_fields",
    JSON,
    "Fields of the service's record that have no column, as it names them; null if there are none",
    nullable=True,
)
LAST_SEEN = Column("observed_at", TIMESTAMP, "When the service last returned it", observed=True)


def count_columns(record: type[BaseModel], *, besides: tuple[str, ...] = (), suffix: str = "") -> tuple[Column, ...]:
    """A column for each count of a statistics record: a new field of the model is a new column.

    :param besides: its fields that are not counts.
    :param suffix: appended to the fields' descriptions, which are the comments.
    """
    return tuple(
        Column(name, BIGINT, f"{field.description}{suffix}", nullable=not field.is_required(), least=0)
        for name, field in record.model_fields.items()
        if name not in besides
    )


def derived_name(table: str, suffix: str) -> str:
    name = TableName.parse(table)
    last = replace(name.parts[-1], text=f"{name.parts[-1].text}{suffix}")
    return str(TableName((*name.parts[:-1], last)))


def other_name(argument: str, table: str, suffix: str, chosen: str | None) -> str:
    """Name a table that belongs to another one.

    :param argument: the argument that chooses the name, for errors.
    :param suffix: what its name is followed by where none is chosen.
    :raises WarehouseError: when it is not a valid name, or is that of ``table``.
    """
    name = chosen or derived_name(table, suffix)
    try:
        if TableName.parse(name) == TableName.parse(table):
            raise WarehouseError("it is that of `table`")
    except WarehouseError as error:
        raise WarehouseError(f"{argument}: {name!r} cannot be its name: {error}") from None
    return name


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
