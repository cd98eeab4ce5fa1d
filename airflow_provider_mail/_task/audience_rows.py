"""Selects the rows of an audience: how many are read, and whom the user's tables leave out."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api._core.addresses import address_key
from airflow_provider_mail.api.flows.import_contacts import SelectedRows
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.api.flows.import_contacts import Progress
    from airflow_provider_mail.stages import Stage

Rows = Iterable[Sequence[Sequence[Any]]]

MEMORY_BYTES = 1_000_000
MAX_EXAMPLES = 5

SUPPRESSING_EVENTS = """
SELECT email FROM {table} WHERE email IS NOT NULL AND event_code IN ('Unsubscribed', 'SpamReport', 'Dropped')
UNION
SELECT bounced.email FROM {table} bounced
WHERE bounced.email IS NOT NULL AND bounced.event_code = 'Bounced' AND NOT EXISTS (
    SELECT 1 FROM {table} delivered
    WHERE delivered.email = bounced.email AND delivered.event_code = 'Delivered'
    AND delivered.triggered_time > bounced.triggered_time)
GROUP BY bounced.email HAVING COUNT(DISTINCT bounced.unique_msg_id) >= 3
"""
"""Addresses that must not get campaigns, by the events that the service pushed.

It does not show whether a bounce is permanent. Three mails that bounced since the last delivery are taken for that.
"""


class Identity:
    """The values of a row that identify the person: the address, or the phone number of a row without one.

    :param properties: the property of each value of a row, by position.
    """

    def __init__(self, properties: Sequence[str]) -> None:
        self.email = properties.index("email") if "email" in properties else None
        self.phone = properties.index("phoneNumber") if "phoneNumber" in properties else None
        self._width = len(properties)

    def key(self, row: Sequence[Any]) -> str | None:
        """Return the key by which people are compared; ``None`` for a row that the import will reject."""
        if len(row) != self._width:
            return None
        if self.email is not None:
            value = row[self.email]
            if isinstance(value, str) and value:
                return address_key(value)
            if value not in (None, ""):
                return None
        if self.phone is not None and (value := row[self.phone]) not in (None, ""):
            return f"tel:{value}" if isinstance(value, str | int) else None
        return None


class Suppressed:
    """The people who are left out of what the source returns.

    Python's hash of a key differs in every process, so nothing here identifies a person.

    :param addresses: their addresses.
    """

    def __init__(self, addresses: Iterable[Any] = ()) -> None:
        self._hashes = {hash(address_key(address)) for address in addresses if isinstance(address, str)}

    def __contains__(self, key: str) -> bool:
        return hash(key) in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)


def suppressed_addresses(hook: DbApiHook, *, events: str | None, sql: str | None, table: str | None) -> Iterator[Any]:
    """Yield the addresses that the user's tables name.

    :param events: the table of events.
    :param sql: a query whose first column has addresses.
    :param table: a table with a column ``email``.
    :raises WarehouseError: when a query fails; never with values.
    """
    from airflow_provider_mail.warehouse.read import StoredTable, stream_rows
    from airflow_provider_mail.warehouse.tables.events import EVENTS

    queries = [SUPPRESSING_EVENTS.format(table=StoredTable(hook, EVENTS, events).spelled)] if events else []
    if table:
        queries.append(f"SELECT email FROM {StoredTable(hook, EVENTS, table).spelled}")
    queries += [sql] if sql else []
    for query in queries:
        with stream_rows(hook, query) as (_, batches):
            for batch in batches:
                yield from (row[0] for row in batch)


class Selection:
    """The rows of a source that are imported, with their numbers in the source.

    :param limit: the number of rows to read. Default: all.
    :param max_rows: the number of rows with which the task fails. Default: none.
    :param stage: the stage whose people are imported. Default: all people.
    :param on_suppressed: called with the key of each person who is left out.
    """

    def __init__(
        self,
        identity: Identity,
        progress: Progress,
        *,
        limit: int | None = None,
        stage: Stage | None = None,
        suppressed: Suppressed | None = None,
        on_suppressed: Callable[[str], object] = lambda key: None,
    ) -> None:
        self._identity = identity
        self._progress = progress
        self._limit = limit
        self._people = suppressed or Suppressed()
        self._on_suppressed = on_suppressed
        self._stage = stage
        self.suppressed = 0
        self.other_stages = 0
        """The number of rows of people in other stages."""

    def of(self, batches: Rows) -> Iterator[SelectedRows]:
        """Yield the selected rows, and count all that are read."""
        progress = self._progress
        for batch in batches:
            if self._limit is not None and progress.read + len(batch) > self._limit:
                size = self._limit - progress.read
                batch = SelectedRows(batch[:size], (), getattr(batch, "lines", ())[:size])
            first = progress.read + 1
            progress.read += len(batch)
            yield self._selected(batch, range(first, first + len(batch)), getattr(batch, "lines", ()))
            if progress.read == self._limit:
                return

    def _selected(self, batch: Sequence[Any], numbers: Sequence[int], lines: Sequence[int]) -> SelectedRows:
        if not len(self._people) and self._stage is None:
            return SelectedRows(batch, numbers, lines)
        places = []
        for place, row in enumerate(batch):
            key = self._identity.key(row)
            if self._stage is not None and key not in self._stage:
                self.other_stages += 1
            elif key is not None and key in self._people:
                self.suppressed += 1
                self._on_suppressed(key)
            else:
                places.append(place)
        return picked_rows(batch, places, numbers, lines)


def picked_rows(
    batch: Sequence[Any], places: Sequence[int], numbers: Sequence[int], lines: Sequence[int]
) -> SelectedRows:
    """Return the rows at some places of a batch."""
    return SelectedRows(
        [batch[place] for place in places],
        [numbers[place] for place in places],
        [lines[place] for place in places] if lines else (),
    )


class RowSpool:
    """Keeps lists of rows on disk until all have been read, so that memory use stays constant."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self.rows = 0
        self._batches = 0

    def add(self, batch: SelectedRows) -> None:
        """Store a list of rows."""
        # The values are those of the driver, such as decimals and dates, and the file is this process' own.
        pickle.dump(batch, self._file, pickle.HIGHEST_PROTOCOL)
        self.rows += len(batch)
        self._batches += 1

    def __iter__(self) -> Iterator[SelectedRows]:
        self._file.seek(0)
        for _ in range(self._batches):
            yield pickle.load(self._file)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


def brake_error(brake: str, numbers: str) -> AirflowFailException:
    """Return the error of a task that a brake has stopped.

    :param brake: the argument.
    :param numbers: what it compared.
    """
    return AirflowFailException(
        f"{brake}: {numbers}. Nothing was sent and nobody was removed. If that is right, let it pass once: trigger the "
        f'DAG with the parameter "{PASS_BRAKES}": true, which the DAG declares as '
        f'params={{"{PASS_BRAKES}": Param(False, type="boolean")}}'
    )


PASS_BRAKES = "pass_brakes"
"""The parameter of a DAG run that lets the brakes pass."""


def masked(key: str) -> str:
    """Return an example that shows what kind of rows there are, and not who."""
    local, at, domain = key.partition("@")
    return f"{local[:1]}***@{domain[:1]}***" if at else f"{key[:7]}***"
