"""What the service receives of every operator and sensor, field by field, and that a sandbox keeps all of it harmless.

The bodies are written down from the tables of the specification, not from the request models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mail_emulator import Emulator
from tests.document.examples import snapshot
from tests.document.fact_types import READ
from tests.document.facts import OPERATIONS
from tests.support.dags import RunResult, run_dag
from tests.support.task_runner import run_tasks
from tests.tasks.conftest import Done
from tests.tasks.everything import OPERATORS, arrange, connections, everything
from tests.test_public_names import documented_results

# fmt: off
CAMPAIGNS = "/v5/campaign/mail/get"
TEMPLATES = "/v5/campaign/mail/template/get"
CONTACTS = "/v5/contacts/list/get"
SENDERS = "/v5/verified_senders/get"
LISTS = "/v5/lists/get"
SENDS = "/v5/transactional/mail/sends_customised"

LOOKED_UP = {"pageSize": 100}
"""A look-up reads as few pages as it can; the specification does not give the maximum for all operations."""

MARCH = {"startDate": "2026-03-01", "endDate": "2026-03-02"}
SENT = {"senderMail": "news@example.com", "senderName": "The shop", "replyTo": "answers@example.com",
        "sendDate": "2999-01-01T09:00:00Z", "content": "<p>{{name}}</p>",
        "attachment": {"fileName": "terms.pdf", "fileData": "VGVybXM="}}
LETTER = SENT | {"subject": "Your order", "category": "orders", "campaign": "spring", "trackOpen": 1, "trackClick": 1}
SPRING = SENT | {"mailName": "spring", "subject": "Spring, {{name}}", "sendListNames": ["newsletter"],
                 "repelListNames": ["staff"], "languageCode": "en", "marketName": "Spring sale",
                 "subscriptName": "news", "projectCode": "P1", "editorType": "CLASSIC"}
CELL = "padding:6px 10px;border-bottom:1px solid #d9dee3;text-align:{};vertical-align:top"
MAPPING = [{"columnNum": 0, "propertyName": "email"}, {"columnNum": 1, "propertyName": "name"}]
SHOP = {"contactDataMapping": MAPPING, "updateMode": 2, "listName": "shop", "listDescription": "From the shop"}
CUSTOMERS = {"listName": "customers", "teamName": "Sales", "pageSize": 1000}
NEWS = {"mailName": "don", "subject": "New", "senderMail": "news@example.com", "type": "MailList", "allTeam": True,
        "mailStatus": [2], "pageSize": 100}


def pages(path: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """An empty page ends the reading."""
    return [(path, body), (path, body | {"pageIndex": 2})]


REQUESTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "create_list": [(LISTS, {"search": "friends"} | LOOKED_UP),
                    ("/v5/lists/add", {"listName": "friends", "listDescription": "They asked for it"})],
    "delete_list": [(LISTS, {"search": "old"} | LOOKED_UP), ("/v5/lists/delete", {"listName": "old"})],
    "upsert_contact": [("/v5/contacts/upsert", {
        "name": "Eva", "email": "eva@example.com", "phoneNumber": "+4930123456", "listName": "newsletter"})],
    "delete_contact": [(f"/v5/contacts/{verb}", {"email": "gone@example.com"}) for verb in ("get", "delete", "get")],
    "import_contacts": [("/v5/contacts/imports", SHOP | {
        "contactData": [["eva@example.com", "Eva"], ["max@example.com", ""]]})],
    "import_contacts_from_sql": [("/v5/contacts/imports", SHOP | {"contactData": [["ida@example.com", "Ida"]]})],
    "import_contacts_from_file": [("/v5/contacts/imports", SHOP | {"contactData": [["kim@example.com", "Kim"]]})],
    "create_template": [
        (TEMPLATES, {"templateName": "thanks"} | LOOKED_UP),
        ("/v5/campaign/mail/template/add", {"templateName": "thanks", "templateContent": "<p>Thank you</p>",
                                            "templateSubject": "Thanks", "editorType": "CLASSIC"})],
    "delete_template": [(TEMPLATES, {"templateName": "old"} | LOOKED_UP),
                        ("/v5/campaign/mail/template/delete", {"templateName": "old"})],
    "add_sender": [(SENDERS, {}),
                   ("/v5/verified_senders/add", {"senderEmail": "shop.example.com", "senderType": "2"})],
    "verify_sender": [("/v5/verified_senders/verify", {"fromDomain": "old.example.com", "selector": "mail"})],
    "wait_for_sender": [(SENDERS, {})],
    "delete_sender": [(SENDERS, {}), ("/v5/verified_senders/delete", {"senderEmail": "old.example.com"})],
    "save_webhook": [
        ("/v5/webhook/get", {}),
        ("/v5/webhook/save", {
            "transEvent": {"bounced": True, "opened": False}, "transCallbackUrl": "https://events.example.com/in",
            "transCallbackUrlExtra": [{"sender": "news@example.com", "url": "https://events.example.com/news"}],
            "transCallbackUrlExtraUpdateMode": "replace", "transEnable": True}),
        ("/v5/webhook/get", {})],
    "preflight": [
        (SENDERS, {}),
        *pages(LISTS, {"search": "newsletter"} | LOOKED_UP),
        *pages(LISTS, {"search": "staff"} | LOOKED_UP),
        (LISTS, {"search": "newsletter"} | LOOKED_UP),
        (CONTACTS, {"listName": "newsletter", "pageSize": 1}),
        (LISTS, {"search": "staff"} | LOOKED_UP),
        *pages(CAMPAIGNS, {"mailName": "done", "mailStatus": [2]} | LOOKED_UP),
        (CAMPAIGNS, {"mailName": "spring"} | LOOKED_UP),
        ("/v5/campaign/mail/sends", SPRING | {"sandboxMode": True})],
    "create_campaign": [(CAMPAIGNS, {"mailName": "spring"} | LOOKED_UP),
                        *pages(LISTS, {"search": "newsletter"} | LOOKED_UP),
                        *pages(LISTS, {"search": "staff"} | LOOKED_UP),
                        ("/v5/campaign/mail/sends", SPRING),
                        (CAMPAIGNS, {"mailName": "spring"} | LOOKED_UP)],
    "send_test": [
        (CONTACTS, {"listName": "newsletter", "pageSize": 1}),
        (CAMPAIGNS, {"mailName": "spring (test)"} | LOOKED_UP),
        *pages(LISTS, {"search": "newsletter"} | LOOKED_UP),
        ("/v5/campaign/mail/sends", {name: value for name, value in SPRING.items() if name not in (
            "sendDate", "repelListNames")} | {"mailName": "spring (test)"}),
        (CAMPAIGNS, {"mailName": "spring (test)"} | LOOKED_UP)],
    "cancel_campaign": [(CAMPAIGNS, {"mailName": "scheduled"} | LOOKED_UP),
                        ("/v5/campaign/mail/cancel", {"mailName": "scheduled"})],
    "delete_campaign": [(CAMPAIGNS, {"mailName": "old"} | LOOKED_UP),
                        ("/v5/campaign/mail/delete", {"mailName": "old"})],
    "wait_for_campaign": [(CAMPAIGNS, {"mailName": "done"} | LOOKED_UP)],
    "wait_for_final_stats": [("/v5/campaign/mail/stats/get", MARCH | {"mailName": "done"})],
    "gate": [("/v5/campaign/mail/stats/get", MARCH | {"mailName": "done"})],
    "wait_for_pushes": [],
    "send": [(SENDS, LETTER | {"to": {"email": "ada@example.com", "name": "Ada"}, "uniqueMsgID": "order-1"})],
    "send_batch": [
        (TEMPLATES, {"templateName": "welcome"} | LOOKED_UP),
        (SENDS, LETTER | {"templateName": "welcome", "params": {"name": "you"}, "messageVersions": [
            {"to": [{"email": "ada@example.com", "name": "Ada"}], "cc": [{"email": "cc@example.com"}],
             "bcc": [{"email": "bcc@example.com", "name": "B"}], "subject": "Yours", "content": "<p>Yours</p>",
             "templateName": "welcome", "params": {"name": "Ada"}},
            {"to": [{"email": "bob@example.com"}, {"email": "bill@example.com"}], "cc": [], "bcc": []}]})],
    "send_batch_from_sql": [(SENDS, LETTER | {"messageVersions": [
        {"to": [{"email": "ida@example.com", "name": "Ida"}], "cc": [], "bcc": [], "params": {"name": "Ida"}}]})],
    "send_report": [(SENDS, {name: value for name, value in LETTER.items() if name not in ("attachment", "content")} | {
        "to": {"email": "ida@example.com"},
        "content": '<p>Open:</p><table style="border-collapse:collapse;font:14px/1.4 system-ui,sans-serif"><thead><tr>'
        f'<th scope="col" style="{CELL.format("left")};background:#f3f5f7;font-weight:600">Name</th>'
        f'<th scope="col" style="{CELL.format("right")};background:#f3f5f7;font-weight:600">Orders</th></tr></thead>'
        f'<tbody><tr><td dir="auto" style="{CELL.format("left")}">Ida</td>'
        f'<td dir="auto" style="{CELL.format("right")}">5</td></tr></tbody>'
        "</table>",
        "attachment": {"fileName": "orders.csv", "fileData": "77u/TmFtZSxPcmRlcnMNCklkYSw1DQo="}})],
    "load_campaign_stats": [("/v5/campaign/mail/stats/get", MARCH | {"type": "MailList"})],
    "load_transactional_stats": [("/v5/transactional/mail/stats/get", MARCH)],
    "load_contacts": pages(CONTACTS, CUSTOMERS),
    "load_campaigns": pages(CAMPAIGNS, NEWS),
    "write_contacts": pages(CONTACTS, CUSTOMERS),
    "write_campaigns": pages(CAMPAIGNS, NEWS),
    "write_stats": [("/v5/campaign/mail/stats/get", {"startDate": day, "endDate": day})
                    for day in ("2026-03-01", "2026-03-01", "2026-03-02", "2026-03-02")],
    "drain_events": [],
    "reconcile_events": [("/v5/transactional/mail/stats/get", MARCH)],
}
"""What each task sends."""
# fmt: on

WITHOUT_SERVICE = {"MailCompareCampaignsOperator"}
"""They compare counts (test_staged_send.py), or read files and work in a warehouse (test_stage_and_merge.py)."""

NO_SANDBOX = {"create_template", "delete_template", "save_webhook"}
"""Tasks that write with an operation that has no ``sandboxMode``."""

READS = {operation.path for operation in OPERATIONS if operation.effect == READ}


@dataclass(frozen=True)
class Ran:
    """:param requests: what the service received, by the task that was running."""

    folder: Path
    result: RunResult
    requests: dict[str, list[tuple[str, Any]]]

    def states(self) -> dict[str, str]:
        return {task_id: task.state for (task_id, _), task in self.result.tasks.items()}


def run_everything(
    dag_id: str, folder: Path, emulator: Emulator, runner: Callable[..., RunResult] = run_dag, **extra: Any
) -> Ran:
    begun: list[tuple[str, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in connections(emulator, folder, **extra).items():
            patch.setenv(name, value)
        dag = everything(dag_id, folder, lambda task_id: begun.append((task_id, len(emulator.journal.entries()))))
        result = runner(dag)
    sent = [(entry["operation"], entry["body"]) for entry in emulator.journal.entries()]
    ends = [start for _, start in begun[1:]] + [len(sent)]
    return Ran(folder, result, {name: sent[start:end] for (name, start), end in zip(begun, ends, strict=True)})


@pytest.fixture(scope="module")
def ran(airflow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """All of it for once in earnest."""
    with Emulator() as emulator:
        arrange(emulator)
        yield run_everything("everything", tmp_path_factory.mktemp("everything"), emulator)


def test_every_operator_and_sensor_has_a_task(tmp_path: Path) -> None:
    tasks = everything("looked_at", tmp_path, print).tasks
    assert {type(task).__name__ for task in tasks} == OPERATORS.keys() - WITHOUT_SERVICE
    assert [task.task_id for task in tasks] == list(REQUESTS)


@pytest.mark.parametrize("task_id", REQUESTS)
def test_what_the_service_receives(ran: Ran, task_id: str) -> None:
    assert ran.states()[task_id] == "success"
    requests = ran.requests[task_id]
    if task_id.startswith(("send_batch", "send_report")):
        assert 0 < len(requests[-1][1].pop("uniqueMsgID").encode()) <= 50
    assert requests == REQUESTS[task_id]


def test_results_have_the_keys_that_the_docstrings_name(ran: Ran, tmp_path: Path) -> None:
    documented = documented_results()
    undocumented = {
        task.task_id: ran.result.xcom(task.task_id).keys() - {*documented[type(task).__name__]}
        for task in everything("looked_at", tmp_path, print).tasks
    }
    assert {task_id: keys for task_id, keys in undocumented.items() if keys} == {}


def test_the_task_runner_of_the_tests_ends_alike(ran: Ran, tmp_path: Path) -> None:
    def outcome(ran: Ran) -> str:
        text = json.dumps(ran.result.outcome(), indent=1).replace(str(ran.folder), "FOLDER")
        text = re.sub(r'"deleted_at": "[^"]*"', '"deleted_at": "VARIES"', text)
        return re.sub(r"\b\d{8}t\d{12}_[0-9a-f]{8}\b", "LOAD_ID", text)

    with Emulator() as emulator:
        arrange(emulator)
        other = run_everything("everything", tmp_path, emulator, run_tasks)
    assert outcome(other) == outcome(ran)
    assert other.requests.keys() == ran.requests.keys()


def test_airflow_keeps_nothing_of_people(ran: Ran) -> None:
    """Neither in XCom nor in the rendered fields; the sender's and the reply address are the company's own."""
    kept = json.dumps(list(ran.result.xcoms().values())) + Done(ran.result, "").rendered()
    people = ["eva@", "max@", "ida@", "gone@", "ada@", "bob@", "bill@", "cc@", "kim@", "+4930123456", '"Eva"', '"Ada"']
    assert [text for text in people if text in kept.lower() or text in kept] == []
    assert "newsletter" in kept


def written(requests: dict[str, list[tuple[str, Any]]]) -> dict[str, list[Any]]:
    """The bodies of the operations that change something, by task."""
    bodies = {name: [body for path, body in sent if path not in READS] for name, sent in requests.items()}
    return {name: sent for name, sent in bodies.items() if sent}


def test_in_a_sandbox_nothing_changes(tmp_path: Path) -> None:
    with Emulator() as emulator:
        arrange(emulator)
        emulator.clock.freeze()  # so that nothing changes by itself
        before = snapshot(emulator)
        ran = run_everything("everything_in_a_sandbox", tmp_path, emulator, run_tasks, sandbox=True)
        assert snapshot(emulator) == before
    assert ran.states() == {name: "failed" if name in NO_SANDBOX else "success" for name in REQUESTS}
    assert written(ran.requests).keys() == written(REQUESTS).keys() - NO_SANDBOX
    assert all(body["sandboxMode"] is True for bodies in written(ran.requests).values() for body in bodies)
