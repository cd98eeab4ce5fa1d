"""The rows of an import, between its source and the checks: who said no, who has no address, which values are sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.flows.import_contacts import Progress, SelectedRows
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.read_files import FileBatch, WrongWidth

if TYPE_CHECKING:
    from airflow_provider_mail.arguments import Consent

Batch = Sequence[Sequence[Any]]

_MEANS_NO = re.compile(r"unsub|opt(ed)?out|donot(email|mail|contact|send)|dontmail|blacklist|blocklist|suppressed")
_MEANS_YES = re.compile(
    r"opt(ed)?in|consent|permission|subscribed$|subscri(ber|ption)status|emailmarketing|acceptsmarketing|"
    r"marketing(contact)?status|newsletter$|gdpr"
)
_SAYS_WHEN_OR_HOW = re.compile(
    r"(time|timestamp|date|ip|source|method|reason|reasonother|title|campaignid|"
    r"(opt(ed)?(in|out)|(un)?subscribed|consented|confirmed)(at|on))$"
)
"""Ends of names of columns that describe a consent, and have no yes or no."""

_MAY_MEAN_YES = re.compile(r"(list|email|member|contact|lead)?(status|state)")
"""Names of columns that have a consent only if their values do."""

_YES = frozenset(
    ("1", "true", "yes", "y", "x", "subscribed", "opted in", "opted_in", "optin", "opt-in", "marketing contact")
)
_MAIL_WORDS = frozenset(("subscribed", "unsubscribed", "cleaned", "non-subscribed"))


class Source(NamedTuple):
    """Rows to import.

    :param columns: the names of the columns, by position.
    :param total: the number of rows, if it is known.
    :param all_columns: the names of all columns, if some are not read.
    """

    columns: Sequence[str]
    batches: Iterator[Batch]
    total: int | None
    all_columns: Sequence[str] = ()


def folded(value: Any) -> str:
    """Return a value as it is compared with those of `Consent`: text in small letters; empty for no value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return "" if value is None else str(value).strip().casefold()
    except ValueError:  # Python does not format numbers with thousands of digits.
        return "a number"


class RowFilter:
    """Leaves out people who said no, and rows without an address; counts both, and all rows that are read.

    A person who said no in one row, and yes in another, said no: with a consent, all rows are read before the first is
    sent, and wait in a temporary file.

    :param mapping: the property of each column that is sent.
    """

    def __init__(
        self,
        source: Source,
        mapping: Mapping[str, str],
        consents: Sequence[Consent],
        progress: Progress,
        limit: int | None,
    ) -> None:
        columns = source.columns
        self._width = len(columns)
        self._progress = progress
        self._limit = limit
        places = {name: columns.index(column) for column, name in mapping.items()}
        self._email = places.get("email")
        self._identities = [places[name] for name in ("email", "phoneNumber") if name in places]
        self._opted_out: set[int] = set()
        self._conditions = []
        for consent in consents:
            if consent.column not in (known := source.all_columns or columns):
                raise AirflowFailException(f"consent: the source has no {consent.column!r}; it has {', '.join(known)}")
            values = frozenset(map(folded, consent.yes or consent.no or ()))
            self._conditions.append((columns.index(consent.column), values, consent.yes is not None))

    def rows(self, batches: Iterable[Batch]) -> Iterator[SelectedRows]:
        """Yield the rows that are left, with their numbers in the source, up to the limit."""
        if not self._conditions:
            yield from self._selected(batches)
            return
        with closing(Spool[SelectedRows]()) as spool:
            for rows in self._selected(batches):
                spool.add(rows)
            for rows in spool:
                kept = [not self._said_no_elsewhere(row) for row in rows]
                yield rows if all(kept) else selected(rows, kept)

    def _selected(self, batches: Iterable[Batch]) -> Iterator[SelectedRows]:
        for rows in numbered(batches, self._progress, self._limit):
            kept = self._kept(rows)
            yield rows if kept is None else selected(rows, kept)

    def _kept(self, rows: Batch) -> list[bool] | None:
        """Return which rows are left; ``None`` for all."""
        if not self._conditions and (not self._identities or self._all_have(rows, self._identities[0])):
            return None
        return [len(row) != self._width or (self._agrees(row) and self._has_address(row)) for row in rows]

    @staticmethod
    def _all_have(rows: Batch, place: int) -> bool:
        # Nearly always so. Without a loop of Python, since this is the hot path of an import.
        try:
            return all(map(itemgetter(place), rows))
        except IndexError:
            return False

    def _agrees(self, row: Sequence[Any]) -> bool:
        agrees = all((folded(row[place]) in values) is means_yes for place, values, means_yes in self._conditions)
        if not agrees:
            self._progress.opted_out += 1
            if (key := self._key(row)) is not None:
                self._opted_out.add(key)
        return agrees

    def _said_no_elsewhere(self, row: Sequence[Any]) -> bool:
        said_no = bool(self._opted_out) and self._key(row) in self._opted_out
        self._progress.opted_out += said_no
        return said_no

    def _key(self, row: Sequence[Any]) -> int | None:
        """Return a hash that identifies the person of a row; ``None`` without an address."""
        if self._email is None or len(row) != self._width or not isinstance(address := row[self._email], str):
            return None
        return hash(address_key(address)) if address else None

    def _has_address(self, row: Sequence[Any]) -> bool:
        has = not self._identities or any(row[place] not in (None, "") for place in self._identities)
        self._progress.without_address += not has
        return has


def numbered(batches: Iterable[Batch], progress: Progress, limit: int | None) -> Iterator[SelectedRows]:
    """Yield the rows up to the limit, with their numbers in the source; those that have numbers were counted before."""
    for batch in batches:
        if isinstance(batch, SelectedRows):
            yield batch
            continue
        first, size = progress.read + 1, len(batch)
        if limit is not None:
            size = min(size, limit - progress.read)
        progress.read += size
        lines = getattr(batch, "lines", ())[:size]
        yield SelectedRows(batch if size == len(batch) else batch[:size], range(first, first + size), lines)
        if progress.read == limit:
            return


def selected(rows: SelectedRows, selectors: Sequence[Any]) -> SelectedRows:
    """Return the rows of which the selector is true."""
    numbers, lines = (list(compress(places, selectors)) for places in (rows.numbers, rows.lines))
    return SelectedRows(compress(rows, selectors), numbers, lines)


def unused_consent(source: Source, first: Batch) -> str | None:
    """Return the argument that uses a column which looks like a consent; ``None`` if there is no such column.

    :param first: some rows.
    """
    columns = source.columns
    for column in source.all_columns or columns:
        name = re.sub(r"[^a-z]", "", column.lower())
        place = columns.index(column) if column in columns else None
        found = {folded(row[place]) for row in first if len(row) == len(columns)} if place is not None else set()
        if _SAYS_WHEN_OR_HOW.search(name):
            if name.startswith(("unsub", "optout", "optedout")) and not name.endswith(
                ("reason", "reasonother", "title")
            ):
                return f"consent=Consent(column={column!r}, yes=[''])"
        elif _MEANS_NO.search(name):
            return f"consent=Consent(column={column!r}, no={sorted(found & _YES) or ['true']})"
        elif _MEANS_YES.search(name) or (_MAY_MEAN_YES.fullmatch(name) and found & _MAIL_WORDS):
            return f"consent=Consent(column={column!r}, yes={sorted(found & _YES) or ['yes']})"
    return None


def pick(batches: Iterable[Batch], positions: Sequence[int], width: int) -> Iterable[Batch]:
    """Return the mapped values of each row, in the mapping's order; if that changes nothing, the rows themselves."""
    if list(positions) == list(range(width)):
        return batches

    def picked(row: Sequence[Any]) -> Sequence[Any]:
        if len(row) == width:
            return [row[place] for place in positions]
        # The check rejects by width, so a row that happens to have as many values as are mapped gets one more.
        problem = getattr(row, "problem", f"has {len(row)} values instead of {width}")
        return WrongWidth.of(row if len(row) != len(positions) else [*row, None], problem)

    def batch_of(batch: Batch) -> Batch:
        rows, lines = [picked(row) for row in batch], getattr(batch, "lines", ())
        return SelectedRows(rows, batch.numbers, lines) if isinstance(batch, SelectedRows) else FileBatch(rows, lines)

    return map(batch_of, batches)
