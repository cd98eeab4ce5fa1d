"""What each row of a source is, beside the members that the state has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_provider_mail._audience.lines import Matcher, decoded, encoded
from airflow_provider_mail._audience.rows import JOINED, AudienceRows, Identity, RowSpool, picked_rows

if TYPE_CHECKING:
    from airflow_provider_mail._audience.index import AudienceIndex
    from airflow_provider_mail._audience.members import Members
    from airflow_provider_mail.api.flows.import_contacts import SelectedRows

UNRESOLVED = "unresolved"
"""The operation of a row that is not yet compared with all members."""


class Comparison:
    """Compares a source with the members, and notes in an index what is not in both."""

    def __init__(self, members: Members, index: AudienceIndex, identity: Identity) -> None:
        self._members = members
        self._index = index
        self._identity = identity

    def changed(
        self, batches: Iterable[SelectedRows], uncertain: Sequence[str], *, keeps_all: bool
    ) -> Iterator[AudienceRows]:
        """Yield the rows that are not lines of the state.

        :param uncertain: memberships of people whose rows must be looked at in any case.
        :param keeps_all: also yield the rows that are, as unchanged ones.
        """
        index, members, key_of = self._index, self._members, self._identity.key
        operation = UNRESOLVED if len(members) else JOINED
        unmatched: list[tuple[int, int, bytes]] = list(members.active(*uncertain))

        def note() -> None:
            index.add_known(
                (key_of(decoded(line)), line, members.membership(number), number, place)
                for number, place, line in unmatched
            )
            unmatched.clear()

        matcher = Matcher(members, lambda *line: unmatched.append(line))
        for batch in batches:
            lines = encoded(batch).splitlines(keepends=True)
            places = matcher.unmatched(lines)
            note()
            changed = picked_rows(batch, places)
            keys, texts = [key_of(row) or "" for row in changed], [lines[place] for place in places]
            if len(members):
                index.see(keys)
            if not keeps_all:
                yield AudienceRows(changed, keys, texts, [operation] * len(places))
                continue
            rows = AudienceRows.unchanged(batch)
            for place, key, text in zip(places, keys, texts, strict=True):
                rows.keys[place], rows.texts[place], rows.operations[place] = key, text, operation
            yield rows
        matcher.rest()
        note()

    def resolve(self, unresolved: Iterable[AudienceRows], spool: RowSpool[AudienceRows]) -> Counter[str]:
        """Find out what each row is; return how many rows there are of each operation."""
        self._index.complete(self._members, self._identity)
        counts: Counter[str] = Counter()
        for rows in unresolved:
            places = [place for place, operation in enumerate(rows.operations) if operation == UNRESOLVED]
            keys, texts = [rows.keys[place] for place in places], [rows.texts[place] for place in places]
            for place, operation in zip(places, self._index.operations(keys, texts), strict=True):
                rows.operations[place] = operation
            counts.update(rows.operations)
            spool.add(rows)
        return counts
