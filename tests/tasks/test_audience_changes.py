"""`changes_only=True`: only what changed is sent, and a state that is not trusted is not used.

What holds however runs end is in `tests/machines/test_audience.py`; every database is in
`tests/warehouse/test_audience_state.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.arguments import ChangesOnly, Consent, Rejects
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from mail_emulator import Emulator
from tests.support.changes import post
from tests.support.clock import Clock
from tests.tasks import test_audience
from tests.tasks.conftest import SqlDatabase
from tests.tasks.loading import error_of
from tests.tasks.test_audience import IMPORTS, STOPS, UNAUTHORIZED, Audience, created, done, mailed, requested

DAY = 24 * 3600.0
NAMES = [f"p{number:02}" for number in range(20)]
ALL = " ".join(NAMES)
PHONE = "+4930123456"
PHONES: dict[str, Any] = {"columns": {"email": "email", "name": "phoneNumber"}}
DELETES: dict[str, Any] = {"on_removed": "delete_contact", "max_removed_fraction": 1}

imported = partial(test_audience.imported, changes_only=True)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")


@pytest.fixture
def audience(emulator: Emulator, warehouse: SqlDatabase) -> Audience:
    """One whose state is in a table."""
    return Audience(emulator, changes_only=True, state_conn_id="warehouse")


def emails(emulator: Emulator) -> str:
    return " ".join(sorted(contact["email"].partition("@")[0] for contact in emulator.contacts()))


Story = list[tuple[str, str | None, dict[str, Any]]]
STORIES: dict[str, Story] = {
    "people join, leave and come back": [
        ("ada bob cem eva", "ada bob cem eva", {}),
        ("ada bob cem eva", "", {}),
        ("ada bob cem max", "(eva) max", {}),
        ("bob cem max", "(ada)", {}),
        ("bob cem eva max", "eva", {}),
        ("bob cem eva max", "", {}),
        ("bob cem=C eva max", "cem", {}),
        ("bob cem=D eva max max2", "cem max2", {}),
        ("bob cem=D eva max max2 one two three", "one two three", {}),
        ("bob cem=D eva one two", "(max) (max2) (three)", {}),
        ("bob cem=D eva max one two", "(max2) (three) max", {}),
        ("ada bob cem=D eva max one two", "ada", {}),
        ("bob cem=D eva max max2 one two three", "(ada) max2 three", {}),
    ],
    "a person with several rows, in any spelling": [
        ("ada bob ADA", "ada bob", {}),
        ("ada bob ADA", "", {}),
        ("bob ada", "", {}),
        ("bob Ada", "", {}),
        ("bob Ada=A ADA=B", "ada", {}),
        ("bob ada=B", "", {}),
        ("bob", "(ada)", {}),
        ("bob ADA bob", "ada", {}),
    ],
    "the order of rows does not matter": [
        (ALL, ALL, {"chunk_size": 3}),
        (" ".join(NAMES[::-1]), "", {"chunk_size": 7}),
        (" ".join(NAMES[7:] + NAMES[:7]), "", {}),
        (" ".join(NAMES[::2] + NAMES[1::2]), "", {}),
    ],
    "a list that others use, too": [
        ("ada bob", "ada bob", {"exact_audience": False, "reached": "ada bob max"}),
        ("ada", "", {"exact_audience": False, "reached": "ada bob max"}),
        ("ada bob", "bob", {"exact_audience": False, "reached": "ada bob max"}),
    ],
    "an empty source removes nobody": [("ada bob", "ada bob", {}), ("", "", {}), ("ada bob", "", {})],
    "everybody, when it is due": [
        *(("ada bob", sent, {"full_every": timedelta(days=1.5)}) for sent in ("ada bob", "", "ada bob")),
    ],
    "rejected rows are tried again": [
        ("ada bob", None, {}),
        *[("ada bob eva", "eva", {"refused": "eva", "reached": "ada bob"})] * 2,
        ("ada bob eva", "eva", {}),
    ],
    "everybody may be rejected": [
        *[("ada bob", None, {"refused": "ada bob", "reached": ""})] * 2,
        ("ada bob", None, {}),
    ],
    "a value that is no text for the service": [
        ("ada=\udcff bob", "bob", {"reached": "bob"}),
        ("ada=\udcff bob eva", "eva", {"reached": "bob eva"}),
    ],
    "a member whose new row is invalid": [
        (f"ada={PHONE} bob={PHONE}", None, PHONES),
        (f"ada=none bob={PHONE}", "(ada)", PHONES | {"reached": "bob"}),
        (f"ada={PHONE}7 bob={PHONE}", "ada", PHONES),
    ],
    "people move to another range": [
        ("ada bob|eva max", "ada bob eva max", {}),
        ("ada bob|eva max", "", {}),
        ("ada|bob eva max", None, {}),
        ("ada bob|eva", None, {}),
    ],
    "a range keeps its list while others are sent anew": [(f"ada|eva p{number}", None, {}) for number in range(5)],
    "a person excluded in one range is in another": [
        (f"ada={PHONE}|bob={PHONE} eva={PHONE}", None, PHONES),
        (f"ada={PHONE}|bob=none eva={PHONE}", None, PHONES | {"reached": "ada eva"}),
        (f"ada={PHONE} bob={PHONE}|eva={PHONE}", None, PHONES),
    ],
}  # fmt: skip
"""For each run of an audience its people, whom the import sends, and what else `Audience.run` needs."""


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_only_changes_are_sent(emulator: Emulator, audience: Audience, clock: Clock, story: Story) -> None:
    emulator.add_list("friends", ["max@example.com"])
    for people, sent, others in story:
        audience.run(people, sent, **{"max_reject_fraction": 1} | others)
        clock.sleep(DAY)


def test_a_log_of_runs_and_changes(audience: Audience, warehouse: SqlDatabase) -> None:
    logs: dict[str, Any] = {"log_table": "runs", "max_removed_fraction": 0.5}
    for people in (ALL, " ".join([*NAMES[2:], "p01=M", "eva"])):
        result = audience.load(people, **logs)
    assert [result[name] for name in ("joined", "changed", "left", "read")] == [1, 1, 1, 20]
    with pytest.raises(AirflowFailException):
        audience.load("eva", **logs)
    columns = "state, everybody, reason, size, rows_read, joined_count, changed_count, left_count, requests"
    assert warehouse.query(f"SELECT {columns} FROM runs ORDER BY finished_at, import_id") == [
        ("success", 1, "there is no state yet", 20, 20, 20, 0, 0, 1),
        ("success", 0, None, 20, 20, 1, 1, 1, 2),
        ("stopped", 0, "max_removed_fraction: 19 of 20 people would leave the audience, more than 0.5 of them",
         20, 1, 0, 0, 19, 0),
    ]  # fmt: skip
    counted = "SELECT import_id, operation, COUNT(*) FROM runs_changes GROUP BY import_id, operation ORDER BY 1, 2"
    assert [(run_id[-1], *rest) for run_id, *rest in warehouse.query(counted)] == [
        ("1", "joined", 20), ("2", "changed", 1), ("2", "joined", 1), ("2", "left", 1),
    ]  # fmt: skip


def test_a_log_of_people_who_were_rejected(emulator: Emulator, audience: Audience, warehouse: SqlDatabase) -> None:
    audience.run("ada bob eva", refused="eva", reached="ada bob", log_table="runs", max_reject_fraction=1)
    counted = "SELECT operation, COUNT(*) FROM runs_changes GROUP BY operation ORDER BY operation"
    assert warehouse.query(counted) == [("joined", 2), ("rejected", 1)]


def test_contacts_are_deleted_by_address_and_not_for_moving(emulator: Emulator, audience: Audience) -> None:
    with pytest.raises(AirflowFailException, match="columns: on_removed='delete_contact' needs email"):
        audience.load(f"ada={PHONE}", columns={"name": "phoneNumber"}, **DELETES)
    with pytest.raises(AirflowFailException, match="on_removed: not 'delete_contact' in a mapped task"):
        audience.run("ada|bob", exact_audience=False, **DELETES)
    assert emulator.journal.count(IMPORTS) == 0


@pytest.mark.parametrize("exact", [False, True])
def test_who_left_is_deleted_on_request(emulator: Emulator, audience: Audience, exact: bool) -> None:
    for people in ("ada bob", "ada", "ada bob"):
        audience.run(people, exact_audience=exact, **DELETES)
        assert emails(emulator) == people


def test_a_member_whose_new_row_is_rejected_is_excluded_and_not_deleted(emulator: Emulator, audience: Audience) -> None:
    arguments = PHONES | DELETES | {"max_reject_fraction": 1}
    audience.run(f"ada={PHONE} bob={PHONE}", **arguments)
    audience.run(f"ada=none bob={PHONE}", "(ada)", reached="bob", **arguments)
    assert emails(emulator) == "ada bob"


def test_who_was_deleted_and_comes_back_is_sent(emulator: Emulator, audience: Audience) -> None:
    """Also when the task fails between the deletion and the writing of the state."""
    audience.load("ada bob eva", **DELETES)
    emulator.faults.add("code_before", "contacts/delete", skip=1, **UNAUTHORIZED)
    with pytest.raises(STOPS):
        audience.load("ada", **DELETES)
    audience.run("ada bob eva", **DELETES)


def test_who_left_is_deleted_when_everybody_is_sent(emulator: Emulator, audience: Audience, clock: Clock) -> None:
    """Also by the next try, if the first one fails while it sends."""
    arguments = DELETES | {"full_every": timedelta(days=1)}
    audience.load("ada bob eva", **arguments)
    clock.sleep(2 * DAY)
    for operation in (IMPORTS, "contacts/delete"):
        emulator.faults.add("code_before", operation, **UNAUTHORIZED)
        with pytest.raises(STOPS):
            audience.load("ada", "2", **arguments)
    audience.load("ada", "2", **arguments)
    assert emails(emulator) == "ada"


def test_suppressed_people_leave_and_are_not_deleted(
    emulator: Emulator, audience: Audience, warehouse: SqlDatabase
) -> None:
    warehouse.execute("CREATE TABLE staff (email TEXT)")
    for change, reached in (
        ("DELETE FROM staff", "ada bob"),
        ("INSERT INTO staff VALUES ('BOB@example.com')", "ada"),
        ("DELETE FROM staff", "ada bob"),
    ):
        warehouse.execute(change)
        suppressed = {"suppress_conn_id": "warehouse", "suppress_table": "staff"}
        audience.run("ada bob", reached=reached, **suppressed | DELETES)
        assert emails(emulator) == "ada bob"


def test_people_who_said_no_leave_and_are_not_deleted(emulator: Emulator, audience: Audience) -> None:
    arguments = DELETES | {"columns": {"email": "email"}, "consent": Consent(column="name", no=["stop"])}
    for people, reached in (("ada bob", "ada bob"), ("ada bob=stop", "ada"), ("ada bob", "ada bob"), ("ada", "ada")):
        assert emails(emulator) in ("", "ada bob")
        audience.run(people, reached=reached, **arguments)
    assert emails(emulator) == "ada"


def test_people_whose_rows_are_rejected_are_not_deleted(emulator: Emulator, audience: Audience) -> None:
    for address in ("ada@example.com", "ADA@example.com ", "ada@example.com"):
        rows = [{"email": address}, {"email": "bob@example.com"}]
        audience.load("", contacts=rows, columns={"email": "email"}, max_reject_fraction=1, **DELETES)
        assert emails(emulator) == "ada bob"
    audience.load("bob", columns={"email": "email"}, **DELETES)
    assert emails(emulator) == "bob"


# --- a state that is not trusted: everybody is sent, to a new list ---


MEMBERS = "mail_audiences_members"
STATE = ("mail_audiences", MEMBERS)


@pytest.mark.parametrize(("change", "reason"), [
    ("DROP TABLE mail_audiences", "there is no state yet"),
    (f"DELETE FROM {MEMBERS}", "the state is damaged: parts are missing"),
    (f"DELETE FROM {MEMBERS} WHERE bucket > 30", "the state is damaged: parts are missing"),
    ("UPDATE mail_audiences SET ledger = substr(ledger, 9)", "the state is damaged"),
    (f"UPDATE {MEMBERS} SET part = 1", "the state is damaged: a part is not what"),
    (f"UPDATE {MEMBERS} SET sealed = substr(sealed, 9)", "the state is damaged: a part is not what"),
    (f"UPDATE {MEMBERS} SET sealed = 'nothing'", "the state is damaged"),
    ("another key", "its key is another one"),
    ("nobody is on the list", "has 0 contacts, and the state 3"),
])  # fmt: skip
def test_a_state_that_is_not_trusted(
    emulator: Emulator, audience: Audience, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, change: str, reason: str,
) -> None:  # fmt: skip
    first = audience.load("ada bob eva")
    if change == "another key":
        monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "other")
    elif change == "nobody is on the list":
        emulator.service.store.run("DELETE FROM members")
        emulator.service.store.members.clear_cache()
    else:
        warehouse.execute(change)
    caplog.set_level("INFO")
    assert audience.run("bob eva", "bob eva")["send_list_names"] != first["send_list_names"]
    assert reason in capfd.readouterr().out + caplog.text


@pytest.mark.parametrize("people", ["ada bob", "bob eva", "ada bob eva"])
def test_an_older_state_excludes_nobody_by_mistake(audience: Audience, warehouse: SqlDatabase, people: str) -> None:
    """It is restored from a backup: it does not know who left and came back since."""
    for earlier in ("ada bob eva", "ada bob", "bob"):
        stored = {table: warehouse.query(f"SELECT * FROM {table}") for table in STATE if table in warehouse.tables()}
        audience.load(earlier)
    for table, rows in stored.items():
        warehouse.execute(f"DELETE FROM {table}")
        warehouse.execute(f"INSERT INTO {table}", rows)
    audience.run(people)


@pytest.mark.parametrize("table", ["members", "lists"])
def test_a_shared_list_that_others_empty_or_delete(emulator: Emulator, audience: Audience, table: str) -> None:
    audience.load("ada bob", exact_audience=False)
    for each in {"members", table}:
        emulator.service.store.run(f"DELETE FROM {each}")
    audience.run("ada bob", "ada bob", exact_audience=False)


@pytest.mark.parametrize("exact", [True, False])
def test_another_mapping_or_list_is_another_state(audience: Audience, exact: bool) -> None:
    """The lists of an exact audience are only named after its ``list_name``, which may be a template."""
    arguments: dict[str, Any] = {"exact_audience": exact}
    audience.load("ada", **arguments)
    for name, value in (("list_name", "others"), ("columns", {"email": "email"}), ("null_value", "")):
        arguments[name] = value
        audience.run("ada", "" if exact and name == "list_name" else "ada", **arguments)


@pytest.mark.parametrize(("people", "arguments", "message"), [
    (NAMES[5:], {"max_removed_fraction": 0.2}, "max_removed_fraction: 5 of 20 people would leave the audience"),
    ([*NAMES[2:], "a", "b", "c"], {"max_change_fraction": 0.2}, "max_change_fraction: 5 of 20 people would change"),
    ([*NAMES, "a"], {"max_rows": 20}, "max_rows: there are more than 20 rows"),
])  # fmt: skip
def test_a_brake_stops_before_the_first_request(
    emulator: Emulator, audience: Audience, people: list[str], arguments: dict[str, Any], message: str
) -> None:
    audience.load(ALL)
    with pytest.raises(AirflowFailException, match=message) as error:
        audience.load(" ".join(people), **arguments)
    assert 'trigger the DAG with the parameter "pass_brakes": true' in str(error.value)
    assert requested(emulator) == []
    done(created(done(imported(*people, state_conn_id="warehouse", **arguments), pass_brakes=True)))
    assert mailed(emulator) == sorted(people)


def test_a_dry_run_or_the_sandbox_changes_nothing(
    emulator: Emulator, audience: Audience, warehouse: SqlDatabase
) -> None:
    audience.load("max", sandbox_mode=True)
    assert (emulator.contacts(), warehouse.tables()) == ([], set())
    audience.run("ada bob", "ada bob")
    result = audience.load("bob eva", dry_run=True)
    assert [result[name] for name in ("joined", "changed", "left")] == [1, 0, 1]
    assert emulator.journal.count(IMPORTS) == 0
    audience.run("bob eva", "(ada) eva")


def test_the_state_shows_nobody(audience: Audience, warehouse: SqlDatabase) -> None:
    audience.load("ada")
    assert "ada" not in json.dumps(warehouse.query(f"SELECT * FROM {MEMBERS}"))


def test_without_a_secret_there_is_no_state(audience: Audience, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "")
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")
    assert "[mail] audience_key: there is no secret" in error_of(lambda: audience.load("ada"))


def test_a_file_of_which_only_changes_are_sent(emulator: Emulator, warehouse: SqlDatabase, tmp_path: Path) -> None:
    """Rejected rows keep the line that they have in the file."""
    file, rejects = tmp_path / "people.csv", tmp_path / "rejects.jsonl"
    for text, sent in (("ada,N bob,N cem,N eva,N", "ada bob cem eva"), ("ada,N bob,N cem eva,M", "(cem) eva")):
        rows = text.replace(",", "@example.com,").split()
        file.write_text("\n".join(["email,name", *rows, ""]))
        operator = ObjectStorageToMailContactsOperator(
            task_id="load", path=f"file://{file}", list_name="friends", exact_audience=True, chunk_size=2,
            changes_only=ChangesOnly(sql_conn_id="warehouse"),
            rejects=Rejects(path=str(rejects), max_fraction=1),
        )  # fmt: skip
        result = done(operator, text)
        assert requested(emulator) == sorted(sent.split())
    assert json.loads(rejects.read_text())["row_number"] == 4, "the line of the file"
    assert [result[name] for name in ("read", "rejected", "changed", "left")] == [4, 1, 1, 1]


def test_values_that_json_does_not_give_back(emulator: Emulator, audience: Audience) -> None:
    for day, sent in ((1, ["ada", "bob"]), (1, []), (2, ["ada"])):
        values = {"ada": date(2026, 1, day), "bob": Decimal("1.50")}
        audience.load("", contacts=[{"email": f"{name}@example.com", "name": value} for name, value in values.items()])
        assert requested(emulator) == sent


@pytest.mark.parametrize("before", ["", "ada bob cem"])
def test_a_retry_sends_what_was_not_accepted(emulator: Emulator, audience: Audience, before: str) -> None:
    """Also to a new list. Until the exclusion list is made anew, people who came back are on it."""
    if before:
        audience.run(before)
        audience.run("ada cem", "(bob)")
    emulator.faults.add("code_before", IMPORTS, skip=3, count=None, **UNAUTHORIZED)
    people = "ada=A bob=B cem eva ann ben"
    with pytest.raises(STOPS):
        audience.load(people, "failed", chunk_size=1, max_in_flight=1)
    emulator.faults.clear()
    audience.run(people, "ann ben bob" if before else "eva ann ben")


@pytest.mark.parametrize("status", [-1, 0, 1, 2, 4])
def test_a_campaign_that_is_still_to_be_sent_keeps_its_lists(
    emulator: Emulator, audience: Audience, clock: Clock, status: Any
) -> None:
    """Whatever its status: the specification does not show it."""
    emulator.change_settings(scheduled_status=status)
    lists = audience.load("ada bob")["send_list_names"]
    done(created(audience.load("ada bob"), "later", send_date="2026-12-31T00:00:00Z"))
    assert audience.run("ada=A bob", "ada")["send_list_names"] == lists
    assert audience.run("ada eva", "ada eva")["send_list_names"] != lists
    clock.sleep(DAY)
    audience.run("eva", "(ada)")
    emulator.clock.set("2027-01-01T00:00:00Z")
    assert mailed(emulator, "later") == ["ada", "bob"]


def test_a_campaign_that_is_being_sent_keeps_its_lists(emulator: Emulator, audience: Audience, clock: Clock) -> None:
    """The specification does not show when its people are chosen."""
    emulator.change_settings(sending_seconds=2 * DAY)
    lists = [audience.run("ada bob")["send_list_names"]]
    for people, sent in (("ada=A bob", "ada"), ("ada eva", "ada eva"), ("eva", "(ada)")):
        clock.sleep(DAY if people == "eva" else 3600)
        lists.append(audience.run(people, sent)["send_list_names"])
        if people == "ada eva":
            clock.sleep(2 * DAY)
    assert lists[0] == lists[1] != lists[2] == lists[3]


def test_a_draft_keeps_its_lists(emulator: Emulator, audience: Audience, clock: Clock) -> None:
    """A person may send it later. The run after the next one has lists that it does not name."""
    lists = []
    for people in ("ada bob", "ada eva", "ada max"):
        lists.append(audience.load(people, max_removed_fraction=1)["send_list_names"])
        if people == "ada bob":
            done(created({"send_list_names": lists[0]}, "draft", only_save=True))
        clock.sleep(DAY)
    assert lists[0] != lists[1] == lists[2]
    held = post(emulator, "contacts/list/get", listName=lists[0][0])["contactList"]
    assert [contact["email"] for contact in held] == ["ada@example.com", "bob@example.com"]


def test_two_runs_at_once(audience: Audience, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits for its next try, and the state stays that of the first one."""
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: "running")
    errors = []

    def people() -> Iterator[dict[str, str]]:
        yield {"email": "ada@example.com", "name": "N"}
        with pytest.raises(AirflowException) as error:
            audience.load("eva", "second")
        errors.append(str(error.value))
        yield {"email": "bob@example.com", "name": "N"}

    audience.load("", "first", contacts=people, chunk_size=1)
    assert errors == ["run 'first' of task dag.load is importing this audience now: try again when it has ended"]
    audience.run("eva", "(ada) (bob) eva")


@pytest.mark.parametrize(("task_state", "days", "passes"), [
    ("running", 2, False), ("up_for_retry", 2, False), ("failed", 0, True), (None, 0, False), (None, 2, True),
])  # fmt: skip
def test_a_claim_ends_with_its_run(
    audience: Audience, warehouse: SqlDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch,
    task_state: str | None, days: int, passes: bool,
) -> None:  # fmt: skip
    """Also when Airflow does not know the run any more."""
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: task_state)
    audience.load("ada")
    warehouse.execute("""UPDATE mail_audiences SET claimed_by = '["dag", "load", "killed", -1]'""")
    clock.sleep(days * DAY)
    with nullcontext() if passes else pytest.raises(AirflowException, match="run 'killed' of task"):
        audience.load("ada")


def test_a_run_that_was_believed_to_have_ended(audience: Audience, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes nothing over the state of the run that took the audience from it."""
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: "failed")
    audience.load("ada bob")

    def people() -> Iterator[dict[str, str]]:
        yield {"email": "max@example.com", "name": "N"}
        audience.load("ada eva")

    with pytest.raises(AirflowException, match="another run has changed the state of this audience"):
        audience.load("", contacts=people, chunk_size=1)
    audience.run("ada eva", "")
