"""What one run of an audience knows, in a private database on disk: the members before, and the rows that it sends.

The database moves from memory to a temporary file when it grows, so memory use stays constant. It holds no addresses.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api.flows.import_contacts import SelectedRows

if TYPE_CHECKING:
    from airflow_provider_mail._task.audience_state import Member
    from airflow_provider_mail.api.flows.validate_rows import CheckedRows

MEMBER, LEAVING, LEFT, GONE = "member", "leaving", "left", "gone"
"""Where a person is: on the list, perhaps on the exclusion list as well, on both, or on none."""

UNCHANGED, JOINED, RETURNED, CHANGED = "", "joined", "returned", "changed"
"""What a row is, beside the members before."""

_UNSEEN, _SEEN, _SUPPRESSED = 0, 1, 2


class AudienceRows(SelectedRows):
    """Rows with what the state stores of them.

    :param persons: the digest of the person of each row; empty for a row that the import will reject.
    :param contents: the digest of the values of each row.
    :param sealed: what excludes the person of each row, encrypted; empty for rows that are not sent.
    :param operations: what each row is.
    """

    def __init__(
        self,
        rows: Iterable[Sequence[Any]],
        numbers: Sequence[int],
        lines: Sequence[int],
        persons: Sequence[str],
        contents: Sequence[str],
        sealed: Sequence[str],
        operations: Sequence[str],
    ) -> None:
        super().__init__(rows, numbers, lines)
        self.persons = persons
        self.contents = contents
        self.sealed = sealed
        self.operations = operations

    def pick(self, places: Sequence[int]) -> AudienceRows:
        """Return the rows at some places."""
        columns = (self.persons, self.contents, self.sealed, self.operations)
        lines = [self.lines[place] for place in places] if self.lines else ()
        return AudienceRows(
            [self[place] for place in places],
            [self.numbers[place] for place in places],
            lines,
            *([column[place] for place in places] for column in columns),
        )

    def followed_by(self, other: AudienceRows) -> AudienceRows:
        """Return these rows and others."""
        return AudienceRows(
            [*self, *other],
            [*self.numbers, *other.numbers],
            [*self.lines, *other.lines],
            [*self.persons, *other.persons],
            [*self.contents, *other.contents],
            [*self.sealed, *other.sealed],
            [*self.operations, *other.operations],
        )


def packed(batches: Iterable[AudienceRows], size: int) -> Iterator[AudienceRows]:
    """Yield the rows that are to be sent, in lists of one size."""
    rest: AudienceRows | None = None
    for batch in batches:
        places = [place for place, operation in enumerate(batch.operations) if operation]
        changed = batch if len(places) == len(batch) else batch.pick(places)
        rest = rest.followed_by(changed) if rest else changed
        while len(rest) >= size:
            yield rest if len(rest) == size else rest.pick(range(size))
            rest = rest.pick(range(size, len(rest)))
    if rest:
        yield rest


class AudienceIndex:
    """The members before this run, and the rows that it sends; also the checkpoint of its import."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA cache_size = -16000",
            "CREATE TABLE known (person TEXT, content TEXT, sealed TEXT, membership TEXT)",
            "CREATE TABLE batch (place INTEGER PRIMARY KEY, person TEXT, content TEXT)",
            "CREATE TABLE sent (chunk INTEGER, place INTEGER, person TEXT, content TEXT, sealed TEXT, operation TEXT, "
            "outcome TEXT DEFAULT '', PRIMARY KEY (chunk, place)) WITHOUT ROWID",
            "CREATE TABLE removed (person TEXT PRIMARY KEY, content TEXT, sealed TEXT, membership TEXT) WITHOUT ROWID",
            "CREATE TABLE suppressed (person TEXT PRIMARY KEY) WITHOUT ROWID",
            "BEGIN",
        ):
            self._database.execute(statement)
        self._flags = bytearray()
        self._first_places: dict[int, int] = {}
        self._chunks = 0
        self.stored = 0
        """The number of members that the state has, of all kinds."""

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    def _select(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Any]:
        # Not `yield from`, which would close the cursor after the database.
        for row in self._database.execute(sql, parameters):  # noqa: UP028
            yield row

    # --- the members before ---

    def load(self, batches: Iterable[Sequence[Member]], *, distinct: bool) -> None:
        """Read the members before; of several with the same person, the last one counts.

        :param distinct: whether there is one of each person.
        """
        for batch in batches:
            self._database.executemany("INSERT INTO known VALUES (?, ?, ?, ?)", batch)
        execute = self._database.execute
        execute("CREATE INDEX known_person ON known (person, content, membership)")
        if not distinct:
            execute("DELETE FROM known WHERE rowid NOT IN (SELECT max(rowid) FROM known GROUP BY person)")
        (self.stored,) = execute("SELECT count(*) FROM known").fetchone()
        execute("DELETE FROM known WHERE membership = ?", (GONE,))
        (highest,) = execute("SELECT coalesce(max(rowid), 0) FROM known").fetchone()
        self._flags = bytearray([_SEEN]) * (highest + 1)
        for (number,) in execute("SELECT rowid FROM known"):
            self._flags[number] = _UNSEEN

    def count(self, *memberships: str) -> int:
        """Return how many members before there were of some kinds."""
        marks = ", ".join("?" * len(memberships))
        (count,) = self._database.execute(
            f"SELECT count(*) FROM known WHERE membership IN ({marks})", memberships
        ).fetchone()
        return int(count)

    def compare(self, persons: Sequence[str], contents: Sequence[str]) -> list[str]:
        """Return what each row is, beside the members before, and note who was seen."""
        execute = self._database.execute
        execute("DELETE FROM batch")
        self._database.executemany(
            "INSERT INTO batch VALUES (?, ?, ?)", zip(range(len(persons)), persons, contents, strict=True)
        )
        operations = [JOINED] * len(persons)
        flags = self._flags
        for place, number, unchanged, membership in execute(
            "SELECT place, known.rowid, known.content = batch.content, membership FROM batch JOIN known USING (person)"
        ):
            flags[number] = _SEEN
            if membership != MEMBER:
                operations[place] = RETURNED
            else:
                operations[place] = UNCHANGED if unchanged else CHANGED
        return operations

    def suppress(self, persons: Iterable[str]) -> None:
        """Note people who are in the source and are left out."""
        for person in persons:
            self._database.execute("INSERT OR IGNORE INTO suppressed VALUES (?)", (person,))
            for (number,) in self._database.execute("SELECT rowid FROM known WHERE person = ?", (person,)):
                self._flags[number] = _SUPPRESSED

    def absent(self, *memberships: str, suppressed: bool = True) -> Iterator[Member]:
        """Yield the members before, of some kinds, whom no selected row names.

        :param suppressed: also those whose rows are left out.
        """
        flags = (_UNSEEN, _SUPPRESSED) if suppressed else (_UNSEEN,)
        for flag in flags:
            number = self._flags.find(flag)
            while number >= 0:
                row = self._database.execute(
                    "SELECT person, content, sealed, membership FROM known WHERE rowid = ?", (number,)
                ).fetchone()
                if row[3] in memberships:
                    yield row
                number = self._flags.find(flag, number + 1)

    # --- the rows that are sent: this is the checkpoint of the import ---

    def sending(self, batches: Iterable[AudienceRows]) -> Iterator[AudienceRows]:
        """Yield the rows, and note them before they are sent."""
        for batch in batches:
            chunk, self._chunks = self._chunks, self._chunks + 1
            self._database.executemany(
                "INSERT INTO sent (chunk, place, person, content, sealed, operation) VALUES (?, ?, ?, ?, ?, ?)",
                zip(
                    [chunk] * len(batch), range(len(batch)),
                    batch.persons, batch.contents, batch.sealed, batch.operations,
                    strict=True,
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
        self._database.execute("CREATE INDEX sent_person ON sent (person)")

    def accepted_members(self, *, returned: bool = True) -> Iterator[Member]:
        """Yield the members whose rows were accepted, with their values.

        :param returned: also those who came back.
        """
        yield from self._select(
            "SELECT person, content, sealed, ? FROM sent WHERE outcome = 'accepted' AND operation <> ? "
            "ORDER BY person, chunk, place",
            (MEMBER, "" if returned else RETURNED),
        )

    def doubtful_members(self) -> Iterator[Member]:
        """Yield the members whose rows were sent without a known outcome."""
        yield from self._select("SELECT person, '', sealed, ? FROM sent WHERE outcome = '' AND person <> ''", (MEMBER,))

    def rejected_members(self, *memberships: str) -> Iterator[Member]:
        """Yield the members before, of some kinds, whose rows were all rejected."""
        marks = ", ".join("?" * len(memberships))
        yield from self._select(
            f"""
            SELECT person, content, sealed, membership FROM known
            WHERE membership IN ({marks})
            AND EXISTS (SELECT 1 FROM sent WHERE sent.person = known.person AND outcome = 'rejected')
            AND NOT EXISTS (SELECT 1 FROM sent WHERE sent.person = known.person AND outcome = 'accepted')
            """,
            memberships,
        )

    def rejected_persons(self) -> Iterator[str]:
        """Yield the people who are new, and whose rows were all rejected."""
        for (person,) in self._database.execute(
            """
            SELECT DISTINCT person FROM sent
            WHERE outcome = 'rejected' AND person <> '' AND operation = ?
            AND NOT EXISTS (SELECT 1 FROM sent other WHERE other.person = sent.person AND other.outcome = 'accepted')
            """,
            (JOINED,),
        ):
            yield person

    def returned(self) -> int:
        """Return how many people came back and were accepted."""
        (count,) = self._database.execute(
            "SELECT count(DISTINCT person) FROM sent WHERE outcome = 'accepted' AND operation = ?", (RETURNED,)
        ).fetchone()
        return int(count)

    def remove(self, members: Iterable[Member], membership: str) -> None:
        """Note people who are to be removed.

        :param membership: where they are then, `LEFT` or `GONE`; what was noted first counts.
        """
        self._database.executemany(
            "INSERT OR IGNORE INTO removed VALUES (?, ?, ?, ?)", ((*member[:3], membership) for member in members)
        )

    def counts_removed(self, membership: str) -> int:
        """Return how many people are to be removed in one way."""
        (count,) = self._database.execute("SELECT count(*) FROM removed WHERE membership = ?", (membership,)).fetchone()
        return int(count)

    def excluding(self) -> Iterator[Member]:
        """Yield the people to exclude, who may be excluded from now on."""
        yield from self._select("SELECT person, content, sealed, ? FROM removed WHERE membership = ?", (LEAVING, LEFT))

    def removed(self) -> Iterator[Member]:
        """Yield the people who were removed."""
        yield from self._select(
            "SELECT person, iif(membership = ?1, content, ''), iif(membership = ?1, sealed, ''), membership "
            "FROM removed",
            (LEFT,),
        )

    def all_excluded(self) -> Iterator[Member]:
        """Yield the people to exclude, and those who left before and did not come back."""
        yield from self._select(
            """
            SELECT person, content, sealed, membership FROM known
            WHERE membership = ?1
            AND NOT EXISTS (SELECT 1 FROM sent WHERE sent.person = known.person AND outcome = 'accepted')
            AND NOT EXISTS (SELECT 1 FROM removed WHERE removed.person = known.person)
            UNION ALL
            SELECT person, content, sealed, membership FROM removed WHERE membership = ?1
            """,
            (LEFT,),
        )

    def changes(self) -> Iterator[tuple[str, str]]:
        """Yield each person that changed, with the operation."""
        yield from self._select(
            """
            SELECT person, max(CASE WHEN outcome = 'accepted' THEN operation ELSE 'rejected' END) FROM sent
            WHERE person <> '' AND outcome <> '' GROUP BY person
            """
        )
        yield from self._select("SELECT person, 'suppressed' FROM suppressed")
        yield from self._select("SELECT person, 'left' FROM removed")
