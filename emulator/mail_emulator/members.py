"""Membership of contacts in lists, with cached counts and page positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mail_emulator.store import Row, Store


class Members:
    """Membership of contacts in lists. Pages are ordered by contact id, the order of creation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._totals: dict[int, int] = {}
        #: Contact id before each page start, so that the next page does not scan the previous ones.
        self._before: dict[tuple[int, int], int] = {}

    def clear_cache(self) -> None:
        self._totals.clear()
        self._before.clear()

    def add_newer(self, list_id: int, contact_id: int) -> int:
        """Add all contacts with a higher id; return their number.

        :param contact_id: the id to compare with.
        """
        self.clear_cache()
        return self._store.run(
            "INSERT OR IGNORE INTO members SELECT ?, id FROM contacts WHERE id > ?", [list_id, contact_id]
        )

    def add_keys(self, list_id: int, keys: Sequence[str]) -> None:
        """Add the contacts with these keys; unknown keys are skipped."""
        self.clear_cache()
        self._store.run_many(
            "INSERT OR IGNORE INTO members SELECT ?, id FROM contacts WHERE key = ?", [(list_id, key) for key in keys]
        )

    def remove_contact(self, contact_id: int) -> None:
        """Remove a contact from all lists."""
        self.clear_cache()
        self._store.run("DELETE FROM members WHERE list_id IN (SELECT id FROM lists) AND contact_id = ?", [contact_id])

    def remove_list(self, list_id: int) -> None:
        """Remove all contacts from a list."""
        self.clear_cache()
        self._store.run("DELETE FROM members WHERE list_id = ?", [list_id])

    def total(self, list_id: int) -> int:
        """Return the number of contacts in a list."""
        if list_id not in self._totals:
            self._totals[list_id] = self._store.value("SELECT count(*) FROM members WHERE list_id = ?", [list_id])
        return self._totals[list_id]

    def page(self, list_id: int, limit: int, offset: int) -> tuple[list[Row], int]:
        """Return the contacts of a list from an offset on, and the total of the list."""
        before = self._before.get((list_id, offset), 0)
        rows = self._store.rows(
            "SELECT contacts.* FROM members JOIN contacts ON contacts.id = contact_id "
            "WHERE list_id = ? AND contact_id > ? ORDER BY contact_id LIMIT ? OFFSET ?",
            [list_id, before, limit, 0 if before else offset],
        )
        if rows:
            self._before[list_id, offset + len(rows)] = rows[-1]["id"]
        return rows, self.total(list_id)
