"""`exact_audience=True`: campaigns reach exactly the people whom the source returned and the service accepted."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.audience import without_time
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.groups import grouped
from tests.support.tries import Tries
from tests.tasks.conftest import Connect, SqlDatabase
from tests.tasks.loading import error_of

IMPORTS = "contacts/imports"
HOURS = 3600.0
UNAUTHORIZED: dict[str, Any] = {"code": 401, "http_status": 401}
STOPS = (MailError, AirflowFailException)


def imported(*people: str, **arguments: Any) -> MailImportContactsOperator:
    """A task that imports people, such as ``"ada"``, or ``"ada=A"`` with a name of hers."""
    pairs = [person.partition("=") for person in people]
    contacts = [{"email": f"{person}@example.com", "name": name or "N"} for person, _, name in pairs]
    given: dict[str, Any] = {"task_id": "load", "contacts": contacts, "list_name": "friends", "exact_audience": True}
    return MailImportContactsOperator(**given | {"on_empty": "continue"} | grouped(arguments))


def created(audience: Any, mail_name: str | None = "spring", **arguments: Any) -> MailCreateCampaignOperator:
    given = {"task_id": "send", "mail_name": mail_name, "subject": "a", "content": "<p>a</p>"}
    return MailCreateCampaignOperator(audience=audience, **given | {"sender_mail": "news@example.com"} | arguments)


def done(operator: Any, run_id: str = "first", *, map_index: int = -1, **params: Any) -> dict[str, Any]:
    tries = Tries(params=params, map_index=map_index)
    tries.run_id = run_id
    result: dict[str, Any] = tries.run(operator)
    return result


def mailed(service: Emulator, mail_name: str = "spring") -> list[str]:
    return [address.partition("@")[0] for address in service.campaign_recipients(mail_name)]


def requested(emulator: Emulator) -> list[str]:
    """The addresses of import requests since the last look, those of exclusion lists in brackets."""
    people = []
    for entry in emulator.journal.entries(f"/v5/{IMPORTS}"):
        name = "({})" if " excluded " in (entry["body"]["listName"] or "") else "{}"
        if not entry["body"].get("sandboxMode"):  # the question whether the account is at a limit
            people += [name.format(row[0].partition("@")[0]) for row in entry["body"]["contactData"]]
    emulator.journal.clear()
    return sorted(set(people))


class Audience:
    """Runs that import people and send a campaign to them.

    :param arguments: of each import.
    """

    def __init__(self, emulator: Emulator, **arguments: Any) -> None:
        self.emulator, self.arguments = emulator, arguments
        emulator.change_settings(sending_seconds=0)  # it keeps its lists meanwhile
        self.numbers = itertools.count(1)

    def load(self, people: str, run_id: str | None = None, **arguments: Any) -> dict[str, Any]:
        """Import people, in a further run unless one is named."""
        self.emulator.journal.clear()
        operator = imported(*people.split(), **self.arguments | arguments)
        return done(operator, run_id or f"run {next(self.numbers)}")

    def run(
        self, people: str, sent: str | None = None, *, reached: str | None = None, refused: str = "", **arguments: Any
    ) -> dict[str, Any]:
        """Import people, and send a campaign; return the result of the import.

        :param people: with ``|`` between those of mapped tasks.
        :param sent: whom the imports send, in brackets if they exclude them. Default: anybody.
        :param reached: whom the campaign reaches. Default: these people.
        :param refused: whom the service rejects.
        """
        run_id, parts = f"run {next(self.numbers)}", people.split("|")
        self.emulator.change_settings(refused_addresses=tuple(f"{name}@example.com" for name in refused.split()))
        self.emulator.journal.clear()
        results = [
            done(imported(*part.split(), **self.arguments | arguments), run_id, map_index=index if parts[1:] else -1)
            for index, part in enumerate(parts)
        ]
        if sent is not None:
            assert requested(self.emulator) == sorted(sent.split())
        done(created(results if parts[1:] else results[0], run_id), run_id)
        expected = " ".join(parts).split() if reached is None else reached.split()
        assert {name.lower() for name in mailed(self.emulator, run_id)} == {
            name.partition("=")[0].lower() for name in expected
        }
        return results[0]


@pytest.fixture
def audience(emulator: Emulator) -> Audience:
    return Audience(emulator)


def lists(service: Emulator) -> list[str]:
    return sorted(entry["name"] for entry in service.lists())


def test_a_cleared_run_adopts_its_campaign(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists of two tries differ in their time, and are the audience of one run. The secrets may be renewed."""
    for number in range(2):
        monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", f"secret {number}")
        campaign = done(created(done(imported("ada")), mail_name=None))
    assert campaign["adopted"]
    one, two = (done(imported("ada"), run_id)["list_name"] for run_id in ("first", "second"))
    assert without_time(one) != without_time(two)


@pytest.mark.parametrize("status", [-1, 0, 1, 2, 4])
def test_lists_of_earlier_runs_are_deleted(emulator: Emulator, clock: Clock, status: Any) -> None:
    """Not those of a scheduled campaign, whatever its status: the specification does not show it."""
    emulator.change_settings(scheduled_status=status)
    made = []
    for number in range(5):
        result = done(imported("ada"), str(number))
        made += result["send_list_names"]
        if number == 1:
            done(created(result, "scheduled", send_date="2999-01-01T00:00:00Z"), str(number))
        clock.sleep(2 * HOURS)
    done(imported("ada", task_id="other"), "other")
    assert [name in lists(emulator) for name in made] == [False, True, False, True, True]


def test_lists_that_are_young_or_of_others_stay(emulator: Emulator, clock: Clock) -> None:
    emulator.add_list("friends")
    for number in range(4):
        done(imported("ada", keep_lists=1), str(number))
    assert len(lists(emulator)) == 5
    clock.sleep(2 * HOURS)
    emulator.faults.add("http_error_before", "lists/delete", count=None, status=500)
    done(imported("ada", keep_lists=1), "4")
    assert len(lists(emulator)) == 6, "an error does not fail the task: its audience is complete"
    emulator.faults.clear()
    done(imported("ada", keep_lists=1), "5")
    assert len(lists(emulator)) == 3


def test_a_prefix_separates_deployments(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """The name of a list begins with it; what is too long is cut."""
    done(imported("ada", keep_lists=1))
    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", "test")
    clock.sleep(2 * HOURS)
    assert done(imported("ada", keep_lists=1), "second")["list_name"].startswith("test:friends ")
    assert len(lists(emulator)) == 2
    assert len(done(imported("ada", list_name="ü" * 300), "third")["list_name"].encode()) <= 200


@pytest.mark.parametrize(("arguments", "problem"), [
    ({"list_name": None}, "list_name: needed"),
    ({"update_mode": "update_only"}, "update_mode: exact_audience=True needs"),
    ({"suppress_events": "mail_events"}, "suppress: Suppress(sql_conn_id=...) is needed"),
    ({"keep_lists": 0}, "keep_lists: must be"),
    ({"exact_audience": "some"}, "exact_audience: True or False is needed"),
    ({"changes_only": True}, "changes_only: ChangesOnly(sql_conn_id=...) is needed"),
    ({"changes_only": True, "state_conn_id": "a", "limit": 5}, "limit: not with changes_only"),
    ({"changes_only": True, "state_conn_id": "a", "on_removed": "ignore"}, "on_removed='ignore' would leave"),
    ({"changes_only": True, "state_conn_id": "a", "on_removed": "exclude", "exact_audience": False},
     "on_removed='exclude' needs"),
    ({"changes_only": True, "state_conn_id": "a", "on_removed": "delete_contact"}, "brakes: Brakes(max_rem"),
    ({"changes_only": True, "state_conn_id": "a", "max_removed_fraction": 2}, "max_removed_fraction: must be"),
    ({"max_change_fraction": 0.1}, "brakes: max_change_fraction needs changes_only"),
    ({"brakes": 5}, "brakes: Brakes(...) is needed, of airflow_provider_mail.arguments, not 5"),
])  # fmt: skip
def test_arguments_that_do_not_go_together(arguments: dict[str, Any], problem: str) -> None:
    assert problem in error_of(lambda: imported("ada", **{"changes_only": False} | arguments))


@pytest.mark.parametrize(("audience", "problem"), [
    ({"send_list_names": []}, "audience: the import has no list"),
    ({"send_list_names": [], "dry_run": True}, "audience: the import was a dry run"),
    ("friends", "audience: the result of a task"),
    (["friends"], "audience: the whole result of a task"),
])  # fmt: skip
def test_what_is_no_audience(audience: Any, problem: str) -> None:
    assert problem in error_of(lambda: done(created(audience)))


def test_further_lists_are_added(emulator: Emulator) -> None:
    emulator.add_list("more", ["max@example.com", "eva@example.com"])
    emulator.add_list("staff", ["eva@example.com"])
    done(created(done(imported("ada")), send_list_names=["more"], repel_list_names="staff"))
    assert mailed(emulator) == ["ada", "max"]


def test_people_to_leave_out(audience: Audience, crm: SqlDatabase, tmp_path: Path) -> None:
    """Rejected rows keep their numbers when rows before them are left out."""
    crm.execute(
        "CREATE TABLE mail_events (mail_conn_id TEXT, email TEXT, event_code TEXT, unique_msg_id TEXT, "
        "triggered_time TEXT, event_id TEXT)"
    )
    bounces = [
        (f"{name}@example.com", "Bounced", n if name == "cem" else "" if n > 1 else None, f"2024-01-0{n}", f"{name}{n}")
        for n in (1, 2, 3)
        for name in ("bob", "cem")
    ]
    # Whatever the spelling, and without a UniqueMsgID as well.
    bounces[0] = ("Bob@Example.com", *bounces[0][1:])
    events = [
        *bounces, ("ADA@example.com", "Unsubscribed", "1", "2024-01-01", "a"),
        ("CEM@example.com", "Delivered", "4", "2024-01-02", "b"),
        ("dora@example.com", "Opened", "5", "2024-01-01", "c"),
    ]  # fmt: skip
    crm.execute("INSERT INTO mail_events", [("mail_default", *event) for event in events])
    crm.execute("INSERT INTO mail_events", [("mail_shop", "dora@example.com", "SpamReport", "6", "2024-01-01", "d")])
    crm.execute("CREATE TABLE staff (email TEXT)")
    crm.execute("INSERT INTO staff", [[" Eva@EXAMPLE.com. "]])
    staff = "SELECT email FROM staff"
    for arguments, reached in (
        ({"suppress_events": "mail_events"}, "cem dora eva"),
        ({"suppress_table": "staff"}, "ada bob cem dora"),
        ({"suppress_sql": staff}, "ada bob cem dora"),
        ({"suppress_events": "mail_events", "suppress_sql": staff}, "cem dora"),
        ({"suppress_events": "mail_events", "suppress_opted_in": _opted_in("2024-01-02")}, "ada bob cem dora eva"),
        ({"suppress_events": "mail_events", "suppress_opted_in": _opted_in("2024-01-01")}, "bob cem dora eva"),
    ):
        given = {"suppress_conn_id": "crm", "max_removed_fraction": 1} | arguments
        result = audience.run("ada bob cem dora eva", reached, reached=reached, **given)
        assert [result["read"], result["suppressed"]] == [5, 5 - len(reached.split())]
    rejects: dict[str, Any] = {"rejects_path": str(tmp_path / "rejects.jsonl"), "max_reject_fraction": 1}
    rejects["max_removed_fraction"] = 1
    people = {"suppress_conn_id": "crm", "suppress_table": "staff", "refused": "max", "reached": "ada"}
    audience.run("eva ada max", **people | rejects)
    assert '"row_number": 3' in (tmp_path / "rejects.jsonl").read_text()


@pytest.mark.parametrize("value", [
    " ADA@example.com.", "<ada@example.com>", '"Ada Lovelace" <Ada@Example.com>', "mailto:ada@example.com",
    "max@example.com, ada@example.com; eva@example.com", "'ada@example.com'", "\ufeffada@example.com\u200b",
    "mailto:ada@example.com?subject=no", "max@example.com|ada@example.com/eva@example.com",
    "\u202aada@ex\xadample.com\u202c", "{ada@example.com}",
    "\u201cada@example.com\u201d, please!", "=ada@example.com", "O'Ada: *ada@example.com*",
])  # fmt: skip
def test_people_to_leave_out_in_any_form(audience: Audience, crm: SqlDatabase, value: str) -> None:
    crm.execute("CREATE TABLE no_mail (email TEXT)")
    crm.execute("INSERT INTO no_mail", [(value,), (None,), ("",)])
    audience.run("ada bob", reached="bob", suppress_conn_id="crm", suppress_table="no_mail")


def _opted_in(ada: str) -> str:
    return f"SELECT 'Ada@example.com', '{ada}' UNION ALL SELECT 'bob@example.com', '2024-01-02 00:00:01+00:00'"


def test_events_of_another_connection_and_times_that_are_none(
    audience: Audience, crm: SqlDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    crm.execute(
        "CREATE TABLE mail_events (mail_conn_id TEXT, email TEXT, event_code TEXT, unique_msg_id TEXT, "
        "triggered_time TEXT, event_id TEXT)"
    )
    arguments = {"suppress_conn_id": "crm", "suppress_events": "mail_events"}
    audience.run("ada", "ada", reached="ada", **arguments)
    assert "has no event" not in caplog.text
    crm.execute("INSERT INTO mail_events", [("shop", "ada@example.com", "Unsubscribed", "1", "2024-01-01", "a")])
    audience.run("ada", "ada", reached="ada", **arguments)
    assert "has no event of connection 'mail_default', only of shop" in caplog.text
    wrong = {"suppress_opted_in": "SELECT 'ada@example.com', 'yes'"}
    message = error_of(lambda: audience.load("ada", **arguments, **wrong))
    assert "opted_in_sql: the first column must have addresses and the second one times" in message


@pytest.mark.parametrize(("query", "arguments", "problem"), [
    ("SELECT 7", {}, "none of the 1 values of the first column is an address"),
    ("SELECT no_column", {}, "`sql` on connection 'crm'"),
    ("SELECT 'ada@example.com'", {"columns": {"name": "phoneNumber"}}, "suppress: people are left out by"),
])  # fmt: skip
def test_a_suppression_that_would_leave_out_nobody(
    emulator: Emulator, audience: Audience, crm: SqlDatabase, query: str, arguments: dict[str, Any], problem: str
) -> None:
    """Ids instead of addresses, a query that fails, and rows without an address."""
    given = {"suppress_conn_id": "crm", "suppress_sql": query}
    assert problem in error_of(lambda: audience.load("ada=+4930123456", **given, **arguments))
    assert emulator.journal.count(IMPORTS) == 0
    audience.run("ada bob", reached="ada", **given | {"suppress_sql": "SELECT 'n/a' UNION SELECT 'BOB@example.com'"})


def test_limits_and_a_dry_run(emulator: Emulator) -> None:
    with pytest.raises(AirflowFailException, match=r"max_rows: there are more than 2 rows\. Nothing was sent"):
        done(imported("ada", "bob", "eva", max_rows=2))
    assert emulator.journal.count(IMPORTS) == 0
    assert done(imported("ada", "bob", "eva", max_rows=2), pass_brakes=True)["accepted"] == 3
    assert done(imported("ada", "bob", "eva", limit=2))["accepted"] == 2
    emulator.journal.clear()
    result = done(imported("ada", "bob", "!", dry_run=True, max_reject_fraction=1), "second")
    assert [result[name] for name in ("read", "rejected", "accepted", "send_list_names")] == [3, 0, 0, []]
    assert emulator.journal.counts() == {}


def test_the_main_job_in_the_sandbox(emulator: Emulator, connect: Connect) -> None:
    """The lists are not made, and the service checks the rest of the campaign."""
    connect(sandbox=True)
    result = done(imported("ada"))
    assert done(created(result))["sandbox"]
    assert [emulator.contacts(), emulator.lists(), emulator.campaigns()] == [[], [], []]
    with pytest.raises(STOPS, match="not verified"):
        done(created(result, sender_mail="other@example.com"))
