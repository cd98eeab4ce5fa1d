"""What dlt's state knows of an account: the days of statistics that were read, and how many rows each part has.

dlt stores the state with the rows of the same run, in the destination too. A failed run changes neither.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any, TypeAlias

import dlt

from airflow_provider_mail.api.errors import MailIncompleteError

Row: TypeAlias = tuple[Any, ...]
Pages: TypeAlias = Iterator[list[Row]]
Part: TypeAlias = dict[str, Any]
OnTotal: TypeAlias = Callable[[int | None], None]
Read: TypeAlias = Callable[[OnTotal], Pages]
"""Yields the rows of a list, and calls its argument with the number of its records before the first of them."""

WINDOW_DAYS = 31
"""Days that one request for statistics spans."""

MAX_READINGS = 3
"""How often one run reads a list that gets shorter."""

DAY = timedelta(days=1)

_log = logging.getLogger(__name__)


class DaysToRead:
    """The days of statistics that a run reads.

    The first run reads from ``start_day`` on. A later one reads from ``lookback_days`` before the last day that was
    read, days before the first one that was read, and the open days: those for which the service returned nothing. A
    single empty response proves nothing, so a day stays open until a run at least ``lookback_days`` later gets an empty
    response, too.

    :param states: dlt's state of the account, for each table that the run loads; none: a backfill.
    :param lookback_days: days that are read again.
    """

    def __init__(self, states: Iterable[dict[str, Any]], start_day: date, last_day: date, lookback_days: int) -> None:
        self._states = list(states)
        self._start_day = start_day
        self._last_day = last_day
        self._lookback = lookback_days * DAY
        self._answered: set[date] = set()
        self._days = {day for state in self._states or [{}] for day in self._unread(state)}

    def windows(self) -> list[tuple[date, date]]:
        """Return the days as windows of at most `WINDOW_DAYS`, the earliest first."""
        return _ranges(self._days, WINDOW_DAYS)

    def answered(self, days: Iterable[date]) -> None:
        """Note days of which the service returned something."""
        self._answered.update(days)

    def save(self) -> None:
        """Change the states, when all windows have been read completely."""
        for state in self._states if self._days else ():
            open_days = _open_days(state)
            empty_days = {day: open_days.get(day, self._last_day) for day in self._days - self._answered}
            still_open = {
                day: since
                for day, since in empty_days.items()
                # The service may have nothing of the last day yet, which is read again anyway.
                if day < self._last_day and (since >= self._last_day or self._last_day - since < self._lookback)
            }
            if still_open:
                ranges = ", ".join(f"{low} to {high}" for low, high in _ranges(still_open))
                _log.info(
                    "The service returned nothing of %s days, which later runs read again: %s", len(still_open), ranges
                )
            first = min(self._start_day, _day(state, "first_day") or self._start_day)
            # Ranges of open days that were first found empty on the same day.
            open_ranges = []
            for since in sorted(set(still_open.values())):
                days = [day for day in still_open if still_open[day] == since]
                open_ranges += [[f"{low}", f"{high}", f"{since}"] for low, high in _ranges(days)]
            state.update(first_day=first.isoformat(), last_day=self._last_day.isoformat(), open=open_ranges)

    def _unread(self, state: Mapping[str, Any]) -> set[date]:
        first, last = _day(state, "first_day"), _day(state, "last_day")
        if first is None or last is None:
            return set(span(self._start_day, self._last_day))
        # The stored days come from a clock, which may have been ahead.
        reread_from = max(first, min(last, self._last_day) - self._lookback)
        earlier = span(self._start_day, min(first - DAY, self._last_day))
        open_days = (day for day in _open_days(state) if day <= self._last_day)
        return {*earlier, *open_days, *span(reread_from, self._last_day)}


class KnownParts:
    """The parts of a table that earlier runs have loaded, with the number of their rows.

    :param columns: the columns that tell the parts apart.
    """

    def __init__(self, state: dict[str, Any], columns: tuple[str, ...]) -> None:
        self._rows: dict[str, int] = state.setdefault("parts", {})
        self._columns = columns

    def within(self, values: Mapping[str, Any]) -> list[Part]:
        """Return the parts that have these values."""
        parts = [dict(zip(self._columns, json.loads(key), strict=True)) for key in self._rows]
        return [part for part in parts if values.items() <= part.items()]

    def rows(self, part: Part) -> int:
        """Return the number of rows; 1 for an unknown part, so that an empty one is read twice."""
        return self._rows.get(self._key(part), 1)

    def loaded(self, part: Part, rows: int) -> None:
        """Store the number of rows."""
        self._rows[self._key(part)] = rows

    def forget(self, part: Part) -> None:
        """Remove a part."""
        self._rows.pop(self._key(part), None)

    def _key(self, part: Part) -> str:
        return json.dumps([part[name] for name in self._columns])


def days_to_read(
    mail_conn_id: str, tables: Iterable[str], start_day: date, last_day: date, lookback_days: int
) -> DaysToRead:
    """Return the days that a run reads, for those of the tables that it loads.

    :param tables: the tables that the rows of these days are loaded into.
    :param lookback_days: days that are read again.
    """
    selected = dlt.current.source().selected_resources
    states = []
    for table in tables:
        if table in selected:
            accounts = dlt.current.resource_state(table).setdefault("accounts", {})
            if selected[table].write_disposition == "replace":
                # dlt empties the table first.
                accounts.pop(mail_conn_id, None)
            states.append(accounts.setdefault(mail_conn_id, {}))
    return DaysToRead(states, start_day, last_day, lookback_days)


def confirmed(name: str, read: Read, expected_rows: int) -> Pages:
    """Yield the rows of a list that is at least as long as before, or as short in two consecutive readings.

    :param name: what is read, for messages.
    :param expected_rows: number of its records when it was last loaded.
    :raises MailIncompleteError: the number of records is not known, or falls each time.
    """
    for attempt in range(1, MAX_READINGS + 1):
        try:
            yield from read(_at_least(name, expected_rows))
            return
        except _ShorterError as error:
            _log.info(
                "%s: only %s records: reading it again to confirm it (%s of %s)",
                name,
                error.total,
                attempt,
                MAX_READINGS,
            )
            expected_rows = error.total
    raise MailIncompleteError(
        f"{name}: the list got shorter each of {MAX_READINGS} times that it was read: {expected_rows} records at last",
        got=expected_rows,
        expected=None,
    )


class _ShorterError(Exception):
    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.total = total


def _at_least(name: str, expected_rows: int) -> OnTotal:
    first = True

    def check(total: int | None) -> None:
        nonlocal first
        if not first:
            return
        first = False
        if total is None or total < 0:
            raise MailIncompleteError(
                f"{name}: the response has no valid totalRecords, so it is not known which rows are gone: nothing is "
                "loaded",
                got=0,
                expected=None,
            )
        if total < expected_rows:
            raise _ShorterError(total)

    return check


def span(first: date, last: date) -> Iterator[date]:
    """Yield the days of a window."""
    return (first + number * DAY for number in range((last - first).days + 1))


def _ranges(days: Iterable[date], max_days: int | None = None) -> list[tuple[date, date]]:
    """Return days as ranges without gaps, each of at most ``max_days`` days."""
    ranges: list[tuple[date, date]] = []
    for day in sorted(days):
        first, last = ranges[-1] if ranges else (day, date.min)
        if last + DAY == day and (max_days is None or (day - first).days < max_days):
            ranges[-1] = first, day
        else:
            ranges.append((day, day))
    return ranges


def _open_days(state: Mapping[str, Any]) -> dict[date, date]:
    """Return the open days, with the day on which each was first found empty."""
    ranges = [[date.fromisoformat(text) for text in interval] for interval in state.get("open", ())]
    return {day: since for low, high, since in ranges for day in span(low, high)}


def _day(state: Mapping[str, Any], name: str) -> date | None:
    return date.fromisoformat(state[name]) if name in state else None
