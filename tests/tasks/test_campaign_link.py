"""A task links to its campaign, where the connection says where that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.sdk import DAG
from airflow.serialization import serialized_objects

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.get_provider_info import get_provider_info
from airflow_provider_mail.hooks.connection import placeholders_of
from airflow_provider_mail.links import LINK_KEY, MailCampaignLink
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from mail_emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.airflow_api import airflow_api
from tests.tasks.conftest import TASK, Connect, Done, Run
from tests.tasks.sending import CAMPAIGN, campaign

PAGE = "https://app.example.com/campaigns"


@pytest.fixture(autouse=True)
def _as_in_the_api_server(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads links; a scheduler does not, and what it has set for this process stays (3.2)."""
    emulator.add_list("newsletter", ["ada@example.com"])
    for name in ("DagSerialization", "SerializedDAG", "OperatorSerialization", "SerializedBaseOperator"):
        if kind := getattr(serialized_objects, name, None):
            monkeypatch.setattr(kind, "_load_operator_extra_links", True, raising=False)


Linked = Callable[..., tuple[str, Done]]


@pytest.fixture
def linked(run_in_airflow: Run, new_dag: Callable[..., DAG]) -> Linked:
    """A function that runs a task and returns its link: what the API server finds, with the DAG as it was stored."""

    def linked(make: Callable[..., object] = campaign, map_index: int = -1, **arguments: Any) -> tuple[str, Done]:
        with new_dag() as dag:
            make(**arguments)
        done = run_in_airflow(dag)
        storage: Any = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG
        stored = storage.from_dict(storage.to_dict(dag)).get_task(TASK)
        assert stored.extra_links == ["Campaign"]
        key = TaskInstanceKey(done.result.dag_id, TASK, done.result.run_id, map_index=map_index)
        (operator_link,) = stored.operator_extra_links
        return operator_link.get_link(stored, ti_key=key), done

    return linked


def test_the_link_of_a_campaign_that_is_created_and_adopted(
    linked: Linked, connect: Connect, emulator: Emulator
) -> None:
    connect(campaign_url=f"{PAGE}/?name={{mail_name}}#{{guid}}")
    name = "spring & summer/50%"
    url, done = linked(mail_name=name)
    (created,) = emulator.campaigns()
    assert url == f"{PAGE}/?name=spring%20%26%20summer%2F50%25#{created['guid']}"
    assert done.result.xcom(TASK, LINK_KEY) == url
    assert linked(mail_name=name, adopt_older=True)[0] == url


@pytest.mark.parametrize(("fields", "arguments"), [
    ({}, {}),
    ({"campaign_url": f"{PAGE}/{{mail_name}}"}, {"sandbox_mode": True}),
    ({"campaign_url": f"{PAGE}/{{mail_name}}"}, {"mail_conn_id": "none"}),
])  # fmt: skip
def test_no_link_and_no_complaint(linked: Linked, connect: Connect, fields: Any, arguments: dict[str, Any]) -> None:
    connect(**fields)
    url, done = linked(**arguments)
    assert url == ""
    assert "Failed to push" not in done.log
    # Below 3.3, Airflow says itself that the task of a sandbox has stored no link.
    warnings = [line for line in done.log.splitlines() if "warning" in line.lower() and "No XCom value" not in line]
    assert done.state == "failed" or not warnings


def test_tasks_that_defer_or_fail_keep_their_link(linked: Linked, connect: Connect, emulator: Emulator) -> None:
    connect(campaign_url=f"{PAGE}/{{guid}}")
    url, _ = linked(wait_for_completion=True, deferrable=True)
    assert url == f"{PAGE}/{emulator.campaigns()[0]['guid']}"
    assert linked(MailCampaignSensor, task_id=TASK, mail_name="spring", deferrable=True)[0] == url
    emulator.set_campaign_state("spring", "failed")
    again, done = linked(adopt_older=True)
    assert (again, done.state) == (url, "failed")


def test_what_the_api_says_and_each_mapped_task(linked: Linked, connect: Connect) -> None:
    connect(campaign_url=f"{PAGE}/{{mail_name}}")
    given = {name: value for name, value in CAMPAIGN.items() if name != "mail_name"}
    partial = MailCreateCampaignOperator.partial
    url, _ = linked(lambda: partial(task_id=TASK, **given).expand(mail_name=["one", "two"]), map_index=1)
    assert url == f"{PAGE}/two"
    assert get_provider_info()["extra-links"] == [f"{MailCampaignLink.__module__}.{MailCampaignLink.__name__}"]
    if AIRFLOW_VERSION >= (3, 1):  # dag.test() of 3.0 stores no DAG that the API could read
        done = linked()[1].result
        links = f"/dags/{done.dag_id}/dagRuns/{done.run_id}/taskInstances/{TASK}/links"
        assert airflow_api().request("GET", links).json()["extra_links"] == {"Campaign": f"{PAGE}/spring"}


@pytest.mark.parametrize("template", [
    "app.example.com/{mail_name}", "ftp://app.example.com/{mail_name}", "javascript:alert(1)//{mail_name}",
    "https:///{mail_name}", "https://{mail_name}.example.com/", "https://user:secret@app.example.com/{mail_name}",
    *(f"{PAGE}/{end}" for end in ("{name}", "{id}", "{}", "{mail_name.__class__}", "{mail_name!r}", "{guid:>10}")),
    *(f"{PAGE}/{end}" for end in ("{mail_name", " {mail_name}")),
])  # fmt: skip
def test_what_is_no_template(template: str) -> None:
    with pytest.raises(MailConfigError, match="campaign_url: must be a URL such as"):
        placeholders_of(template)
