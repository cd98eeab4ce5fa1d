"""The history of a list: from when to when each of its rows was in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api._core.pagination import SAMPLE
from airflow_provider_mail.warehouse.dialects.base import Condition
from airflow_provider_mail.warehouse.request import LIST_ID, READ_AT, VALID_FROM, VALID_TO, History, Where

if TYPE_CHECKING:
    from airflow_provider_mail.warehouse.dialects.staged import Staged


class HistoryMerge:
    """Merges the staged rows of one reading into the history of the list that they belong to.

    What happens between two readings is unknown, so intervals begin and end at readings only. A reading changes two
    kinds of rows. Of those that it has and the previous reading lacks, the interval begins earlier, or a new one is
    inserted. Of those that it lacks and the previous reading has, the interval ends earlier, or is split.
    """

    def __init__(self, stage: Staged, history: History, intervals: Staged, readings: Staged) -> None:
        self._stage, self._history, self._intervals, self._readings = stage, history, intervals, readings
        self._from, self._to, self._read_at = map(stage._column, (VALID_FROM, VALID_TO, READ_AT))
        self._placeholder = stage.hook.placeholder
        self._written, self._assigned = intervals._load_marks(), intervals._load_assignments()
        self._load_values = intervals._load_values
        self._now = intervals._parameter(intervals.table[VALID_FROM], history.observed_at)
        self._list: Where = self._of(history.list_id or "")
        self._id = stage._column("id")
        # All staged rows are of this list: without its name, some databases could not use the key of the staged rows.
        same = " AND ".join(f"s.{name} = t.{name}" for name in ("mail_conn_id", "team_name", self._id))
        self._is_staged = (
            f"EXISTS (SELECT 1 FROM {stage.stage_name} AS s WHERE s.list_name = {self._placeholder} AND {same})",
            [history.where["list_name"]],
        )

    def _of(self, list_id: Any) -> Where:
        account = {name: self._history.where[name] for name in ("mail_conn_id", "team_name")}
        return {**account, LIST_ID: list_id}

    def merge(self, cursor: Any) -> tuple[int, int] | None:
        """Merge the staged rows; return how many rows were joined and left, or ``None`` for a known reading."""
        stage, readings = self._stage, self._readings
        condition, values = readings._condition(self._list)
        # After a reading that lies in the future, this one would change the past instead of the present.
        readings._reject_later(cursor, readings.target, (condition, values), self._read_at, readings.table[READ_AT])
        source = f"FROM {readings.target} WHERE {condition} AND {self._read_at}"
        if stage._count(cursor, f"SELECT count(*) {source} = {self._placeholder}", [*values, self._now]):
            return None
        cursor.execute(
            f"SELECT {self._read_at} {source} > {self._placeholder} ORDER BY {self._read_at} LIMIT 1",
            [*values, self._now],
        )
        (following,) = cursor.fetchone() or (None,)
        count = stage._count(cursor, f"SELECT count(*) FROM {stage._staged} AS s")
        before = self._check_removal(cursor, count)
        if not stage.request.is_complete:  # an empty reading that is not permitted is not recorded
            return (0, before) if before else None
        left = sum(self._end(cursor, self._valid_now(list_id), None) for list_id in self._history.ended)
        for list_id in self._history.ended:
            self._record(cursor, list_id, 0)
        if self._history.list_id is None:
            return 0, left
        left += self._end(cursor, self._leaving(self._history.list_id), following)
        joined = self._begin(cursor, following)
        self._record(cursor, self._history.list_id, count)
        return joined, left

    def sample(self, cursor: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return values of some of the rows whose stays would end, whatever name of the list they were loaded by."""
        if self._history.list_id is None:
            return []
        stage, (condition, values) = self._stage, self._leaving(self._history.list_id)
        same = " AND ".join(f"c.{name} = t.{name}" for name in ("mail_conn_id", "team_name", self._id))
        cursor.execute(
            f"SELECT DISTINCT {stage._columns_list(columns, 'c.')} FROM {self._intervals.target} AS t "
            f"JOIN {stage.target} AS c ON {same} WHERE {condition} LIMIT {SAMPLE}",
            values,
        )
        return [*map(tuple, cursor.fetchall())]

    def _record(self, cursor: Any, list_id: str, count: int) -> None:
        readings, history = self._readings, self._history
        row = [*self._of(list_id).values(), self._now, history.where["list_name"], count, *readings._load_values()]
        names = readings._columns_list(readings.table.stored_names)
        cursor.execute(
            f"INSERT INTO {readings.target} ({names}) VALUES ({', '.join([self._placeholder] * len(row))})", row
        )

    def corrections(self, to: str, latest: str) -> Iterator[tuple[str, str, str]]:
        """Return statements that correct times in the future: what is valid now is valid from ``to`` on."""
        target, readings = self._intervals.target, self._readings.target
        yield target, f"DELETE FROM {target}", f"{self._from} > {latest} AND {self._to} IS NOT NULL"
        for name in (self._from, self._to):
            yield target, f"UPDATE {target} SET {name} = {to}", f"{name} > {latest}"
        yield readings, f"DELETE FROM {readings}", f"{self._read_at} > {latest}"

    def _check_removal(self, cursor: Any, after: int) -> int:
        """Return the number of intervals that are open before this reading; fail if too many of them would end."""
        condition, values = self._valid_now(self._history.list_id or "")
        counting = f"SELECT count(*) FROM {self._intervals.target} AS t WHERE {condition}"
        before = self._stage._count(cursor, counting, values)
        if (rule := self._stage.request.removal) and self._stage.is_confirmed:
            rule.check(before, after, self._intervals.prefix)
        return before

    def _valid_now(self, list_id: str) -> Condition:
        """The intervals of a list that begin before this reading and end after it."""
        condition, values = self._intervals._condition(self._of(list_id), "t.")
        condition += f" AND t.{self._from} < {self._placeholder} AND {self._ends_later()}"
        return condition, [*values, self._now, self._now]

    def _leaving(self, list_id: str) -> Condition:
        """Those of them that this reading lacks."""
        (condition, values), (is_staged, more) = self._valid_now(list_id), self._is_staged
        return f"{condition} AND NOT {is_staged}", [*values, *more]

    def _ends_later(self) -> str:
        """The condition that an interval ends after a time, its parameter."""
        return f"(t.{self._to} IS NULL OR t.{self._to} > {self._placeholder})"

    def _end(self, cursor: Any, valid: Condition, following: Any) -> int:
        """End intervals at this reading."""
        target, (condition, values) = self._intervals.target, valid
        if following is not None:  # rows that the following reading has again: the interval is split
            key = self._intervals._columns_list(self._intervals.table.key[:-1], "t.")
            cursor.execute(
                f"INSERT INTO {target} ({self._names()}) SELECT {key}, {self._placeholder}, t.{self._to}"
                f"{self._written} FROM {target} AS t WHERE {condition} AND {self._ends_later()}",
                [following, *self._load_values(), *values, following],
            )
        cursor.execute(
            f"UPDATE {target} AS t SET {self._to} = {self._placeholder}{self._assigned} WHERE {condition}",
            [self._now, *self._load_values(), *values],
        )
        return self._intervals._affected(cursor)

    def _begin(self, cursor: Any, following: Any) -> int:
        """Begin an interval at this reading for rows that it has and the one before it does not have."""
        target, count, end = self._intervals.target, 0, []
        condition, values = self._intervals._condition(self._list, "t.")
        if following is not None:  # intervals that began at the following reading begin at this one
            cursor.execute(
                f"UPDATE {target} AS t SET {self._from} = {self._placeholder}{self._assigned} "
                f"WHERE {condition} AND t.{self._from} = {self._placeholder} AND {self._is_staged[0]}",
                [self._now, *self._load_values(), *values, following, *self._is_staged[1]],
            )
            count, end = self._intervals._affected(cursor), [following]
        place = ", ".join([self._placeholder] * len(self._list))
        cursor.execute(
            f"INSERT INTO {target} ({self._names()}) "
            f"SELECT {place}, s.{self._id}, {self._placeholder}, {self._placeholder if end else 'NULL'}{self._written} "
            f"FROM {self._stage._staged} AS s WHERE NOT EXISTS (SELECT 1 FROM {target} AS t "
            f"WHERE {condition} AND t.{self._id} = s.{self._id} AND t.{self._from} <= {self._placeholder} "
            f"AND {self._ends_later()}) {self._stage._ordered()}",
            [*self._list.values(), self._now, *end, *self._load_values(), *values, self._now, self._now],
        )
        return count + self._intervals._affected(cursor)

    def _names(self) -> str:
        key = map(self._intervals._column, self._intervals.table.key[:-1])
        load_columns = map(self._intervals._column, self._intervals.table.load_names)
        return ", ".join([*key, self._from, self._to, *load_columns])
