"""Merges the staged rows of a load into the history of the part of the table that they belong to.

What happens between two readings is unknown, so intervals begin and end at readings only. A reading changes two kinds
of rows. Of those that it has and the previous reading lacks, the interval begins earlier, or a new one is inserted. Of
those that it lacks and the previous reading has, the interval ends earlier, or is split.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_provider_mail.warehouse.dialects.staged_sql import StagedSql
from airflow_provider_mail.warehouse.request import READ_AT, VALID_FROM, VALID_TO, History


class HistoryMerge:
    """The merge of one reading."""

    def __init__(self, stage: StagedSql, history: History, intervals: StagedSql, readings: StagedSql) -> None:
        self._stage, self._history, self._intervals, self._readings = stage, history, intervals, readings
        self._key = [stage._column(name) for name in stage.table.key]
        self._from, self._to = stage._column(VALID_FROM), stage._column(VALID_TO)
        self._mark = stage.hook.placeholder
        self._written, self._assigned = intervals._load_marks(), intervals._load_assignments()
        self._load_values = intervals._load_values
        self._now = intervals._parameter(intervals.table[VALID_FROM], history.observed_at)

    def merge(self, cursor: Any) -> tuple[int, int] | None:
        """Merge the staged rows; return how many rows were joined and left, or ``None`` for a known reading.

        :raises UnconfirmedError: when too many rows have left since the previous reading.
        """
        self._reject_future(cursor)
        condition, values = self._readings._condition("history", self._history.where)
        read_at = self._readings._column(READ_AT)
        source = f"FROM {self._readings.target} WHERE {condition} AND {read_at}"
        if self._stage._count(cursor, f"SELECT count(*) {source} = {self._mark}", [*values, self._now]):
            return None
        cursor.execute(f"SELECT min({read_at}) {source} > {self._mark}", [*values, self._now])
        (following,) = cursor.fetchone()
        count = self._stage._count(cursor, f"SELECT count(*) FROM {self._stage._staged} AS s")
        before = self._check_removal(cursor, count)
        if not self._stage.request.is_complete:  # an empty reading that is not permitted is not recorded
            return (0, before) if before else None
        left = self._end(cursor, following)
        joined = self._begin(cursor, following)
        names = self._readings._columns_list(self._readings.table.stored_names)
        row = [*values, self._now, count, *self._readings._load_values()]
        cursor.execute(
            f"INSERT INTO {self._readings.target} ({names}) VALUES ({', '.join([self._mark] * len(row))})", row
        )
        return joined, left

    def _reject_future(self, cursor: Any) -> None:
        """Fail when a recorded reading lies in the future: this one would change the past instead of the present."""
        if self._readings.request.clock:
            condition = self._readings._condition("history", self._history.where)
            column = self._readings.table[READ_AT]
            self._readings._reject_later(
                cursor, self._readings.target, condition, self._readings._column(READ_AT), column
            )

    def corrections(self, to: str, latest: str) -> Iterator[tuple[str, str, str]]:
        """Return statements that correct times in the future: what is valid now is valid from ``to`` on."""
        target, readings = self._intervals.target, self._readings.target
        yield target, f"DELETE FROM {target}", f"{self._from} > {latest} AND {self._to} IS NOT NULL"
        for name in (self._from, self._to):
            yield target, f"UPDATE {target} SET {name} = {to}", f"{name} > {latest}"
        yield readings, f"DELETE FROM {readings}", f"{self._readings._column(READ_AT)} > {latest}"

    def _check_removal(self, cursor: Any, after: int) -> int:
        """Return the number of intervals that are open before this reading; fail if too many of them would end."""
        condition, values = self._valid_now()
        counting = f"SELECT count(*) FROM {self._intervals.target} AS t WHERE {condition}"
        before = self._stage._count(cursor, counting, values)
        if (rule := self._stage.request.removal) and self._stage.is_confirmed:
            rule.check(before, after, self._intervals.prefix)
        return before

    def _valid_now(self) -> tuple[str, list[Any]]:
        """The intervals that begin before this reading and end after it."""
        condition, values = self._stage._condition("history", self._history.where, "t.")
        valid = f"t.{self._from} < {self._mark} AND (t.{self._to} IS NULL OR t.{self._to} > {self._mark})"
        return f"{condition} AND {valid}", [*values, self._now, self._now]

    def _end(self, cursor: Any, following: Any) -> int:
        """End the intervals of rows that this reading does not have, at this reading."""
        condition, values = self._valid_now()
        condition += f" AND NOT {self._stage._is_staged()}"
        if following is not None:  # rows that the following reading has again: the interval is split
            key = ", ".join(f"t.{name}" for name in self._key)
            cursor.execute(
                f"INSERT INTO {self._intervals.target} ({self._names()}) "
                f"SELECT {key}, {self._mark}, t.{self._to}{self._written} FROM {self._intervals.target} AS t "
                f"WHERE {condition} AND (t.{self._to} IS NULL OR t.{self._to} > {self._mark})",
                [following, *self._load_values(), *values, following],
            )
        cursor.execute(
            f"UPDATE {self._intervals.target} AS t SET {self._to} = {self._mark}{self._assigned} WHERE {condition}",
            [self._now, *self._load_values(), *values],
        )
        return self._intervals._affected(cursor)

    def _begin(self, cursor: Any, following: Any) -> int:
        """Begin an interval at this reading for rows that it has and the one before it does not have."""
        count = 0
        end = "NULL"
        if following is not None:  # intervals that began at the following reading begin at this one
            condition, values = self._stage._condition("history", self._history.where, "t.")
            cursor.execute(
                f"UPDATE {self._intervals.target} AS t SET {self._from} = {self._mark}{self._assigned} "
                f"WHERE {condition} AND t.{self._from} = {self._mark} AND {self._stage._is_staged()}",
                [self._now, *self._load_values(), *values, following],
            )
            count = self._intervals._affected(cursor)
            end = self._mark
        valid = f"t.{self._from} <= {self._mark} AND (t.{self._to} IS NULL OR t.{self._to} > {self._mark})"
        key = ", ".join(f"s.{name}" for name in self._key)
        cursor.execute(
            f"INSERT INTO {self._intervals.target} ({self._names()}) "
            f"SELECT {key}, {self._mark}, {end}{self._written} FROM {self._stage._staged} AS s WHERE NOT EXISTS "
            f"(SELECT 1 FROM {self._intervals.target} AS t WHERE {self._stage._same_key()} AND {valid}) "
            f"{self._stage._ordered()}",
            [
                self._now,
                *([following] if following is not None else []),
                *self._load_values(),
                self._now,
                self._now,
            ],
        )
        return count + self._intervals._affected(cursor)

    def _names(self) -> str:
        load_columns = map(self._intervals._column, self._intervals.table.load_names)
        return ", ".join([*self._key, self._from, self._to, *load_columns])
