"""`changes_only=True`: only what changed is sent, and a state that is not trusted is not used.

What holds however runs end is in `tests/machines/test_audience.py`; every database is in
`tests/warehouse/test_audience_state.py`.
"""

from __future__ import annotations

import json
import shutil
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail.arguments import ChangesOnly, Rejects
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from mail_emulator import Emulator
from tests.machines.audience_parts import Matcher, Members, Part, parts_of
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def in_folder(emulator: Emulator, folder: Path) -> Audience:
    """One whose state is in a folder."""
    return Audience(emulator, changes_only=True, state_path=f"file://{folder}")


@pytest.fixture(params=["audience", "in_folder"])
def any_audience(request: pytest.FixtureRequest) -> Audience:
    made: Audience = request.getfixturevalue(request.param)
    return made


def emails(emulator: Emulator) -> str:
    return " ".join(sorted(contact["email"].partition("@")[0] for contact in emulator.contacts()))


Story = list[tuple[str, str | None, dict[str, Any]]]
STORIES: dict[str, Story] = {
    "people join, leave and come back": [
        ("ada bob cem eva", "ada bob cem eva", {}),
        ("ada bob cem eva", "", {}),
        ("ada bob cem max", "(eva) max", {}),
        ("bob cem max", "(ada)", {}),
        ("bob cem eva max", "(ada) eva", {}),
        ("bob cem eva max", "", {}),
        ("bob cem=C eva max max2", "cem max2", {}),
    ],
    "a person with several rows, in any spelling": [
        ("ada bob ADA", "ADA ada bob", {}),
        ("ada bob ADA", "", {}),
        ("bob ada", "", {}),
        ("bob Ada", "Ada", {}),
        ("bob", "(Ada)", {}),
        ("bob ADA bob", None, {}),
    ],
    "the order of rows does not matter": [
        (ALL, ALL, {"chunk_size": 3}),
        (" ".join(NAMES[::-1]), "", {"chunk_size": 7}),
        (" ".join(NAMES[7:] + NAMES[:7]), "", {}),
        (" ".join(NAMES[::2] + NAMES[1::2]), "", {}),
    ],
    "a list that others use, too": [
        ("ada bob", "ada bob", {"audience": "add", "reached": "ada bob max"}),
        ("ada", "", {"audience": "add", "reached": "ada bob max"}),
        ("ada bob", "bob", {"audience": "add", "reached": "ada bob max"}),
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
def test_only_changes_are_sent(emulator: Emulator, any_audience: Audience, clock: Clock, story: Story) -> None:
    emulator.add_list("friends", ["max@example.com"])
    for people, sent, others in story:
        any_audience.run(people, sent, **{"max_reject_fraction": 1} | others)
        clock.sleep(DAY)


def test_a_log_of_runs_and_changes(audience: Audience, warehouse: SqlDatabase) -> None:
    logs: dict[str, Any] = {"log_table": "runs", "max_removed_fraction": 0.5}
    for people in (ALL, " ".join([*NAMES[2:], "p01=M", "eva"])):
        result = audience.load(people, **logs)
    assert [result[name] for name in ("joined", "changed", "left", "read")] == [1, 1, 1, 20]
    with pytest.raises(AirflowFailException):
        audience.load("eva", **logs)
    columns = "state, everybody, reason, size, rows_read, joined, changed, left_count, requests"
    assert warehouse.query(f"SELECT {columns} FROM runs ORDER BY finished_at, import_id") == [
        ("success", 1, "there is no state yet", 20, 20, 20, 0, 0, 1),
        ("success", 0, None, 20, 20, 1, 1, 1, 2),
        ("stopped", 0, "max_removed_fraction: 19 of 20 people would leave the audience, more than 0.5 of them",
         0, 1, 0, 0, 19, 0),
    ]  # fmt: skip
    counted = "SELECT import_id, operation, COUNT(*) FROM runs_changes GROUP BY import_id, operation ORDER BY 1, 2"
    assert [(run_id[-1], *rest) for run_id, *rest in warehouse.query(counted)] == [
        ("1", "joined", 20), ("2", "changed", 1), ("2", "joined", 1), ("2", "left", 1),
    ]  # fmt: skip


def test_a_log_of_people_who_were_rejected(emulator: Emulator, audience: Audience, warehouse: SqlDatabase) -> None:
    audience.run("ada bob eva", refused="eva", reached="ada bob", log_table="runs", max_reject_fraction=1)
    counted = "SELECT operation, COUNT(*) FROM runs_changes GROUP BY operation ORDER BY operation"
    assert warehouse.query(counted) == [("joined", 2), ("rejected", 1)]


def test_a_state_of_many_changes_is_written_anew(
    emulator: Emulator, audience: Audience, warehouse: SqlDatabase
) -> None:
    """So it stays small, and nothing is forgotten: who left is still excluded."""
    parts = []
    for number in range(12):
        values = {name: str((number + place) // 4) for place, name in enumerate(NAMES[number >= 3 :])}
        audience.run(" ".join(f"{name}={value}" for name, value in values.items()))
        held = {contact["email"].partition("@")[0]: contact["name"] for contact in emulator.contacts()}
        assert values.items() <= held.items()
        parts.append(warehouse.query("SELECT COUNT(*), SUM(row_count) FROM mail_audiences_members")[0])
    assert min(count for count, _ in parts[4:]) < 4
    assert max(rows for _, rows in parts) < 60


def test_contacts_are_deleted_by_address_and_not_for_moving(emulator: Emulator, audience: Audience) -> None:
    with pytest.raises(AirflowFailException, match="columns: on_removed='delete_contact' needs email"):
        audience.load(f"ada={PHONE}", columns={"name": "phoneNumber"}, **DELETES)
    with pytest.raises(AirflowFailException, match="on_removed: not 'delete_contact' in a mapped task"):
        audience.run("ada|bob", audience="add", **DELETES)
    assert emulator.journal.count(IMPORTS) == 0


@pytest.mark.parametrize("mode", ["add", "exact"])
def test_who_left_is_deleted_on_request(emulator: Emulator, any_audience: Audience, mode: str) -> None:
    for people in ("ada bob", "ada", "ada bob"):
        any_audience.run(people, audience=mode, **DELETES)
        assert emails(emulator) == people


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


# --- a state that is not trusted: everybody is sent, to a new list ---


MEMBERS = "mail_audiences_members"


@pytest.mark.parametrize(("change", "reason"), [
    ("DROP TABLE mail_audiences", "there is no state yet"),
    (f"DELETE FROM {MEMBERS}", "the state is damaged: a part is missing"),
    ("UPDATE mail_audiences SET members = 4", "the state is damaged: it has 3 of 4 rows"),
    (f"UPDATE {MEMBERS} SET part = 1", "the state is damaged: a part is missing"),
    (f"UPDATE {MEMBERS} SET sealed = substr(sealed, 9)", "the state is damaged: a part is not what"),
    (f"UPDATE {MEMBERS} SET membership = 'left'", "the state is damaged: a part is not what"),
    (f"UPDATE {MEMBERS} SET sealed = 'nothing'", "the state is damaged"),
    ("another key", "or key"),
    ("nobody is on the list", "is on list"),
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
    else:
        warehouse.execute(change)
    caplog.set_level("INFO")
    assert audience.run("bob eva", "bob eva")["send_list_names"] != first["send_list_names"]
    assert reason in capfd.readouterr().out + caplog.text


@pytest.mark.parametrize("name", ["*.jsonl", "audience.json"])
def test_files_that_are_damaged(in_folder: Audience, folder: Path, name: str) -> None:
    """Everybody is sent, and the state is whole again."""
    in_folder.load("ada bob")
    (file,) = folder.glob(f"*/{name}")
    file.write_bytes(file.read_bytes()[:-9])
    for sent in ("ada bob", ""):
        in_folder.run("ada bob", sent)
    assert json.loads((file.parent / "audience.json").read_text())["audience"] == "dag/load"


def test_files_are_in_the_order_of_runs(emulator: Emulator, in_folder: Audience, clock: Clock) -> None:
    """Also when the clock of a worker is behind that of the one before."""
    for name, sent in (("N", "ada"), ("M", "ada"), ("N", "ada"), ("N", "")):
        in_folder.run(f"ada={name}", sent)
        assert [contact["name"] for contact in emulator.contacts()] == [name]
        clock.set_wall_clock(-30)


@pytest.mark.parametrize("people", ["ada bob", "bob eva", "ada bob eva"])
def test_an_older_state_excludes_nobody_by_mistake(in_folder: Audience, folder: Path, people: str) -> None:
    """It is restored from a backup: it does not know who left and came back since."""
    for earlier in ("ada bob eva", "ada bob", "bob"):
        backup = folder.with_name(earlier)
        if folder.exists():
            shutil.copytree(folder, backup)
        in_folder.load(earlier)
    shutil.rmtree(folder)
    shutil.move(backup, folder)
    in_folder.run(people)


@pytest.mark.parametrize("table", ["members", "lists"])
def test_a_shared_list_that_others_empty_or_delete(emulator: Emulator, audience: Audience, table: str) -> None:
    audience.load("ada bob", audience="add")
    for each in {"members", table}:
        emulator.service.store.run(f"DELETE FROM {each}")
    audience.run("ada bob", "ada bob", audience="add")


def test_another_mapping_or_list_is_another_state(audience: Audience) -> None:
    audience.load("ada")
    arguments: dict[str, Any] = {}
    for name, value in (("list_name", "others"), ("columns", {"email": "email"}), ("null_value", "")):
        arguments[name] = value
        audience.run("ada", "ada", **arguments)


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


def test_the_state_shows_nobody(audience: Audience, in_folder: Audience, warehouse: SqlDatabase, folder: Path) -> None:
    audience.load("ada")
    in_folder.load("ada")
    assert "ada" not in json.dumps(warehouse.query(f"SELECT * FROM {MEMBERS}"))
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert [b"ada" in content for content in files] == [False, False]


def test_without_a_secret_there_is_no_state(audience: Audience, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "")
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")
    assert "set [mail] audience_key" in error_of(lambda: audience.load("ada"))


def test_a_file_of_which_only_changes_are_sent(emulator: Emulator, tmp_path: Path) -> None:
    """Rejected rows keep the line that they have in the file."""
    file, rejects = tmp_path / "people.csv", tmp_path / "rejects.jsonl"
    for text, sent in (("ada,N bob,N cem,N eva,N", "ada bob cem eva"), ("ada,N bob,N cem eva,M", "(cem) eva")):
        rows = text.replace(",", "@example.com,").split()
        file.write_text("\n".join(["email,name", *rows, ""]))
        operator = ObjectStorageToMailContactsOperator(
            task_id="load", path=f"file://{file}", list_name="friends", audience="exact", chunk_size=2,
            changes_only=ChangesOnly(path=f"file://{tmp_path}/state"),
            rejects=Rejects(path=str(rejects), max_fraction=1),
        )  # fmt: skip
        result = done(operator, text)
        assert requested(emulator) == sorted(sent.split())
    assert json.loads(rejects.read_text())["row_number"] == 4, "the line of the file"
    assert [result[name] for name in ("read", "rejected", "changed", "left")] == [4, 1, 1, 1]


def test_a_retry_continues_on_the_new_list(emulator: Emulator, any_audience: Audience) -> None:
    """After an error, what is known to be accepted is not sent again, and what is in doubt is."""
    one: dict[str, Any] = {"chunk_size": 1, "max_in_flight": 1}
    emulator.faults.add("code_before", IMPORTS, skip=3, **UNAUTHORIZED)
    with pytest.raises(STOPS):
        any_audience.load(ALL, "1", **one)
    result = any_audience.load(" ".join(NAMES[1:]), "1", **one)
    again = requested(emulator)
    assert "(p00)" in again
    assert len(again) < len(NAMES)
    done(created(result))
    assert mailed(emulator) == NAMES[1:]


def test_a_retry_sends_the_changes_that_are_in_doubt(emulator: Emulator, any_audience: Audience) -> None:
    """Those that were accepted before an error are not sent again; people who came back are."""
    one: dict[str, Any] = {"chunk_size": 1, "max_in_flight": 1}
    for run, people in enumerate((NAMES[1:], NAMES[2:])):
        any_audience.load(" ".join(people), f"{run}")
    emulator.faults.add("code_before", IMPORTS, skip=3, **UNAUTHORIZED)
    with pytest.raises(STOPS):
        any_audience.load(ALL + " ann ben cem dan", "2", **one)
    emulator.journal.clear()
    result = any_audience.load(ALL + " ann ben cem dan", "2", **one)
    assert 0 < emulator.journal.count(IMPORTS) < 6
    done(created(result))
    assert mailed(emulator) == sorted([*NAMES, "ann", "ben", "cem", "dan"])


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


def test_a_run_that_was_believed_to_have_ended(any_audience: Audience, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes nothing over the state of the run that took the audience from it."""
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: "failed")
    any_audience.load("ada bob")

    def people() -> Iterator[dict[str, str]]:
        yield {"email": "max@example.com", "name": "N"}
        any_audience.load("ada eva")

    with pytest.raises(AirflowException, match="another run has changed the state of this audience"):
        any_audience.load("", contacts=people, chunk_size=1)
    any_audience.run("ada eva", "")


# --- the comparison with the lines of a state: whatever the order, each line is either found or reported ---

BLOCKS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 1500)), max_size=5)
"""Blocks of consecutive people: the first one, and how many."""


def lines_of(people: list[int]) -> bytes:
    return b"".join(b'["p%d@example.com","%s"]\n' % (person, b"x" * (person % 50)) for person in people)


def found(state: list[int], void: set[int], source: list[int], size: int) -> tuple[Counter[bytes], int]:
    """Compare; return the lines of the source that were found, and how many lines of the state were reported.

    :param void: the positions of lines of the state that no longer count.
    """
    members = Members()
    for part in parts_of("member", lines_of(state), array("I", [0] * len(state))):
        members.add(part)
    places = [(number, place) for number in range(len(members)) for place in range(members.rows(number))]
    voids: dict[int, list[int]] = {}
    for number, place in (places[position] for position in sorted(void) if position < len(places)):
        voids.setdefault(number, []).append(place)
    if voids:
        members.add(Part("member", 0, json.dumps(voids), b""))
    reported, matched = Counter[bytes](), Counter[bytes]()
    matcher = Matcher(members, lambda number, place, line: reported.update([line]))
    for start in range(0, len(source), size):
        lines = lines_of(source[start : start + size]).splitlines(keepends=True)
        missed = set(matcher.unmatched(lines))
        matched.update(line for place, line in enumerate(lines) if place not in missed)
    matcher.rest()
    members.close()
    counted = [person for position, person in enumerate(state) if position not in void]
    assert matched + reported == Counter(lines_of(counted).splitlines(keepends=True))
    return matched, reported.total()


@settings(max_examples=40, deadline=None)
@given(state=BLOCKS, source=BLOCKS, void=st.sets(st.integers(0, 4000), max_size=30), size=st.sampled_from([1, 7, 500]))
def test_every_line_is_found_or_reported(
    state: list[tuple[int, int]], source: list[tuple[int, int]], void: set[int], size: int
) -> None:
    before, now = ([n for first, count in blocks for n in range(first, first + count)] for blocks in (state, source))
    found(before, void, now, size)


@pytest.mark.parametrize(("source", "most"), [
    ([*range(4500, 9000), *range(4500)], 300),
    ([*range(20000, 22000), *range(9000)], 0),
    ([person for person in range(9000) if person % 100], 90),
    ([*range(6000, 9000), *range(3000, 6000), *range(3000)], 800),
])  # fmt: skip
def test_blocks_are_found(source: list[int], most: int) -> None:
    """Otherwise the comparison would be right, but slow."""
    assert found(list(range(9000)), set(), source, 500)[1] <= most
