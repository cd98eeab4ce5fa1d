"""Who is in which list, at a million contacts: pages and counts without counting again each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_mail.emulator.store import Row, Store


class Members:
    """The membership of contacts in lists. Pages are in the order of contact ids, which is that of creation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._totals: dict[int, int] = {}
        #: The contact before each page start seen, so that reading on does not step over all pages before.
        self._before: dict[tuple[int, int], int] = {}

    def forget_counts(self) -> None:
        self._totals.clear()
        self._before.clear()

    def add_newer(self, list_id: int, contact_id: int) -> int:
        """Add all contacts with an id over this one; how many that were."""
        self.forget_counts()
        return self._store.run(
            "INSERT OR IGNORE INTO members SELECT ?, id FROM contacts WHERE id > ?", list_id, contact_id
        )

    def add_keys(self, list_id: int, keys: Sequence[str]) -> None:
        """Add the contacts that have these keys; keys without a contact are passed over."""
        self.forget_counts()
        self._store.run_many(
            "INSERT OR IGNORE INTO members SELECT ?, id FROM contacts WHERE key = ?", [(list_id, key) for key in keys]
        )

    def forget_contact(self, contact_id: int) -> None:
        self.forget_counts()
        self._store.run("DELETE FROM members WHERE list_id IN (SELECT id FROM lists) AND contact_id = ?", contact_id)

    def forget_list(self, list_id: int) -> None:
        self.forget_counts()
        self._store.run("DELETE FROM members WHERE list_id = ?", list_id)

    def total(self, list_id: int) -> int:
        if list_id not in self._totals:
            self._totals[list_id] = self._store.value("SELECT count(*) FROM members WHERE list_id = ?", list_id)
        return self._totals[list_id]

    def page(self, list_id: int, limit: int, offset: int) -> tuple[list[Row], int]:
        """Contacts of a list from an offset on, and how many the list has."""
        before = self._before.get((list_id, offset), 0)
        rows = self._store.rows(
            "SELECT contacts.* FROM members JOIN contacts ON contacts.id = contact_id "
            "WHERE list_id = ? AND contact_id > ? ORDER BY contact_id LIMIT ? OFFSET ?",
            list_id,
            before,
            limit,
            0 if before else offset,
        )
        if rows:
            self._before[list_id, offset + len(rows)] = rows[-1]["id"]
        return rows, self.total(list_id)
