"""Answers that are short although their totals match, and counts that cannot be true: nothing is stored, and it is red.

Two readings may agree: another operation of the service is asked before anything is removed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailIncompleteError
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from mail_emulator import Emulator
from tests.support.changes import around_requests
from tests.tasks.conftest import SqlDatabase
from tests.tasks.loading import CAMPAIGN_STATS, GET_CAMPAIGNS, LIST, UTC, delete, executed, load_task, remove_campaigns

FIRST = datetime.date(2024, 3, 2)
WINDOW = {"start_day": "2024-03-01", "end_day": "2024-03-12"}


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    """Forty campaigns on ten days, forty contacts in a list, and mails of ten days."""
    emulator.clock.freeze(datetime.datetime(2024, 3, 20, tzinfo=UTC))
    emulator.add_campaigns(40, first_day=FIRST, per_day=4)
    emulator.add_list("news", count=40)
    for number in range(12):
        emulator.set_transactional_day(datetime.date(2024, 3, 1 + number), sentCount=50)
    return emulator


def load(service: Emulator, table: str, **more: Any) -> dict[str, Any]:
    service.clock.advance(minutes=1)
    return executed(load_task(table, **({} if table in ("mail_contacts", "mail_campaigns") else WINDOW), **more))


def short(service: Emulator, path: str, keep: int) -> AbstractContextManager[None]:
    """Whole answers have the first records alone, and a total that matches."""

    def around(perform: Callable[[], Any]) -> Any:
        response = perform()
        records = next((value for value in response.payload.values() if isinstance(value, list)), [])
        if len(records) > 1:
            del records[keep:]
            response.payload["totalRecords"] = keep
        return response

    return around_requests(service, path, around)


def state(warehouse: SqlDatabase) -> dict[str, Any]:
    return {table: sorted(map(str, warehouse.query(f"SELECT * FROM {table}"))) for table in warehouse.tables()}


@pytest.mark.parametrize("keep", [1, 19, 21, 30, 39])
@pytest.mark.parametrize(
    ("table", "path"),
    [("mail_campaign_stats", CAMPAIGN_STATS), ("mail_campaigns", GET_CAMPAIGNS), ("mail_contacts", LIST)],
)
def test_what_the_service_still_has_proves_an_answer_short(
    service: Emulator, warehouse: SqlDatabase, table: str, path: str, keep: int
) -> None:
    options = {"history": True} if table == "mail_contacts" else {}
    load(service, table, **options)
    before = state(warehouse)
    with short(service, path, keep), pytest.raises(MailIncompleteError, match="that the service returns elsewhere"):
        load(service, table, **options)
    assert state(warehouse) == before
    assert load(service, table, **options)["unchanged"] == 40


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_a_renamed_list_that_is_short_twice_ends_no_stay(service: Emulator, warehouse: SqlDatabase, mode: str) -> None:
    load(service, "mail_contacts", history=True, mode=mode)
    service.service.store.run("UPDATE lists SET name = 'renamed' WHERE name = 'news'")
    options = {"list_name": "renamed", "history": True, "mode": mode}
    with short(service, LIST, 39), pytest.raises(MailIncompleteError, match="that the service returns elsewhere"):
        load(service, "mail_contacts", **options)
    assert warehouse.query("SELECT COUNT(*), COUNT(valid_to) FROM mail_contacts_history") == [(40, 0)]
    assert load(service, "mail_contacts", **options)["left"] == 0


def test_what_is_gone_is_removed(service: Emulator, warehouse: SqlDatabase) -> None:
    for table in ("mail_campaign_stats", "mail_campaigns", "mail_contacts"):
        load(service, table)
    remove_campaigns(service, "campaign-000008", "campaign-000020")
    delete(service, *service.contacts("news")[:3])
    assert load(service, "mail_campaign_stats")["gone"] == 2
    assert load(service, "mail_campaigns")["gone"] == 2
    assert load(service, "mail_contacts")["deleted"] == 3
    # One in ten, without a permission.
    delete(service, *service.contacts("news")[:4])
    with pytest.raises(UnconfirmedError, match="37 rows would become 33"):
        load(service, "mail_contacts")
    assert load(service, "mail_contacts", max_removed_fraction=0.2)["deleted"] == 4


def test_the_only_campaign_of_a_window_may_go(emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.clock.freeze(datetime.datetime(2024, 3, 20, tzinfo=UTC))
    emulator.add_campaign("only", send_date=datetime.datetime(2024, 3, 5, tzinfo=UTC))
    load(emulator, "mail_campaign_stats")
    remove_campaigns(emulator, "only")
    assert load(emulator, "mail_campaign_stats")["gone"] == 1
    assert load(emulator, "mail_campaign_stats")["gone"] == 0


@pytest.mark.parametrize("table", ["mail_transactional_stats", "mail_campaign_stats", "mail_campaign_stats_snapshots"])
def test_sent_mails_remain_sent(service: Emulator, warehouse: SqlDatabase, table: str) -> None:
    load(service, table)
    before = state(warehouse)
    service.set_transactional_day(datetime.date(2024, 3, 5), sentCount=0)
    service.set_campaign_stats("campaign-000008", sentCount=0, openCount=0)
    with pytest.raises(UnconfirmedError, match="sent mails of 1 records would fall to zero"):
        load(service, table)
    assert state(warehouse) == before
    assert load(service, table, allow_empty=True)["changed"] == 1
