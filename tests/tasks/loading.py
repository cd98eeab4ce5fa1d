"""What the tests of loads share: tasks without an Airflow around them, and what other clients and the service do."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail._task.storage import sql_hook  # noqa: F401 - private: imported here alone
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailCampaignsToSqlOperator,
    MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.errors import WarehouseError
from mail_emulator import Emulator
from tests.support.changes import around_requests, post
from tests.support.tries import TaskInstance

UTC = datetime.UTC
LIST, LISTS = "contacts/list/get", "lists/get"
GET_CAMPAIGNS = "campaign/mail/get"
CAMPAIGN_STATS, TRANSACTIONAL_STATS = "campaign/mail/stats/get", "transactional/mail/stats/get"
DAYS = {"start_day": "2024-03-01", "end_day": "2024-03-04"}
RUN_DAY = datetime.datetime(2026, 3, 10, tzinfo=UTC)
WEEK = {"start_day": "2026-03-01", "end_day": "2026-03-07"}
LOADS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mail_campaign_stats": (MailCampaignStatsToSqlOperator, DAYS),
    "mail_campaign_stats_snapshots": (MailCampaignStatsToSqlOperator, {**DAYS, "snapshots": True}),
    "mail_transactional_stats": (MailTransactionalStatsToSqlOperator, DAYS),
    "mail_contacts": (MailContactsToSqlOperator, {"list_name": "news"}),
    "mail_campaigns": (MailCampaignsToSqlOperator, {}),
}
"""The operators that load a table from the service, with arguments."""


def executed(operator: Any, at: datetime.datetime | None = None) -> dict[str, Any]:
    """What a task returns.

    :param at: when its run began. Default: now.
    """
    at = at or datetime.datetime.now(UTC)
    run = SimpleNamespace(run_after=at, start_date=at, clear_number=0)
    ti = TaskInstance("task", run_id="run", try_number=1)
    result: dict[str, Any] = operator.execute({"dag_run": run, "ti": ti})
    return result


def load_task(table: str, /, **arguments: Any) -> Any:
    """The task that loads a table into the connection ``warehouse``."""
    operator, given = LOADS[table]
    return operator(**{"task_id": "task", "sql_conn_id": "warehouse"} | given | arguments)


def error_of(make: Callable[[], Any]) -> str:
    """Why a task fails: with the DAG file, or else when it runs."""
    with pytest.raises((TypeError, ValueError, OSError, AirflowFailException, MailError, WarehouseError)) as raised:
        executed(make())
    return str(raised.value)


def local(url: str) -> Path:
    return Path(url.removeprefix("file://"))


def delete(emulator: Emulator, *contacts: dict[str, Any]) -> None:
    """Delete contacts at the service, so that they leave their lists."""
    for contact in contacts:
        post(emulator, "contacts/delete", email=contact["email"])


def remove_campaigns(emulator: Emulator, *names: str) -> None:
    """Delete campaigns at the service. Default: all of them."""
    for name in names or [campaign["mailName"] for campaign in emulator.campaigns()]:
        emulator.set_campaign_state(name, "removed")


def ids_in_service(emulator: Emulator, list_name: str = "newsletter") -> list[str]:
    return sorted((contact["id"] for contact in emulator.contacts(list_name)), key=int)


def windows(emulator: Emulator, path: str = CAMPAIGN_STATS) -> list[tuple[str, str]]:
    """The days of each request for statistics."""
    return [(entry["body"]["startDate"], entry["body"]["endDate"]) for entry in emulator.journal.entries(path)]


def changed_records(
    emulator: Emulator, path: str, change: Callable[[list[Any]], object]
) -> AbstractContextManager[None]:
    """Let the service change the records of its responses of one operation."""

    def around(perform: Callable[[], Any]) -> Any:
        response = perform()
        for value in response.payload.values():
            if isinstance(value, list):
                change(value)
        return response

    return around_requests(emulator, path, around)


def spoil_campaigns(records: list[dict[str, Any]]) -> None:
    """Make two records that cannot be stored: those of campaigns that are called so."""
    for record in records:
        if record["mailName"] == "negative":
            record["mailStats"]["openCount"] = -5
        if record["mailName"] == "nameless":
            record["guid"] = None
