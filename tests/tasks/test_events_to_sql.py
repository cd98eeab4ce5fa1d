"""Draining the inbox as a task: what it returns, whom it tells, and what it says when something is wrong."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset

from airflow_provider_mail.assets import events_asset
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.tables.events import EVENTS
from airflow_provider_mail.webhook.inbox import Inbox, Push
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.lineage_run import activate_assets
from tests.webhook.pushes import NOON, event, push, receive

TABLE_ASSET = Asset("postgres://db.example.com:5432/dwh/public/mail_events")


def drain(**arguments: Any) -> Any:
    return lambda: MailEventsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", **arguments)


def extras(done: Any) -> dict[str, dict[str, Any]]:
    """What the server is told of assets when the task succeeds, by URI."""
    end = done.result.runner.api.instances[TASK].end
    told = {each["dest_asset_key"]["uri"]: each["extra"] for each in end["outlet_events"]}
    return {asset["uri"]: told.get(asset["uri"], {}) for asset in end["task_outlets"]}


def test_the_inbox_is_drained_into_the_warehouse(run: Run, inbox: Inbox, any_warehouse: SqlDatabase) -> None:
    forwarded = event(3, "ada@example.com", Email="planted@example.com")
    receive(inbox, [push(event(1), event(2, "Opened"), {}), push(event(1), forwarded, "planted@example.com")])
    done = run(drain())
    assert done.state == "success", done.log
    assert done.returned == {
        "table": "mail_events",
        "dead_letters_table": "mail_dead_letters",
        "pushes": 2,
        "events": 4,
        "stored": 3,
        "by_code": {"Delivered": 1, "Opened": 1, "other": 1},
        "duplicates": 1,
        "dead_letters": 2,
        "conflicts": 0,
        "deleted_pushes": 0,
    }
    assert "@example.com" not in done.log + json.dumps(done.returned) + done.rendered()
    assert any_warehouse.query("SELECT count(*) FROM mail_events") == [(3,)]
    assert any_warehouse.query("SELECT count(*) FROM mail_dead_letters") == [(2,)]
    again = run(drain())
    assert (again.returned["pushes"], again.returned["by_code"]) == (0, {})


def test_inbox_and_tables_may_have_other_names(run: Run, warehouse: SqlDatabase) -> None:
    other = Inbox(warehouse.hook, "their_inbox")
    other.create()
    receive(other, [push(event(1)), push({})])
    names = {"table": "their_events", "dead_letters_table": "their_letters"}
    done = run(drain(inbox_conn_id="warehouse", inbox_table="their_inbox", **names))
    assert (done.returned["stored"], done.returned["dead_letters"]) == (1, 1)
    assert {"their_events", "their_letters"} <= warehouse.tables()


def test_an_empty_deployment_gets_its_tables(run: Run, inbox: Inbox, warehouse: SqlDatabase) -> None:
    inbox.hook.run("DROP TABLE mail_inbox")
    assert run(drain()).returned["pushes"] == 0
    assert {"mail_events", "mail_dead_letters"} <= warehouse.tables()
    assert not inbox.waiting()


def test_an_asset_event_tells_the_counts(run: Run, inbox: Inbox, warehouse: SqlDatabase) -> None:
    receive(inbox, [push(event(1), event(2, "Bounced"), event(2, "Bounced"))])
    done = run(drain(outlets=[events_asset(), TABLE_ASSET]))
    counts = {
        "pushes": 1,
        "events": 3,
        "stored": 2,
        "by_code": {"Delivered": 1, "Bounced": 1},
        "duplicates": 1,
        "dead_letters": 0,
        "conflicts": 0,
    }
    assert extras(done) == {"mail://mail_default/events": counts, TABLE_ASSET.uri: counts}


def test_nothing_new_is_no_asset_event(run: Run, inbox: Inbox, warehouse: SqlDatabase) -> None:
    receive(inbox, [push(event(1))])
    assert extras(run(drain(outlets=[TABLE_ASSET])))
    receive(inbox, [push(event(1)), push({})])
    done = run(drain(outlets=[TABLE_ASSET]))
    assert (done.state, done.returned["duplicates"], extras(done)) == ("success", 1, {})


def test_a_retry_tells_what_the_first_try_may_have_stored(
    run: Run, inbox: Inbox, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, failures = Inbox.finish, iter([OSError("the database went away")])

    def fail_once(*arguments: Any) -> None:
        for failure in failures:
            raise failure
        finish(*arguments)

    monkeypatch.setattr(Inbox, "finish", fail_once)
    receive(inbox, [push(event(1))])
    done = run(drain(outlets=[TABLE_ASSET], retries=1, retry_delay=datetime.timedelta(0)))
    assert (done.state, done.tries, done.returned["stored"]) == ("success", 2, 0)
    assert extras(done)[TABLE_ASSET.uri]["pushes"] == 1
    assert warehouse.query("SELECT count(*) FROM mail_events") == [(1,)]


def test_drained_pushes_are_deleted_after_the_retention(run: Run, inbox: Inbox, warehouse: SqlDatabase) -> None:
    receive(inbox, [push(event(1))])
    assert run(drain()).returned["deleted_pushes"] == 0
    inbox.hook.run("UPDATE mail_inbox SET drained_at = '2026-01-01 00:00:00.000000+00:00'")
    receive(inbox, [push(event(2))])
    assert run(drain(retention_days=None)).returned["deleted_pushes"] == 0
    assert run(drain()).returned["deleted_pushes"] == 1
    assert run(drain(retention_days=0)).returned["deleted_pushes"] == 1


def test_an_event_that_must_be_readable_fails_the_task_and_stays(
    run: Run, inbox: Inbox, warehouse: SqlDatabase
) -> None:
    receive(inbox, [Push(b'[{"EventCode": "planted@example.com\\u0000"}]', NOON, "mail_default", False)])
    done = run(drain(on_unstorable="fail", retries=1))
    assert (done.state, done.tries) == ("failed", 1)
    assert "push 1, event 0: field 'EventCode' holds the character NUL" in done.log
    assert "planted" not in done.log
    assert inbox.waiting()


def test_a_run_may_be_limited(run: Run, inbox: Inbox, warehouse: SqlDatabase) -> None:
    receive(inbox, [push(event(number)) for number in range(5)])
    assert run(drain(max_pushes=3, batch_size=2)).returned["pushes"] == 3
    assert run(drain()).returned["pushes"] == 2


def test_progress_is_logged(
    run: Run, inbox: Inbox, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("airflow_provider_mail._task.progress.LOG_INTERVAL", 0)
    receive(inbox, [push(event(number)) for number in range(3)])
    assert "2 pushes, 2 events done" in run(drain(batch_size=1)).log


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"inbox_conn_id": "nowhere"}, "connection 'nowhere'"),
        ({"inbox_conn_id": "duck"}, "needs a Postgres or SQLite database, not duckdb"),
        ({"inbox_table": "a b"}, "must be a name"),
        ({"table": "a b"}, "must be a name"),
        ({"table": "same", "dead_letters_table": "same"}, "dead_letters_table: must be another table"),
        ({"inbox_conn_id": "warehouse", "inbox_table": "mail_events"}, "inbox_table: must be another table"),
    ],
)
def test_wrong_names_fail_at_once(
    run: Run,
    inbox: Inbox,
    warehouse: SqlDatabase,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DUCK", json.dumps({"conn_type": "duckdb", "host": ":memory:"}))
    done = run(drain(retries=1, **arguments))
    assert (done.state, done.tries) == ("failed", 1), done.log
    assert said in done.log


def test_without_an_inbox_the_error_names_the_setting(warehouse: SqlDatabase) -> None:
    with pytest.raises(AirflowFailException, match=r"\[mail\] inbox_conn_id"):
        drain()().execute({})


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"max_pushes": 0},
        {"retention_days": -1},
        {"on_unstorable": "ignore"},
    ],
)
def test_impossible_arguments_fail_when_the_dag_is_parsed(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        drain(**arguments)()


def test_airflow_creates_one_asset_event_for_a_drain(
    run_in_airflow: Run, new_dag: Callable[..., DAG], inbox: Inbox, warehouse: SqlDatabase
) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    receive(inbox, [push(event(1))])
    asset = events_asset("mail_of_this_test")
    created = []
    for _ in range(2):
        with new_dag() as dag:
            drain(outlets=[asset])()
        activate_assets(dag)
        done = run_in_airflow(dag)
        assert done.state == "success", done.log
        with create_session() as session:
            of_run = select(AssetEvent).where(AssetEvent.source_dag_id == done.result.dag_id)
            created.append([one.extra["stored"] for one in session.scalars(of_run)])
    assert created == [[1], []]


def test_lineage_leads_from_the_inbox_to_the_table(inbox: Inbox, warehouse: SqlDatabase) -> None:
    receive(inbox, [push(event(1), event(1), event(2))])
    operator = drain()()
    operator.execute({"ti": SimpleNamespace(try_number=1)})
    reported = operator.get_openlineage_facets_on_complete(None)
    (source,), (target,) = reported.inputs, reported.outputs
    assert (source.name, source.inputFacets["inputStatistics"].rowCount) == ("mail_inbox", 3)
    assert (target.name, len(target.facets["schema"].fields)) == ("mail_events", len(EVENTS.stored_columns))
