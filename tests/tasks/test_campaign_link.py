"""A task links to its campaign, where the connection says where that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.sdk import DAG
from airflow.serialization import serialized_objects

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.get_provider_info import get_provider_info
from airflow_provider_mail.hooks.connection import campaign_url, placeholders_of
from airflow_provider_mail.links import LINK_KEY, MailCampaignLink
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.airflow_api import airflow_api
from tests.tasks.conftest import TASK, Connect, Done, Run

PAGE = "https://app.example.com/campaigns"


@pytest.fixture(autouse=True)
def _lists(emulator: Emulator) -> None:
    emulator.add_list("newsletter", ["ada@example.com"])


@pytest.fixture(autouse=True)
def _as_in_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads links; a scheduler does not, and what it has set for this process stays (3.2)."""
    for name in ("DagSerialization", "SerializedDAG", "OperatorSerialization", "SerializedBaseOperator"):
        if kind := getattr(serialized_objects, name, None):
            monkeypatch.setattr(kind, "_load_operator_extra_links", True, raising=False)


def create(**arguments: Any) -> MailCreateCampaignOperator:
    given = {"task_id": TASK, "sender_mail": "news@example.com", "send_list_names": ["newsletter"]}
    given |= {"subject": "Hi", "content": "<p>Hi</p>"}
    return MailCreateCampaignOperator(**given | arguments)


def link(dag: DAG, done: Done, map_index: int = -1) -> str:
    """What the API server finds: it knows the DAG only as it was stored."""
    storage: Any = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG
    stored = storage.from_dict(storage.to_dict(dag)).get_task(TASK)
    assert stored.extra_links == ["Campaign"]
    key = TaskInstanceKey(done.result.dag_id, TASK, done.result.run_id, map_index=map_index)
    (operator_link,) = stored.operator_extra_links
    found: str = operator_link.get_link(stored, ti_key=key)
    return found


@pytest.fixture
def linked(run_in_airflow: Run, new_dag: Callable[..., DAG]) -> Callable[..., tuple[str, Done]]:
    """A function that runs a task and gives back its link."""

    def linked(make: Callable[..., object] = create, **arguments: Any) -> tuple[str, Done]:
        with new_dag() as dag:
            make(**arguments)
        done = run_in_airflow(dag)
        return link(dag, done), done

    return linked


Linked = Callable[..., tuple[str, Done]]


def test_a_link_by_name(linked: Linked, connect: Connect) -> None:
    connect(campaign_url=f"{PAGE}?name={{mail_name}}")

    url, done = linked(mail_name="spring & summer/50%")

    assert done.state == "success", done.log
    assert url == f"{PAGE}?name=spring%20%26%20summer%2F50%25"
    assert done.result.xcom(TASK, LINK_KEY) == url


def test_a_link_by_identity(linked: Linked, connect: Connect, emulator: Emulator) -> None:
    connect(campaign_url=f"{PAGE}/{{id}}/{{guid}}#top")

    url, done = linked(mail_name="spring")

    (campaign,) = emulator.campaigns()
    assert url == f"{PAGE}/{done.returned['id']}/{campaign['guid']}#top"


def test_an_adopted_campaign_has_a_guid_and_no_id(linked: Linked, connect: Connect) -> None:
    connect(campaign_url=f"{PAGE}/{{guid}}")
    first, _ = linked(mail_name="spring")
    again, done = linked(mail_name="spring", adopt_older=True)
    assert done.returned["adopted"] is True
    assert again == first != ""

    connect(campaign_url=f"{PAGE}/{{id}}")
    assert linked(mail_name="spring", adopt_older=True)[0] == ""


def test_without_a_template_there_is_no_link_and_no_complaint(linked: Linked) -> None:
    url, done = linked()

    assert (url, done.state) == ("", "success")
    assert not [line for line in done.log.splitlines() if "warning" in line.lower()]


def test_nothing_was_created_so_there_is_nothing_to_link_to(
    linked: Linked, connect: Connect, emulator: Emulator
) -> None:
    connect(campaign_url=f"{PAGE}/{{mail_name}}")
    assert linked(sandbox_mode=True)[0] == ""
    url, done = linked(send_list_names=["nowhere"])
    assert (url, done.state) == ("", "failed")
    assert emulator.campaigns() == []


def test_a_task_that_cannot_read_its_connection_fails_for_that_alone(linked: Linked) -> None:
    url, done = linked(mail_conn_id="nowhere")

    assert (url, done.state) == ("", "failed")
    assert "Failed to push" not in done.log


def test_a_deferred_task_keeps_its_link(linked: Linked, connect: Connect, emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 0.5
    connect(campaign_url=f"{PAGE}/{{guid}}")

    url, done = linked(wait_for_completion=True, deferrable=True, poke_interval=0.3)

    assert done.returned["mail_stats"]["sent_count"] == 1
    assert url == f"{PAGE}/{emulator.campaigns()[0]['guid']}"


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_sensor_links_to_what_it_waits_for(
    linked: Linked, connect: Connect, emulator: Emulator, deferrable: bool
) -> None:
    emulator.settings.sending_seconds = 0.5
    connect(campaign_url=f"{PAGE}/{{guid}}")
    linked(mail_name="spring")

    url, done = linked(
        MailCampaignSensor, task_id=TASK, mail_name="spring", deferrable=deferrable, poke_interval=0.3, timeout=30
    )

    assert done.returned["sent_count"] == 1
    assert url == f"{PAGE}/{emulator.campaigns()[0]['guid']}"


def test_the_link_is_there_while_the_task_waits(
    linked: Linked, connect: Connect, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    emulator.settings.sending_seconds = 3600
    connect(campaign_url=f"{PAGE}/{{mail_name}}")
    seen = []

    def sleep_interruptibly(operator: MailCreateCampaignOperator, seconds: float) -> None:
        with create_session() as session:
            seen.extend(session.query(XComModel.value).filter(XComModel.key == LINK_KEY, XComModel.value != "").all())
        emulator.clock.advance(3600)
        original(operator, seconds)

    original = MailCreateCampaignOperator.sleep_interruptibly
    monkeypatch.setattr(MailCreateCampaignOperator, "sleep_interruptibly", sleep_interruptibly)
    linked(mail_name="while waiting", wait_for_completion=True, deferrable=False, poke_interval=0.3)

    assert f"{PAGE}/while%20waiting" in str(seen)


def test_a_campaign_that_was_found_to_have_failed_is_linked_to(
    linked: Linked, connect: Connect, emulator: Emulator
) -> None:
    connect(campaign_url=f"{PAGE}/{{mail_name}}")
    emulator.add_campaign("bad", state="failed")

    url, done = linked(mail_name="bad", ignore_differences=["subject", "send_list_names", "sender_mail"])

    assert (url, done.state) == (f"{PAGE}/bad", "failed")


def test_each_mapped_task_has_its_own(run_in_airflow: Run, new_dag: Callable[..., DAG], connect: Connect) -> None:
    connect(campaign_url=f"{PAGE}/{{mail_name}}")
    with new_dag() as dag:
        MailCreateCampaignOperator.partial(
            task_id=TASK,
            sender_mail="news@example.com",
            subject="Hi",
            content="<p>Hi</p>",
            send_list_names=["newsletter"],
        ).expand(mail_name=["one", "two"])
    done = run_in_airflow(dag)

    assert [link(dag, done, index) for index in (0, 1)] == [f"{PAGE}/one", f"{PAGE}/two"]


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 1), reason="dag.test() of 3.0 stores no DAG that the API could read")
def test_what_the_api_says(linked: Linked, connect: Connect) -> None:
    without = linked()[1].result
    connect(campaign_url=f"{PAGE}/{{mail_name}}")
    with_one = linked(mail_name="spring")[1].result

    said = [
        airflow_api()
        .request("GET", f"/dags/{result.dag_id}/dagRuns/{result.run_id}/taskInstances/{TASK}/links")
        .json()["extra_links"]
        for result in (without, with_one)
    ]

    assert said == [{"Campaign": None}, {"Campaign": f"{PAGE}/spring"}]


def test_airflow_knows_the_link() -> None:
    assert get_provider_info()["extra-links"] == [f"{MailCampaignLink.__module__}.{MailCampaignLink.__name__}"]


# --- the template ---


@pytest.mark.parametrize(
    "template",
    [
        "app.example.com/{mail_name}",
        "ftp://app.example.com/{mail_name}",
        "javascript:alert(1)//{mail_name}",
        "https:///{mail_name}",
        "https://{mail_name}.example.com/",
        "https://user:secret@app.example.com/{mail_name}",
        f"{PAGE}/{{name}}",
        f"{PAGE}/{{}}",
        f"{PAGE}/{{mail_name.__class__}}",
        f"{PAGE}/{{mail_name!r}}",
        f"{PAGE}/{{id:>10}}",
        f"{PAGE}/{{mail_name",
        f"{PAGE}/ {{mail_name}}",
    ],
)
def test_what_is_no_template_is_refused_before_anything_is_sent(
    run_in_airflow: Run, connect: Connect, emulator: Emulator, template: str
) -> None:
    with pytest.raises(MailConfigError, match="campaign_url: must be a URL such as"):
        placeholders_of(template)
    if template == f"{PAGE}/{{name}}":
        connect(campaign_url=template)
        done = run_in_airflow(lambda: create(retries=2))
        assert (done.state, done.tries) == ("failed", 1)
        assert "connection 'mail_default': campaign_url: must be a URL such as" in done.log
        assert "secret" not in done.log
        assert emulator.journal.count() == 0


def test_what_is_filled_in() -> None:
    assert campaign_url(f"{PAGE}/{{mail_name}}/{{guid}}/{{id}}", mail_name="ä", guid="g", id=7) == f"{PAGE}/%C3%A4/g/7"
    assert campaign_url(f"{PAGE}/{{guid}}", mail_name="a", guid=None) == ""
    assert campaign_url(PAGE) == PAGE
