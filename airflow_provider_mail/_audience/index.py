"""What one run of an audience knows of people who changed, in a private database on disk.

It has the rows of the source and of the state that are not in both, so it is small, and the rows that are sent. The
database moves from memory to a temporary file when it grows, so memory use stays constant.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.members import LEAVING, LEFT, MEMBER, Members
from airflow_provider_mail._audience.rows import (
    CHANGED,
    JOINED,
    RETURNED,
    UNCHANGED,
    AudienceRows,
    Identity,
    checksum,
    decoded,
)

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.validate_rows import CheckedRows

_FILTER_BITS = (1 << 20) - 1


class AudienceIndex:
    """The people who changed, and the rows that are sent; also the checkpoint of their import."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.create_function("checksum", 1, checksum, deterministic=True)
        for statement in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA cache_size = -8000",
            "CREATE TABLE known (key TEXT, line BLOB, membership TEXT, part INTEGER, place INTEGER, "
            "present INTEGER DEFAULT 0)",
            "CREATE TABLE seen (key TEXT)",
            "CREATE TABLE suppressed (key TEXT PRIMARY KEY) WITHOUT ROWID",
            "CREATE TABLE batch (place INTEGER PRIMARY KEY, key TEXT, line BLOB)",
            "CREATE TABLE sent (chunk INTEGER, place INTEGER, key TEXT, line BLOB, operation TEXT, "
            "outcome TEXT DEFAULT '', PRIMARY KEY (chunk, place)) WITHOUT ROWID",
            "CREATE TABLE removed (key TEXT PRIMARY KEY, line BLOB, membership TEXT) WITHOUT ROWID",
            "CREATE TABLE logged (key TEXT, operation TEXT)",
            "BEGIN",
        ):
            self._database.execute(statement)
        self._first_places: dict[int, int] = {}
        self._chunks = 0

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    def _select(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Any]:
        # Not `yield from`, which would close the cursor after the database.
        for row in self._database.execute(sql, parameters):  # noqa: UP028
            yield row

    def _exists(self, sql: str, parameters: Sequence[Any]) -> bool:
        return bool(self._database.execute(f"SELECT EXISTS ({sql})", parameters).fetchone()[0])

    # --- the comparison of state and source ---

    def add_known(self, lines: Iterable[tuple[str | None, bytes, str, int, int]]) -> None:
        """Note lines of the state that are not in the source, or whose people must be looked at.

        :param lines: key, line, membership, part and place of each.
        """
        self._database.executemany(
            "INSERT INTO known (key, line, membership, part, place) VALUES (?, ?, ?, ?, ?)", lines
        )

    def see(self, keys: Iterable[str]) -> None:
        """Note the people of rows that are not in the state."""
        self._database.executemany("INSERT INTO seen VALUES (?)", ((key,) for key in keys if key))

    def suppress(self, keys: Iterable[str]) -> None:
        """Note people who are in the source and are left out."""
        self._database.executemany("INSERT OR IGNORE INTO suppressed VALUES (?)", ((key,) for key in keys))

    def complete(self, members: Members, identity: Identity) -> None:
        """Find the other lines of people who seem to have joined or left: a person may have several rows."""
        execute = self._database.execute
        execute("CREATE INDEX known_key ON known (key)")
        execute("CREATE INDEX known_place ON known (part, place)")
        execute("CREATE INDEX seen_key ON seen (key)")
        execute("CREATE TABLE single (key TEXT PRIMARY KEY, checksum INTEGER) WITHOUT ROWID")
        execute(
            "INSERT INTO single SELECT key, checksum(key) FROM (SELECT key FROM seen WHERE key NOT IN (SELECT key FROM "
            "known) UNION SELECT key FROM known WHERE key NOT IN (SELECT key FROM seen))"
        )
        execute("CREATE INDEX single_checksum ON single (checksum)")
        flags = bytearray(_FILTER_BITS + 1)
        for (number,) in execute("SELECT checksum FROM single"):
            flags[number & _FILTER_BITS] = 1
        if 1 not in flags:
            return
        for number in members.numbers(MEMBER, LEFT):
            places = [
                place
                for place, value in enumerate(members.checksums(number))
                if flags[value & _FILTER_BITS]
                and members.counts_line(number, place)
                and self._exists("SELECT 1 FROM single WHERE checksum = ?", (value,))
                and not self._exists("SELECT 1 FROM known WHERE part = ? AND place = ?", (number, place))
            ]
            if places:
                self._add_others(members, number, places, identity)

    def _add_others(self, members: Members, number: int, places: list[int], identity: Identity) -> None:
        lines, membership = members.lines(number), members.membership(number)
        for place in places:
            key = identity.key(decoded(lines[place]))
            if self._exists("SELECT 1 FROM single WHERE key = ?", (key,)):
                self._database.execute(
                    "INSERT INTO known VALUES (?, ?, ?, ?, ?, ?)",
                    (key, lines[place], membership, number, place, membership == MEMBER),
                )

    def operations(self, keys: Sequence[str], texts: Sequence[bytes]) -> list[str]:
        """Return what each of some rows is, beside the members before."""
        execute = self._database.execute
        execute("DELETE FROM batch")
        self._database.executemany(
            "INSERT INTO batch VALUES (?, ?, ?)", zip(range(len(keys)), keys, texts, strict=True)
        )
        operations = [JOINED] * len(keys)
        same: dict[int, int] = {}
        for place, number, is_same, membership, present in execute(
            "SELECT batch.place, known.rowid, known.line = batch.line, membership, present FROM batch "
            "JOIN known USING (key)"
        ).fetchall():
            if membership in (LEAVING, LEFT):
                operations[place] = RETURNED
            elif operations[place] == JOINED:
                operations[place] = CHANGED
            if is_same and membership == MEMBER and not present:
                same[number] = place
        for number, place in same.items():
            if operations[place] == CHANGED:
                operations[place] = UNCHANGED
                execute("UPDATE known SET present = 1 WHERE rowid = ?", (number,))
        return operations

    _PRESENT = "EXISTS (SELECT 1 FROM known other WHERE other.key = known.key AND other.present)"
    """SQL: a line of the person is also in the source."""

    def _people(self, memberships: Sequence[str], condition: str) -> Iterator[tuple[str, bytes]]:
        """Yield key and line of the people before, of some memberships, of whom no line is in the source."""
        marks = ", ".join("?" * len(memberships))
        yield from self._select(
            f"SELECT key, max(line) FROM known WHERE membership IN ({marks}) AND NOT {self._PRESENT} AND {condition} "
            "GROUP BY key",
            memberships,
        )

    def absent(self, *memberships: str, suppressed: bool = True) -> Iterator[tuple[str, bytes]]:
        """Yield key and line of the people before, of some memberships, whom no selected row names.

        :param suppressed: also those whose rows are left out.
        """
        unless = "" if suppressed else " AND NOT EXISTS (SELECT 1 FROM suppressed WHERE suppressed.key = known.key)"
        yield from self._people(memberships, f"NOT EXISTS (SELECT 1 FROM seen WHERE seen.key = known.key){unless}")

    def ended(self) -> Iterator[tuple[int, int]]:
        """Yield part and place of the lines that no longer count after this run.

        People who had left stay excluded, unless their rows were sent or their contacts deleted.
        """
        yield from self._select(
            "SELECT part, place FROM known WHERE NOT present AND (membership <> ? "
            "OR key IN (SELECT key FROM sent) OR key IN (SELECT key FROM removed))",
            (LEFT,),
        )

    def ended_of(self, table: str) -> Iterator[tuple[int, int]]:
        """Yield part and place of the lines of people in a table.

        :param table: ``seen`` or ``removed``.
        """
        yield from self._select(f"SELECT part, place FROM known WHERE NOT present AND key IN (SELECT key FROM {table})")

    # --- the rows that are sent: this is the checkpoint of the import ---

    def sending(self, batches: Iterable[AudienceRows]) -> Iterator[AudienceRows]:
        """Yield the rows, and note them before they are sent."""
        for batch in batches:
            chunk, self._chunks = self._chunks, self._chunks + 1
            self._database.executemany(
                "INSERT INTO sent (chunk, place, key, line, operation) VALUES (?, ?, ?, ?, ?)",
                zip(
                    [chunk] * len(batch), range(len(batch)), batch.keys, batch.texts, batch.operations, strict=True
                ),
            )  # fmt: skip
            yield batch

    def lookup(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        """Note the rows that are not valid; all others are sent."""
        self._first_places[chunk] = first_number
        self._reject(chunk, [reject.row_number for reject in checked.rejects])
        return None

    def prepare(self, chunk: int) -> None:
        """Do nothing; called from another thread."""

    def accepted(self, chunk: int, rejected: Sequence[int]) -> None:
        """Note that the service accepted a chunk except for some rows."""
        self._reject(chunk, rejected)
        self._database.execute("UPDATE sent SET outcome = 'accepted' WHERE chunk = ? AND outcome = ''", (chunk,))
        del self._first_places[chunk]

    def _reject(self, chunk: int, numbers: Sequence[int]) -> None:
        first = self._first_places[chunk]
        self._database.executemany(
            "UPDATE sent SET outcome = 'rejected' WHERE chunk = ? AND place = ?",
            [(chunk, number - first) for number in numbers],
        )

    # --- what became of them ---

    def finish_sending(self) -> None:
        """Prepare the questions below: no more rows are sent."""
        self._database.execute("CREATE INDEX sent_key ON sent (key)")

    def accepted_lines(self, *, returned: bool = True) -> Iterator[tuple[str, bytes]]:
        """Yield key and line of the rows that were accepted.

        :param returned: also those of people who came back.
        """
        yield from self._select(
            "SELECT key, line FROM sent WHERE outcome = 'accepted' AND operation <> ? ORDER BY chunk, place",
            ("" if returned else RETURNED,),
        )

    def was_accepted(self, key: str | None, line: bytes | None = None) -> bool:
        """Return whether a row of a person was accepted; if a line is given, this row."""
        sql = "SELECT 1 FROM sent WHERE key = ?1 AND outcome = 'accepted' AND (?2 IS NULL OR line = ?2)"
        return self._exists(sql, (key, line))

    def rejected(self, *memberships: str) -> Iterator[tuple[str, bytes]]:
        """Yield key and line of the people before, of some memberships, whose rows were all rejected."""
        sent = "EXISTS (SELECT 1 FROM sent WHERE sent.key = known.key AND outcome = '{}')"
        yield from self._people(memberships, f"{sent.format('rejected')} AND NOT {sent.format('accepted')}")

    def has_returned(self) -> bool:
        """Return whether people came back and were accepted."""
        return self._exists("SELECT 1 FROM sent WHERE outcome = 'accepted' AND operation = ?", (RETURNED,))

    def remove(self, people: Iterable[tuple[str, bytes]], membership: str) -> None:
        """Note people who are to be removed.

        :param membership: where they are then, `LEFT`, or empty for nowhere; what was noted first counts.
        """
        self._database.executemany(
            "INSERT OR IGNORE INTO removed VALUES (?, ?, ?)", ((*person, membership) for person in people)
        )

    def removed(self, membership: str) -> Iterator[tuple[str, bytes]]:
        """Yield key and line of the people to remove in one way."""
        yield from self._select("SELECT key, line FROM removed WHERE membership = ?", (membership,))

    def is_removed(self, key: str | None) -> bool:
        """Return whether a person is to be removed."""
        return self._exists("SELECT 1 FROM removed WHERE key = ?", (key,))

    def log(self, people: Iterable[tuple[str, str]]) -> None:
        """Note what the log shows of rows that are not kept here.

        :param people: the key of each person, and the operation.
        """
        self._database.executemany("INSERT INTO logged VALUES (?, ?)", (pair for pair in people if pair[1]))

    def changes(self) -> Iterator[tuple[str, str]]:
        """Yield each person that changed, with the operation."""
        yield from self._select(
            """
            SELECT key, max(operation) FROM (
                SELECT key, CASE WHEN outcome = 'accepted' THEN operation ELSE 'rejected' END AS operation
                FROM sent WHERE outcome <> ''
                UNION ALL SELECT key, operation FROM logged
            ) WHERE key <> '' GROUP BY key
            """
        )
        yield from self._select("SELECT key, 'suppressed' FROM suppressed")
        yield from self._select("SELECT key, 'left' FROM removed")
