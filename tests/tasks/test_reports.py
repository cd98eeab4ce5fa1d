"""`report_path`: a file for people, without addresses, which never fails a task that has done its work."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.io import attach, store
from fsspec.implementations.memory import MemoryFileSystem

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import CAMPAIGN, campaign

HOSTILE = "<script>alert('ada@example.com')</script>"


class Page(HTMLParser):
    """What a reader of the file sees, and what its browser would do."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.html = file.read_text()
        self.found: set[str] = set()
        self.texts: list[str] = []
        self.feed(self.html)
        assert self.found.isdisjoint({"a", "iframe", "img", "link", "object", "script"})
        assert self.found.isdisjoint({"href", "src", "srcset", "onload", "onerror"})
        assert "@example.com" not in self.html.replace("***@example.com", "")
        assert len(self.html) < 10_000

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}

    def handle_data(self, data: str) -> None:
        self.texts += [data.strip()] if data.strip() else []

    def after(self, text: str, count: int = 1) -> list[str]:
        """The texts that follow one."""
        place = self.texts.index(text) + 1
        return self.texts[place : place + count]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "report.html"


def imported(**arguments: Any) -> MailImportContactsOperator:
    rows = [{"email": "ada@example.com"}, {"email": "bob@example.com"}, {"email": "no address"}, {"email": "nor this"}]
    return MailImportContactsOperator(
        **{"task_id": TASK, "contacts": rows, "list_name": HOSTILE, "max_reject_fraction": 0.5} | arguments
    )


def created(**arguments: Any) -> MailCreateCampaignOperator:
    return campaign(**{"wait_for_completion": True, "poke_interval": 60} | arguments)


@pytest.fixture
def newsletter(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 600
    emulator.add_list("newsletter", count=200)


@pytest.mark.parametrize(("most", "state"), [(0.5, "success"), (0.1, "failed")])
def test_the_report_of_an_import(run: Run, emulator: Emulator, file: Path, most: float, state: str) -> None:
    path = f"file://{file.parent}/{{{{ task.task_id }}}}.html"
    rejects = file.parent / "rejected.jsonl"

    done = run(lambda: imported(report_path=path, rejects_path=str(rejects), max_reject_fraction=most))

    assert done.state == state
    page = Page(file.parent / f"{TASK}.html")
    assert "Import of contacts into <script>alert('***@example.com')</script>" in page.texts
    assert "2 of 4 rows were accepted, 2 rejected." in page.texts
    assert page.after("Rejected") == [f"2 (50.00%, at most {most:.2%} are allowed)"]
    assert page.after("Rejected rows are in") == [str(rejects)]
    assert page.after("Rows", 3) == ["email", "is not an email address: it contains a space", "2"]
    assert f"DAG: {done.result.dag_id}" in " ".join(page.texts)
    assert ('class="error"' in page.html) == (state == "failed")


def test_the_report_of_a_preflight_that_fails(run: Run, emulator: Emulator, file: Path, newsletter: None) -> None:
    wrong = {"mail_name": HOSTILE, "sender_mail": "other@example.com", "content": "no way out"}
    done = run(lambda: MailPreflightOperator(task_id=TASK, report_path=str(file), **CAMPAIGN | wrong))

    assert done.state == "failed"
    page = Page(file)
    assert "Preflight of <script>alert('***@example.com')</script>" in page.texts
    assert page.after("Contacts in the target lists") == ["200"]
    assert page.after("Finding", 3) == ["error", "sender", "***@example.com is not a sender of the account"]
    assert page.texts.index("error") < page.texts.index("ok")


def test_the_report_of_a_campaign(run: Run, file: Path, newsletter: None) -> None:
    done = run(lambda: created(report_path=str(file), deferrable=True))

    assert done.state == "success"
    page = Page(file)
    assert "Campaign 'spring' was sent" in page.texts
    assert page.after("Mails sent", 2) == ["200", "100.0%"]
    assert f"Report written to {file}" in done.log


def test_the_report_of_a_sensor(run: Run, tmp_path: Path, newsletter: None) -> None:
    waits = {"mail_name": "spring", "poke_interval": 60}
    files = [tmp_path / "campaign.html", tmp_path / "stats.html"]

    def tasks() -> None:
        sensor = MailCampaignSensor(task_id="campaign", report_path=str(files[0]), **waits)
        settled = {"stable_checks": 2, "min_interval": 60, "report_path": str(files[1])}
        created() >> sensor >> MailStatsSettledSensor(task_id="stats", **settled, **waits)

    assert run(tasks).result.state == "success"
    assert [Page(file).after("Mails sent", 2) for file in files] == [["200", "100.0%"]] * 2


def test_a_report_in_object_storage(run: Run, newsletter: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_STORE_CACHE", {})
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    attach("memory", fs=MemoryFileSystem())
    assert run(lambda: created(report_path="memory://bucket/report.html")).state == "success"
    assert any(b"Campaign" in file.getvalue() for file in MemoryFileSystem.store.values())


@pytest.mark.parametrize("make", [imported, created], ids=["import", "campaign"])
def test_a_report_that_cannot_be_written_fails_nothing(
    run: Run, emulator: Emulator, tmp_path: Path, newsletter: None, make: Callable[..., Any]
) -> None:
    (tmp_path / "file").touch()
    path = f"{tmp_path}/file/report.html"

    done = run(lambda: make(report_path=path))

    assert done.state == "success"
    assert f"The report could not be written to {path}" in done.log
    assert "@example.com" not in done.log


@pytest.mark.parametrize("make", [imported, created], ids=["import", "campaign"])
def test_a_path_that_nothing_can_write_to_sends_nothing(run: Run, emulator: Emulator, make: Callable[..., Any]) -> None:
    done = run(lambda: make(report_path="nosuch://bucket/report.html"))
    assert done.state == "failed"
    assert "report_path: install the provider of that storage" in done.log
    assert emulator.journal.entries() == []


def test_a_campaign_that_is_not_waited_for_has_no_report(run: Run, file: Path, newsletter: None) -> None:
    done = run(lambda: created(wait_for_completion=False, report_path=str(file)))
    assert done.state == "success"
    assert "report_path: no report is written" in done.log
    assert not file.exists()
