"""Draining the inbox as a task: what it stores, returns and reports to assets, and what it says of errors."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from airflow.sdk import Asset

from airflow_provider_mail.assets import events_asset
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator
from airflow_provider_mail.warehouse.tables.events import EVENTS
from airflow_provider_mail.webhook.inbox import Inbox, Push
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.loading import error_of, executed
from tests.webhook.pushes import NOON, event, push, receive

TABLE_ASSET = Asset("postgres://db.example.com:5432/dwh/public/mail_events")


def task(**arguments: Any) -> MailEventsToSqlOperator:
    return MailEventsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", **arguments)


def drain(**arguments: Any) -> dict[str, Any]:
    return executed(task(**arguments))


def extras(done: Any) -> dict[str, dict[str, Any]]:
    """What the server receives of assets when the task succeeds, by URI."""
    end = done.result.runner.api.instances[TASK].end
    reported = {outlet["dest_asset_key"]["uri"]: outlet["extra"] for outlet in end["outlet_events"]}
    return {asset["uri"]: reported.get(asset["uri"], {}) for asset in end["task_outlets"]}


def test_the_inbox_is_drained_into_the_warehouse(run: Run, inbox: Inbox, warehouse: SqlDatabase) -> None:
    forwarded = event(3, "ada@example.com", Email="planted@example.com")
    receive(inbox, [push(event(1), event(2, "Opened"), {}), push(event(1), forwarded, "planted@example.com")])
    outlets = [events_asset(), TABLE_ASSET]
    done = run(lambda: task(outlets=outlets))
    counts = {
        "pushes": 2, "events": 4, "stored": 3, "by_code": {"Delivered": 1, "Opened": 1, "other": 1},
        "duplicates": 1, "dead_letters": 2, "conflicts": 0,
    }  # fmt: skip
    names = {"table": "mail_events", "dead_letters_table": "mail_dead_letters"}
    assert done.returned == {**names, **counts, "deleted_pushes": 0}
    assert extras(done) == {"mail://mail_default/events": counts, TABLE_ASSET.uri: counts}
    assert "@example.com" not in done.log + json.dumps(done.returned) + done.rendered()
    assert warehouse.query("SELECT count(*) FROM mail_events") == [(3,)]
    assert warehouse.query("SELECT count(*) FROM mail_dead_letters") == [(2,)]
    # Nothing new is no asset event.
    receive(inbox, [push(event(1)), push({})])
    done = run(lambda: task(outlets=outlets))
    assert (done.state, done.returned["duplicates"], extras(done)) == ("success", 1, {})


def test_a_retry_reports_what_was_stored_before(
    run: Run, inbox: Inbox, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, failures = Inbox.finish, iter([OSError("the database went away")])

    def fail_once(*arguments: Any) -> None:
        for failure in failures:
            raise failure
        finish(*arguments)

    monkeypatch.setattr(Inbox, "finish", fail_once)
    receive(inbox, [push(event(1))])
    done = run(lambda: task(outlets=[TABLE_ASSET], retries=1, retry_delay=datetime.timedelta(0)))
    assert (done.state, done.tries, done.returned["stored"]) == ("success", 2, 0)
    assert extras(done)[TABLE_ASSET.uri]["pushes"] == 1
    assert warehouse.query("SELECT count(*) FROM mail_events") == [(1,)]


def test_drained_pushes_are_deleted_after_the_retention(inbox: Inbox, warehouse: SqlDatabase, clock: Any) -> None:
    receive(inbox, [push(event(1))])
    clock.sleep(6.9 * 86_400)
    assert [drain()["deleted_pushes"] for _ in range(2)] == [0, 0]
    clock.sleep(7.1 * 86_400)
    receive(inbox, [push(event(2))])
    options: list[dict[str, Any]] = [{"keep_days": None}, {}, {"keep_days": 0}]
    deleted = [drain(**arguments)["deleted_pushes"] for arguments in options]
    assert deleted == [0, 1, 1]


def test_what_arguments_reach_the_drain(warehouse: SqlDatabase) -> None:
    """Names, how many, and whether an unreadable event fails; lineage leads from the inbox to the table."""
    other = Inbox(warehouse.hook, "their_inbox")
    names = {"inbox_conn_id": "warehouse", "inbox_table": "their_inbox", "table": "their_events"}
    assert drain(**names)["pushes"] == 0, "the inbox is created"
    receive(other, [push(event(number)) for number in range(5)])
    receive(other, [Push(b'[{"EventCode": "planted@example.com\\u0000"}]', NOON, "mail_default", False)])
    operator = task(max_pushes=3, batch_size=2, **names)
    assert executed(operator)["pushes"] == 3
    lineage = operator.get_openlineage_facets_on_complete(None)
    (source,), (target,) = lineage.inputs, lineage.outputs
    assert (source.name, source.inputFacets["inputStatistics"].rowCount) == ("their_inbox", 3)
    assert (target.name, len(target.facets["schema"].fields)) == ("their_events", len(EVENTS.stored_columns))
    assert warehouse.query("SELECT count(*) FROM their_events") == [(3,)]

    error = error_of(lambda: task(on_unstorable="fail", **names))
    assert error.startswith("push 6, event 0: a field holds what not every database can store")
    assert "planted" not in error
    assert other.waiting()
    for name in ("table", "dead_letters_table"):
        error = error_of(lambda name=name: task(**names | {name: "their_inbox"}))
        assert error == "inbox_table: must be another table than `table` and `dead_letters_table`"
