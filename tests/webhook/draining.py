"""An inbox, and a warehouse that its pushes are drained into."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENTS
from airflow_provider_mail.webhook.drain import Drained, EventTables, Replayed, drain, replay
from airflow_provider_mail.webhook.erasure import Erased, erase
from airflow_provider_mail.webhook.inbox import Inbox, Push
from tests.warehouse.conftest import Warehouse
from tests.webhook.pushes import receive

NAMES = ("mail_events", "mail_dead_letters")


class Drains:
    """All that is done with an inbox and its warehouse, whose tables are made."""

    def __init__(self, inbox: Inbox, warehouse: Warehouse) -> None:
        self.inbox = inbox
        self.warehouse = warehouse
        self.tables = EventTables(warehouse.hook, *NAMES)
        self.tables.create()

    def receive(self, *pushes: Push) -> None:
        receive(self.inbox, pushes)

    def drain(self, **options: Any) -> Drained:
        return drain(self.inbox, self.tables, **{"batch_size": 100, **options})

    def replay(self) -> Replayed:
        return replay(self.warehouse.hook, *NAMES)

    def erase(self, email: str, *, without_inbox: bool = False) -> Erased:
        return erase(email, None if without_inbox else self.inbox, self.warehouse.hook, *NAMES)

    def events(self) -> list[dict[str, Any]]:
        rows = self.warehouse.rows(EVENTS, NAMES[0])
        events = [dict(zip(EVENTS.names, row, strict=True)) for row in rows]
        return sorted(events, key=lambda row: (row["push_id"], row["push_index"]))

    def letters(self) -> list[dict[str, Any]]:
        rows = self.warehouse.rows(DEAD_LETTERS, NAMES[1])
        return [dict(zip(DEAD_LETTERS.names, row, strict=True)) for row in rows]
