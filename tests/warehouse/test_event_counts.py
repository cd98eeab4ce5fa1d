"""Events are counted alike by every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_mail.warehouse.event_counts import CountedOn, event_counts
from airflow_provider_mail.warehouse.tables.events import EVENTS, EventCounts
from tests.warehouse.conftest import Warehouse

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
END = BEGIN + timedelta(days=1)
NOON = BEGIN + timedelta(hours=12)


def rows(*events: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rows of `EVENTS`: a mail that was sent and opened at noon, where they say nothing else."""
    usual = {
        "mail_conn_id": "mail_default",
        "event_code": "Opened",
        "email": "ada@example.com",
        "unique_msg_id": "m1",
        "submit_time": NOON,
        "triggered_time": NOON,
        "received_at": END,
        "raw": {},
        "push_id": 1,
        "push_index": 0,
    }
    filled: list[dict[str, Any]] = [usual | {"event_id": str(number)} | each for number, each in enumerate(events)]
    return [tuple(each.get(name) for name in EVENTS.names) for each in filled]


def counts(warehouse: Warehouse, counted_on: CountedOn = "send", **options: Any) -> dict[str, EventCounts]:
    given: dict[str, Any] = {"mail_conn_id": "mail_default", "begin": BEGIN, "end": END, "counted_on": counted_on}
    found = event_counts(warehouse.hook, "mail_events", **given | options)
    return {name: each for name, each in found.items() if each.events}


def test_mails_and_events(warehouse: Warehouse) -> None:
    warehouse.load(EVENTS, [], "mail_events")
    assert counts(warehouse) == {}
    last = END - timedelta(microseconds=1)
    warehouse.load(
        EVENTS,
        rows(
            {"event_code": "Delivered"},
            {"event_code": "Bounced"},  # first the one, then the other: one mail
            {"event_code": "Bounced", "email": "bob@example.com"},  # of the same request
            {},
            {"triggered_time": last},
            {"unique_msg_id": None},
            {"unique_msg_id": None, "submit_time": last},
            {"unique_msg_id": None, "submit_time": END},
            {"unique_msg_id": "m2", "submit_time": BEGIN},
            {"unique_msg_id": "m2", "submit_time": BEGIN - timedelta(microseconds=1)},
            {"event_code": "Delivered", "unique_msg_id": "m3", "guid": "campaign"},
            {"event_code": "Delivered", "unique_msg_id": "m4", "mail_conn_id": "mail_shop"},
            {"event_code": "Dropped", "unique_msg_id": "m5", "guid": "", "event_type": "O'Type"},
            {"event_code": "SpamReport"},
        ),
        "mail_events",
    )
    assert counts(warehouse) == {
        "sent_count": EventCounts(2, 3),
        "bounce_count": EventCounts(2, 2),
        "open_count": EventCounts(4, 5),
        "unsent_count": EventCounts(1, 1),
    }
    assert counts(warehouse, event_types=["O'Type", "other"]) == {"unsent_count": EventCounts(1, 1)}


def test_the_time_that_decides(warehouse: Warehouse) -> None:
    warehouse.load(
        EVENTS,
        rows(
            {"event_code": "Delivered"},
            {"event_code": "Opened", "triggered_time": END, "submit_time": None},  # that of Delivered
            {"event_code": "Clicked", "triggered_time": END, "submit_time": None, "unique_msg_id": "m2"},
            {"event_code": "Unsubscribed", "triggered_time": None, "submit_time": None, "received_at": NOON,
             "unique_msg_id": "m3"},
        ),
        "mail_events",
    )  # fmt: skip
    assert counts(warehouse, "send").keys() == {"sent_count", "open_count", "unsubscribe_count"}
    assert counts(warehouse, "event").keys() == {"sent_count", "unsubscribe_count"}
