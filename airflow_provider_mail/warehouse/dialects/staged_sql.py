"""SQL of loads through a temporary table: ``s`` is the staged row, ``t`` the row of the user's table with its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mail.warehouse.dialects.base import Condition, Dialect
from airflow_provider_mail.warehouse.request import LoadRequest, Where
from airflow_provider_mail.warehouse.table import Column

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

STAGE = "airflow_provider_mail_stage"


@dataclass(frozen=True)
class Counts:
    """Numbers of staged rows by outcome; ``refreshed``: unchanged rows that got a new time of observation."""

    staged: int
    inserted: int
    outdated: int
    changed: int
    refreshed: int

    @property
    def written(self) -> int:
        return self.inserted + self.changed + self.refreshed


@dataclass(frozen=True)
class Comparison:
    """How a staged row compares with that of the table: four expressions in SQL."""

    exists: str
    is_newer: str
    is_changed: str
    needs_observed_at: str

    @property
    def outcomes(self) -> tuple[str, str, str, str]:
        """The conditions that `Counts` counts: inserted, outdated, changed, refreshed."""
        return (
            f"NOT {self.exists}",
            f"{self.exists} AND NOT {self.is_newer}",
            f"{self.exists} AND {self.is_newer} AND {self.is_changed}",
            f"{self.exists} AND {self.is_newer} AND NOT {self.is_changed} AND {self.needs_observed_at}",
        )

    @property
    def to_write(self) -> str:
        return f"(NOT {self.exists} OR ({self.is_newer} AND ({self.is_changed} OR {self.needs_observed_at})))"


class StagedSql(Dialect):
    """The statements of a load; a dialect overrides what its database spells differently."""

    distinct: ClassVar[str]
    """The operator that is true if two lists of values differ, and that treats NULL as equal to NULL."""
    compatible_types: ClassVar[Mapping[str, tuple[str, ...]]]
    """Actual types that keep every value of a portable type, by its name."""
    has_comment_on: ClassVar[bool] = False
    """Whether comments are stored by statements of their own (COMMENT ON)."""

    def __init__(self, hook: DbApiHook, request: LoadRequest, stage: str = STAGE) -> None:
        super().__init__(hook, request)
        self.stage_name = stage

    def _holds(self, column: Column, actual: str) -> bool:
        return actual in self.compatible_types[column.type.name]

    @property
    def _staged(self) -> str:
        """What to select from to get each key once: its last row, or its first one if rows are never updated."""
        return self.stage_name

    def _staged_columns(self) -> str:
        return ", ".join(f"{column.name} {self._column_type(column)}" for column in self.table.columns)

    def _joined(self) -> str:
        """Staged rows beside those of the table that have their keys."""
        return f"{self._staged} AS s LEFT JOIN {self.target} AS t ON {self._same_key()}"

    def _same_key(self) -> str:
        return " AND ".join(f"s.{name} = t.{name}" for name in map(self._column, self.table.key))

    def _comparison(self) -> tuple[Comparison, list[Any]]:
        """How staged rows compare with those of the table, with the parameters of ``needs_observed_at``."""
        needs_observed_at, values = self._needs_observed_at()
        return Comparison(self._exists(), self._is_newer("s"), self._is_changed(), needs_observed_at), values

    def _exists(self) -> str:
        return f"(t.{self._column(self.table.key[0])} IS NOT NULL)"

    def _is_newer(self, alias: str) -> str:
        """Also true for equal times: of two rows with one time of observation, that of the later load is taken."""
        if not (observed := self.table.observed):
            return "true"
        return f"coalesce({alias}.{observed} >= {self._last_observed('t.')}, true)"

    def _is_changed(self) -> str:
        if not (content := self.table.content):
            return "false"
        staged, existing = (self._columns_list(content, alias) for alias in ("s.", "t."))
        return f"(({staged}) {self.distinct} ({existing}))"

    def _needs_observed_at(self) -> Condition:
        """Whether an unchanged row needs the time of this observation: unless ``mail_loads`` records it."""
        if not self.table.observed:
            return "false", []
        if not self.request.covers or not self.request.is_complete:
            return "true", []
        condition, values = self._condition("covers", self.request.covers.whole, "s.")
        return f"NOT coalesce({condition}, false)", values

    def _upsert(self, source: str, condition: str = "true") -> str:
        """Insert from ``source``, or update the row with the same key unless it is newer.

        The values of ``load_columns`` are parameters, before those of the condition.
        """
        action = "NOTHING"
        if self.table.updated:
            updated = (*self.table.updated, *self.table.load_names)
            assignments = ", ".join(f"{name} = excluded.{name}" for name in updated)
            action = f"UPDATE SET {assignments} WHERE {self._is_newer('excluded')}"
        key = self._columns_list(self.table.key)
        return f"{self._insert(source)} WHERE {condition} {self._ordered()} ON CONFLICT ({key}) DO {action}"

    def _insert(self, source: str) -> str:
        selected = f"{self._columns_list(self.table.names, 's.')}{self._load_marks()}"
        names = self._columns_list(self.table.stored_names)
        return f"INSERT INTO {self.target} AS t ({names}) SELECT {selected} FROM {source}"

    def _ordered(self, alias: str = "s.") -> str:
        """The order in which all loads write, so that two of them queue instead of deadlocking."""
        return f"ORDER BY {self._columns_list(self.table.key, alias)}"

    def _delete_stale_sql(self, condition: str) -> str:
        """Delete rows of the table that fulfil the condition and were not staged."""
        return f"DELETE FROM {self.target} AS t WHERE {condition} AND NOT {self._is_staged()}"

    def _mark_stale_sql(self, condition: str) -> str:
        """Mark such rows as gone; the time is the first parameter, before the values of ``load_columns``."""
        gone = f"{self._column(str(self.table.gone))} = {self.hook.placeholder}{self._load_assignments()}"
        return f"UPDATE {self.target} AS t SET {gone} WHERE {condition} AND NOT {self._is_staged()}"

    def _select_stale_sql(self, selected: str, condition: str) -> str:
        return f"SELECT {selected} FROM {self.target} AS t WHERE {condition} AND NOT {self._is_staged()}"

    def _stale(self, window: Condition, late: Sequence[Where], latest: Any) -> Condition:
        """The condition for rows in a window that are stale unless they were staged.

        :param late: the conditions for what another load has read later, which is left out.
        :param latest: the time of this load. Rows that were observed later are not stale; without a time, there is
            nothing to compare with.
        """
        condition, values = window
        for where in late:
            excluded, excluded_values = self._condition("covers", where, "t.")
            condition += f" AND NOT coalesce({excluded}, false)"
            values += excluded_values
        if latest is not None:
            condition += f" AND coalesce({self._last_observed('t.')} <= {self.hook.placeholder}, true)"
            values.append(latest)
        return condition, values

    def _is_staged(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.stage_name} AS s WHERE {self._same_key()})"
