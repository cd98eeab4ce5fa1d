"""`changes_only=True`: only what changed is sent, and a state that is not trusted is not used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.tasks.conftest import SqlDatabase
from tests.tasks.loading import error_of
from tests.tasks.test_audience import created, done, mailed

IMPORTS, LISTS = "contacts/imports", "contacts/list/get"
NAMES = [f"p{number:02}" for number in range(20)]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")


@pytest.fixture(params=["table", "folder"])
def state(request: pytest.FixtureRequest, warehouse: SqlDatabase, tmp_path: Path) -> dict[str, str]:
    """Where the state is, as arguments."""
    return {"state_conn_id": "warehouse"} if request.param == "table" else {"state_path": f"file://{tmp_path}/state"}


def imported(*names: str, **arguments: Any) -> MailImportContactsOperator:
    given = {
        "task_id": "load",
        "contacts": [{"email": f"{name}@example.com", "name": "N"} for name in names],
        "list_name": "friends",
        "audience": "exact",
        "changes_only": True,
        "on_empty": "continue",
    }
    return MailImportContactsOperator(**given | arguments)


def sent(emulator: Emulator) -> list[str]:
    """The addresses of import requests since the last look, those of exclusion lists in brackets."""
    people = []
    for entry in emulator.journal.entries(f"/v5/{IMPORTS}"):
        name = "({})" if " excluded " in (entry["body"]["listName"] or "") else "{}"
        if entry["body"].get("sandboxMode"):
            continue  # The question whether the account is at a limit.
        people += [name.format(row[0].partition("@")[0]) for row in entry["body"]["contactData"]]
    emulator.journal.clear()
    return sorted(people)


def test_only_changes_are_sent(emulator: Emulator, state: dict[str, str]) -> None:
    runs: list[tuple[list[str], list[str]]] = [
        (["ada", "bob", "cem", "eva"], ["ada", "bob", "cem", "eva"]),
        (["ada", "bob", "cem", "eva"], []),
        (["ada", "bob", "cem", "max"], ["(eva)", "max"]),
        (["bob", "cem", "max"], ["(ada)"]),
        (["bob", "cem", "eva", "max"], ["(ada)", "eva"]),
        (["bob", "cem", "eva", "max"], []),
    ]
    for number, (people, expected) in enumerate(runs):
        result = done(imported(*people, **state), str(number))
        assert sent(emulator) == expected
        assert result["size"] == len(people)
        done(created(result, str(number)), str(number))
        assert mailed(emulator, str(number)) == people
    assert len({contact["name"] for contact in emulator.contacts()}) == 1, "an exclusion resets no name"


def test_a_change_is_sent_and_counted(emulator: Emulator, state: dict[str, str]) -> None:
    done(imported("ada", "bob", **state))
    sent(emulator)
    rows = [{"email": "ada@example.com", "name": "A"}, {"email": "bob@example.com", "name": "N"}]
    result = done(imported(contacts=[*rows, {"email": "eva@example.com", "name": "N"}], **state), "second")
    assert sent(emulator) == ["ada", "eva"]
    assert [result[name] for name in ("joined", "changed", "left", "read")] == [1, 1, 0, 3]


def test_a_person_with_several_rows(emulator: Emulator, state: dict[str, str]) -> None:
    """A person who has a row left has not left; a person is the same in any spelling."""
    runs: list[tuple[list[str], list[str]]] = [
        (["ada", "bob", "ADA"], ["ADA", "ada", "bob"]),
        (["ada", "bob", "ADA"], []),
        (["bob", "ada"], []),
        (["bob", "Ada"], ["Ada"]),
        (["bob"], ["(Ada)"]),
        (["bob", "ADA", "bob"], ["(Ada)", "ADA", "bob"]),
    ]
    for number, (people, expected) in enumerate(runs):
        result = done(imported(*people, **state), str(number))
        if expected != ["(Ada)", "ADA", "bob"]:
            assert sent(emulator) == expected
        done(created(result, str(number)), str(number))
        assert {name.lower() for name in mailed(emulator, str(number))} == {name.lower() for name in people}
        sent(emulator)


def test_the_order_of_rows_does_not_matter(emulator: Emulator, state: dict[str, str]) -> None:
    done(imported(*NAMES, chunk_size=3, **state), "1")
    sent(emulator)
    for number, people in enumerate((NAMES[::-1], NAMES[7:] + NAMES[:7], NAMES[::2] + NAMES[1::2])):
        result = done(imported(*people, chunk_size=7, **state), f"again {number}")
        assert [result[name] for name in ("joined", "changed", "left", "size")] == [0, 0, 0, 20]
    assert sent(emulator) == []


def test_a_state_of_many_changes_is_written_anew(emulator: Emulator, warehouse: SqlDatabase) -> None:
    """So it stays small, and nothing is forgotten: who left is still excluded."""
    parts = []
    for number in range(12):
        values = {name: str((number + place) // 4) for place, name in enumerate(NAMES[number >= 3 :])}
        rows = [{"email": f"{name}@example.com", "name": value} for name, value in values.items()]
        result = done(imported(contacts=rows, state_conn_id="warehouse"), str(number))
        done(created(result, str(number)), str(number))
        assert mailed(emulator, str(number)) == sorted(values)
        held = {contact["email"]: contact["name"] for contact in emulator.contacts()}
        assert {row["email"]: row["name"] for row in rows}.items() <= held.items()
        parts.append(warehouse.query("SELECT COUNT(*), SUM(row_count) FROM mail_audiences_members")[0])
    assert min(count for count, _ in parts[4:]) < 4
    assert max(rows for _, rows in parts) < 60


def test_an_audience_of_a_shared_list(emulator: Emulator, state: dict[str, str]) -> None:
    """Nobody is excluded from it, and who comes back is sent again."""
    emulator.add_list("friends", ["max@example.com"])
    for number, (people, expected) in enumerate(
        [(["ada", "bob"], ["ada", "bob"]), (["ada"], []), (["ada", "bob"], ["bob"])]
    ):
        result = done(imported(*people, audience="add", **state), str(number))
        assert sent(emulator) == expected
    assert [result["send_list_names"], result["repel_list_names"]] == [["friends"], []]


@pytest.mark.parametrize("audience", ["add", "exact"])
def test_who_left_is_deleted_on_request(emulator: Emulator, state: dict[str, str], audience: str) -> None:
    arguments = state | {"audience": audience, "on_removed": "delete_contact", "max_removed_fraction": 1}
    for number, people in enumerate((["ada", "bob"], ["ada"], ["ada", "bob"])):
        result = done(imported(*people, **arguments), str(number))
        assert sorted(contact["email"] for contact in emulator.contacts()) == [f"{one}@example.com" for one in people]
    done(created(result))
    assert mailed(emulator) == ["ada", "bob"]


def test_who_was_deleted_and_comes_back_is_sent(emulator: Emulator, state: dict[str, str]) -> None:
    """Also when the task fails between the deletion and the writing of the state."""
    arguments = state | {"on_removed": "delete_contact", "max_removed_fraction": 1}
    done(imported("ada", "bob", "eva", **arguments), "1")
    emulator.faults.add("code_before", "contacts/delete", skip=1, code=401, http_status=401)
    with pytest.raises((MailError, AirflowFailException)):
        done(imported("ada", **arguments), "2")
    done(created(done(imported("ada", "bob", "eva", **arguments), "3")))
    assert mailed(emulator) == ["ada", "bob", "eva"]


def test_who_left_is_deleted_when_everybody_is_sent(emulator: Emulator, state: dict[str, str], clock: Clock) -> None:
    """Also by the next try, if the first one fails while it sends."""
    arguments = state | {"on_removed": "delete_contact", "max_removed_fraction": 1, "full_every": timedelta(days=1)}
    done(imported("ada", "bob", "eva", **arguments), "1")
    clock.sleep(2 * 24 * 3600)
    for operation in (IMPORTS, "contacts/delete"):
        emulator.faults.add("code_before", operation, code=401, http_status=401)
        with pytest.raises((MailError, AirflowFailException)):
            done(imported("ada", **arguments), "2")
    done(imported("ada", **arguments), "2")
    assert [contact["email"] for contact in emulator.contacts()] == ["ada@example.com"]


def test_nobody_is_deleted_for_moving_to_another_range(emulator: Emulator, state: dict[str, str]) -> None:
    arguments = state | {"audience": "add", "on_removed": "delete_contact", "max_removed_fraction": 1}
    with pytest.raises(AirflowFailException, match="on_removed: not 'delete_contact' in a mapped task"):
        done(imported("ada", **arguments), map_index=0)


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_a_shared_list_that_others_delete(emulator: Emulator, state: dict[str, str], how: str) -> None:
    for number in ("1", "2"):
        sent(emulator)
        done(imported("ada", "bob", audience="add", **state), number)
        emulator.service.store.run("DELETE FROM members")
        if how == "deleted":
            emulator.service.store.run("DELETE FROM lists")
    assert sent(emulator) == ["ada", "bob"]


def lose(database: SqlDatabase) -> None:
    database.execute("DROP TABLE mail_audiences")


def damaged(change: str) -> Callable[..., None]:
    return lambda database, service, patch: database.execute(f"{change}".format(table="mail_audiences_members"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda database, service, patch: lose(database), "there is no state yet"),
        (damaged("DELETE FROM {table}"), "the state is damaged: a part is missing"),
        (damaged("UPDATE mail_audiences SET members = 4"), "the state is damaged: it has 3 of 4 rows"),
        (damaged("UPDATE {table} SET part = 1"), "the state is damaged: a part is missing"),
        (damaged("UPDATE {table} SET sealed = substr(sealed, 9)"), "the state is damaged: a part is not what"),
        (damaged("UPDATE {table} SET membership = 'left'"), "the state is damaged: a part is not what"),
        (damaged("UPDATE {table} SET sealed = 'nothing'"), "the state is damaged"),
        (lambda database, service, patch: patch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "other"), "or key"),
        (lambda database, service, patch: service.delete_list(), "is on list"),
    ],
    ids=["lost", "missing", "other number", "not in order", "cut", "moved", "text", "other key", "no list"],
)
def test_a_state_that_is_not_trusted(
    emulator: Emulator,
    warehouse: SqlDatabase,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    change: Callable[..., None],
    reason: str,
) -> None:
    """Everybody is sent, to a new list."""
    state = {"state_conn_id": "warehouse"}
    first = done(imported("ada", "bob", "eva", **state))

    class Service:
        def delete_list(self) -> None:
            emulator.service.store.run("DELETE FROM members")

    sent(emulator)
    change(warehouse, Service(), monkeypatch)
    caplog.set_level("INFO")
    result = done(imported("bob", "eva", **state), "second")
    assert reason in capfd.readouterr().out + caplog.text
    assert sent(emulator) == ["bob", "eva"]
    assert result["send_list_names"] != first["send_list_names"]
    done(created(result))
    assert mailed(emulator) == ["bob", "eva"]


def cut_a_file(folder: Path) -> None:
    file = next(folder.glob("*.jsonl"))
    file.write_bytes(file.read_bytes()[:-9])


def cut_the_header(folder: Path) -> None:
    (folder / "audience.json").write_text("{")


@pytest.mark.parametrize("damage_files", [cut_a_file, cut_the_header])
def test_files_that_are_damaged(emulator: Emulator, tmp_path: Path, damage_files: Callable[[Path], None]) -> None:
    """Everybody is sent, and the state is whole again."""
    state = {"state_path": f"file://{tmp_path}/state"}
    done(imported("ada", "bob", **state))
    (folder,) = (tmp_path / "state").iterdir()
    damage_files(folder)
    for number, expected in enumerate((["ada", "bob"], [])):
        sent(emulator)
        done(imported("ada", "bob", **state), f"after {number}")
        assert sent(emulator) == expected
    assert json.loads((folder / "audience.json").read_text())["audience"] == "dag/load"


def test_files_are_in_the_order_of_runs(emulator: Emulator, tmp_path: Path, clock: Clock) -> None:
    """Also when the clock of a worker is behind that of the one before."""
    state = {"state_path": f"file://{tmp_path}/state"}
    for number, name in enumerate(["N", "M", "N", "N"]):
        sent(emulator)
        done(imported(contacts=[{"email": "ada@example.com", "name": name}], **state), str(number))
        clock.set_wall_clock(-30)
    assert [sent(emulator), [contact["name"] for contact in emulator.contacts()]] == [[], ["N"]]


@pytest.mark.parametrize("people", [["ada", "bob"], ["bob", "eva"], ["ada", "bob", "eva"]])
def test_an_older_state_excludes_nobody_by_mistake(
    emulator: Emulator, tmp_path: Path, people: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is restored from a backup: it does not know who left and came back since."""
    state = {"state_path": f"file://{tmp_path}/state"}
    done(imported("ada", "bob", "eva", **state), "1")
    done(imported("ada", "bob", **state), "2")
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    done(imported("bob", **state), "3")
    shutil.rmtree(tmp_path / "state")
    shutil.move(tmp_path / "backup", tmp_path / "state")
    done(created(done(imported(*people, **state), "4")))
    assert mailed(emulator) == people


def test_another_mapping_or_list_is_another_state(emulator: Emulator, state: dict[str, str]) -> None:
    done(imported("ada", **state))
    for number, arguments in enumerate(({"list_name": "others"}, {"columns": {"email": "email"}}, {"null_value": ""})):
        sent(emulator)
        done(imported("ada", **state | arguments), str(number))
        assert sent(emulator) == ["ada"], arguments


def test_everybody_is_sent_when_it_is_due(emulator: Emulator, state: dict[str, str], clock: Clock) -> None:
    for number, expected in enumerate((["ada", "bob"], [], ["ada", "bob"])):
        result = done(imported("ada", "bob", full_every=timedelta(days=7), **state), str(number))
        assert sent(emulator) == expected
        assert [result["joined"], result["size"]] == [0 if number else 2, 2]
        clock.sleep(4 * 24 * 3600)


def test_an_empty_source_removes_nobody(emulator: Emulator, state: dict[str, str]) -> None:
    """And a campaign to nobody reaches nobody."""
    done(imported("ada", "bob", **state), "1")
    done(created(done(imported(**state), "2"), "2"), "2")
    sent(emulator)
    done(created(done(imported("ada", "bob", **state), "3"), "3"), "3")
    assert sent(emulator) == []
    assert [mailed(emulator, "2"), mailed(emulator, "3")] == [[], ["ada", "bob"]]


@pytest.mark.parametrize(
    ("people", "arguments", "message"),
    [
        (NAMES[5:], {"max_removed_fraction": 0.2}, "max_removed_fraction: 5 of 20 people would leave the audience"),
        ([*NAMES[2:], "a", "b", "c"], {"max_change_fraction": 0.2}, "max_change_fraction: 5 of 20 people would change"),
        ([*NAMES, "a"], {"max_rows": 20}, "max_rows: there are more than 20 rows"),
    ],
)
def test_a_brake_stops_before_the_first_request(
    emulator: Emulator, state: dict[str, str], people: list[str], arguments: dict[str, Any], message: str
) -> None:
    done(imported(*NAMES, **state), "1")
    sent(emulator)
    with pytest.raises(AirflowFailException, match=message) as error:
        done(imported(*people, **state | arguments), "2")
    assert 'trigger the DAG with the parameter "pass_brakes": true' in str(error.value)
    assert sent(emulator) == []
    done(created(done(imported(*people, **state | arguments), "3", pass_brakes=True)))
    assert mailed(emulator) == sorted(people)


def test_a_dry_run_changes_nothing(emulator: Emulator, state: dict[str, str]) -> None:
    done(imported("ada", "bob", **state))
    sent(emulator)
    result = done(imported("bob", "eva", dry_run=True, **state), "second")
    assert [result[name] for name in ("joined", "changed", "left")] == [1, 0, 1]
    assert emulator.journal.count(IMPORTS) == 0
    done(imported("bob", "eva", **state), "third")
    assert sent(emulator) == ["(ada)", "eva"]


def test_sandbox_changes_nothing(emulator: Emulator, state: dict[str, str]) -> None:
    done(imported("ada", sandbox_mode=True, **state))
    assert emulator.contacts() == []
    done(imported("ada", **state), "second")
    assert len(emulator.contacts()) == 1


def test_rejected_rows_are_tried_again(emulator: Emulator, state: dict[str, str]) -> None:
    """Whoever is rejected is not in the audience, also who was."""
    arguments = state | {"max_reject_fraction": 1}
    done(imported("ada", "bob", **arguments), "1")
    emulator.change_settings(refused_addresses=("eva@example.com",))
    for number in ("2", "3"):
        sent(emulator)
        done(imported("ada", "bob", "eva", **arguments), number)
        assert set(sent(emulator)) == {"eva"}
    emulator.change_settings(refused_addresses=())
    done(created(done(imported("ada", "bob", "eva", **arguments), "4")))
    assert mailed(emulator) == ["ada", "bob", "eva"]


def test_everybody_may_be_rejected(emulator: Emulator, state: dict[str, str]) -> None:
    arguments = state | {"max_reject_fraction": 1}
    emulator.change_settings(refused_addresses=("ada@example.com", "bob@example.com"))
    for number in range(2):
        done(created(done(imported("ada", "bob", **arguments), str(number)), str(number)), str(number))
    emulator.change_settings(refused_addresses=())
    done(created(done(imported("ada", "bob", **arguments), "2"), "2"), "2")
    assert [mailed(emulator, str(number)) for number in range(3)] == [[], [], ["ada", "bob"]]


def test_a_member_whose_new_row_is_invalid(emulator: Emulator, state: dict[str, str]) -> None:
    rows = [{"email": "ada@example.com", "phone": "+4930123456"}, {"email": "bob@example.com", "phone": None}]
    arguments = state | {"columns": {"email": "email", "phone": "phoneNumber"}, "max_reject_fraction": 1}
    for number, phone in enumerate(("+4930123456", "no number", "+4930123457")):
        result = done(imported(contacts=[rows[0] | {"phone": phone}, rows[1]], **arguments), str(number))
        done(created(result, str(number)), str(number))
    assert [mailed(emulator, str(number)) for number in range(3)] == [["ada", "bob"], ["bob"], ["ada", "bob"]]


def test_suppressed_people_leave_and_are_not_deleted(emulator: Emulator, warehouse: SqlDatabase) -> None:
    warehouse.execute("CREATE TABLE staff (email TEXT)")
    state = {"state_conn_id": "warehouse", "suppress_conn_id": "warehouse", "suppress_table": "staff"}
    state |= {"on_removed": "delete_contact", "max_removed_fraction": 1}
    done(imported("ada", "bob", **state), "1")
    warehouse.execute("INSERT INTO staff", [["BOB@example.com"]])
    done(created(done(imported("ada", "bob", **state), "2"), "2"), "2")
    assert mailed(emulator, "2") == ["ada"]
    assert len(emulator.contacts()) == 2
    warehouse.execute("DELETE FROM staff")
    done(created(done(imported("ada", "bob", **state), "3"), "3"), "3")
    assert mailed(emulator, "3") == ["ada", "bob"]


def test_a_retry_continues_on_the_new_list(emulator: Emulator, state: dict[str, str]) -> None:
    """After an error, what is known to be accepted is not sent again, and what is in doubt is."""
    emulator.faults.add("code_before", IMPORTS, skip=3, code=401, http_status=401)
    with pytest.raises((MailError, AirflowFailException)):
        done(imported(*NAMES, chunk_size=1, max_in_flight=1, **state))
    sent(emulator)
    done(created(done(imported(*NAMES[1:], chunk_size=1, max_in_flight=1, **state))))
    again = sent(emulator)
    assert "(p00)" in again
    assert len(again) < len(NAMES)
    assert mailed(emulator) == NAMES[1:]


def test_two_runs_at_once(emulator: Emulator, state: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits for its next try, and the state stays that of the first one."""
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: "running")
    errors = []

    def second() -> Iterator[dict[str, str]]:
        yield {"email": "ada@example.com", "name": "N"}
        with pytest.raises(AirflowException) as error:
            done(imported("eva", **state), "second")
        errors.append(str(error.value))
        yield {"email": "bob@example.com", "name": "N"}

    done(imported(contacts=second, chunk_size=1, **state), "first")
    assert errors == ["run 'first' of task dag.load is importing this audience now: try again when it has ended"]
    done(created(done(imported("eva", **state), "second")))
    assert mailed(emulator) == ["eva"]


@pytest.mark.parametrize(("task_state", "days", "passes"), [
    ("running", 2, False), ("up_for_retry", 2, False), ("failed", 0, True), (None, 0, False), (None, 2, True),
])  # fmt: skip
def test_a_claim_ends_with_its_run(
    emulator: Emulator, warehouse: SqlDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch,
    task_state: str | None, days: int, passes: bool,
) -> None:  # fmt: skip
    """Also when Airflow does not know the run any more."""
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: task_state)
    done(imported("ada", state_conn_id="warehouse"), "1")
    warehouse.execute("""UPDATE mail_audiences SET claimed_by = '["dag", "load", "killed", -1]'""")
    clock.sleep(days * 24 * 3600)
    with nullcontext() if passes else pytest.raises(AirflowException, match="run 'killed' of task"):
        done(imported("ada", state_conn_id="warehouse"), "2")


def test_a_run_that_was_believed_to_have_ended(
    emulator: Emulator, state: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes nothing over the state of the run that took the audience from it."""
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: "failed")
    done(imported("ada", "bob", **state), "1")

    def people() -> Iterator[dict[str, str]]:
        yield {"email": "max@example.com", "name": "N"}
        done(imported("ada", "eva", **state), "2")

    with pytest.raises(AirflowException, match="another run has changed the state of this audience"):
        done(imported(contacts=people, chunk_size=1, **state), "stood still")
    sent(emulator)
    done(created(done(imported("ada", "eva", **state), "3")))
    assert [mailed(emulator), sent(emulator)] == [["ada", "eva"], []]


def test_each_range_has_its_own_part_of_the_state(emulator: Emulator, state: dict[str, str]) -> None:
    """Also when somebody moves to another range: nobody there is excluded for having left the first one."""
    runs = [
        (["ada", "bob"], ["eva", "max"]),
        (["ada", "bob"], ["eva", "max"]),
        (["ada"], ["bob", "eva", "max"]),
        (["ada", "bob"], ["eva"]),
    ]
    requests = []
    for number, parts in enumerate(runs):
        emulator.journal.clear()
        audience = [done(imported(*part, **state), str(number), map_index=index) for index, part in enumerate(parts)]
        requests.append(emulator.journal.count(IMPORTS))
        done(created(audience, str(number)), str(number))
        assert mailed(emulator, str(number)) == sorted({*parts[0], *parts[1]})
    assert requests[1] == 0


def test_a_range_keeps_its_list_while_others_are_sent_anew(
    emulator: Emulator, state: dict[str, str], clock: Clock
) -> None:
    for number in range(5):
        parts = (["ada"], ["eva", f"p{number}"])
        audience = [done(imported(*part, **state), str(number), map_index=index) for index, part in enumerate(parts)]
        done(created(audience, str(number)), str(number))
        assert mailed(emulator, str(number)) == ["ada", "eva", f"p{number}"]
        clock.sleep(24 * 3600)


def test_who_was_excluded_by_one_range_may_be_in_another(emulator: Emulator, state: dict[str, str]) -> None:
    """The row of a person is rejected, and then accepted in another range."""
    arguments = state | {"max_reject_fraction": 1, "columns": {"email": "email", "phone": "phoneNumber"}}
    ada, bob, eva = ({"email": f"{name}@example.com", "phone": "+4930123456"} for name in ("ada", "bob", "eva"))
    runs = [([ada], [bob, eva]), ([ada], [bob | {"phone": "none"}, eva]), ([ada, bob], [eva])]
    for number, parts in enumerate(runs):
        audience = [
            done(imported(contacts=part, **arguments), str(number), map_index=index) for index, part in enumerate(parts)
        ]
    done(created(audience))
    assert mailed(emulator) == ["ada", "bob", "eva"]


def test_the_state_shows_nobody(emulator: Emulator, warehouse: SqlDatabase, tmp_path: Path) -> None:
    done(imported("ada", state_conn_id="warehouse"))
    done(imported("ada", task_id="other", state_path=f"file://{tmp_path}/state"))
    stored = json.dumps(warehouse.query("SELECT * FROM mail_audiences_members"))
    files = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert "ada" not in stored
    assert len(files) == 2
    assert not any(b"ada" in content for content in files)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "state_conn_id or state_path: needed by changes_only"),
        ({"state_conn_id": "a", "limit": 5}, "limit: not with changes_only"),
        ({"state_conn_id": "a", "on_removed": "ignore"}, "on_removed: 'ignore' would leave"),
        ({"state_conn_id": "a", "on_removed": "exclude", "audience": "add"}, "on_removed: 'exclude' needs"),
        ({"state_conn_id": "a", "on_removed": "delete_contact"}, "max_removed_fraction: needed"),
        ({"changes_only": False, "full_every": 5}, "full_every: needs changes_only"),
        ({"changes_only": False, "max_change_fraction": 0.1}, "max_change_fraction: needs changes_only"),
        ({"state_conn_id": "a", "max_removed_fraction": 2}, "max_removed_fraction: must be"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: dict[str, Any], problem: str) -> None:
    assert problem in error_of(lambda: imported("ada", **arguments))


def test_without_a_secret_there_is_no_state(warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "")
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")
    assert "set [mail] audience_key" in error_of(lambda: done(imported("ada", state_conn_id="warehouse")))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_state_beside_the_source(
    emulator: Emulator, make_database: Callable[[str, str], SqlDatabase], kind: str
) -> None:
    crm = make_database(kind, "crm")
    crm.execute("CREATE TABLE people (email VARCHAR(100), name VARCHAR(100))")
    crm.execute("INSERT INTO people", [(f"{name}@example.com", "N") for name in NAMES])
    changes = ("DELETE FROM people WHERE email LIKE 'p0%'", "INSERT INTO people VALUES ('p01@example.com', 'N')")
    sizes = [20]
    for number in range(3):
        operator = SqlToMailContactsOperator(
            task_id="load", sql_conn_id="crm", sql="SELECT email, name FROM people", list_name="friends",
            audience="exact", changes_only=True,
        )  # fmt: skip
        result = done(operator, str(number))
        done(created(result, str(number)), str(number))
        (sizes[-1],) = crm.query("SELECT COUNT(*) FROM people")[0]
        assert [result["size"], len(mailed(emulator, str(number)))] == [sizes[-1], sizes[-1]]
        if number < 2:
            crm.execute(changes[number])


def test_a_log_of_runs_and_changes(emulator: Emulator, warehouse: SqlDatabase) -> None:
    arguments = {"state_conn_id": "warehouse", "log_table": "runs", "max_removed_fraction": 0.5}
    for number, people in enumerate((NAMES, [*NAMES[1:], "eva"])):
        done(imported(*people, **arguments), str(number))
    with pytest.raises(AirflowFailException):
        done(imported("eva", **arguments), "2")
    columns = "state, everybody, reason, size, rows_read, joined, changed, left_count, requests"
    assert warehouse.query(f"SELECT {columns} FROM runs ORDER BY finished_at, import_id") == [
        ("success", 1, "there is no state yet", 20, 20, 20, 0, 0, 1),
        ("success", 0, None, 20, 20, 1, 0, 1, 2),
        ("stopped", 0, "max_removed_fraction: 19 of 20 people would leave the audience, more than 0.5 of them",
         0, 1, 0, 0, 19, 0),
    ]  # fmt: skip
    counted = "SELECT import_id, operation, COUNT(*) FROM runs_changes GROUP BY import_id, operation ORDER BY 1, 2"
    assert [(run_id[-1], *rest) for run_id, *rest in warehouse.query(counted)] == [
        ("0", "joined", 20), ("1", "joined", 1), ("1", "left", 1),
    ]  # fmt: skip


def test_a_file_of_which_only_changes_are_sent(emulator: Emulator, tmp_path: Path) -> None:
    """Rejected rows keep the number and the line that they have in the file."""
    file, rejects = tmp_path / "people.csv", tmp_path / "rejects.jsonl"
    lines = ["email,name", *(f"{name}@example.com,N" for name in NAMES)]
    for number, (changed, expected) in enumerate([({}, NAMES), ({7: "nobody,N", 9: "p08@example.com,M"}, ["p08"])]):
        for place, line in changed.items():
            lines[place] = line
        file.write_text("\n".join(lines) + "\n")
        operator = ObjectStorageToMailContactsOperator(
            task_id="load", path=f"file://{file}", list_name="friends", audience="exact", changes_only=True,
            state_path=f"file://{tmp_path}/state", rejects_path=str(rejects), max_reject_fraction=1, chunk_size=4,
        )  # fmt: skip
        result = done(operator, str(number))
        assert [name for name in sent(emulator) if "(" not in name] == expected
    (reject,) = map(json.loads, rejects.read_text().splitlines())
    assert reject["row_number"] == 8, "the line of the file"
    assert [result[name] for name in ("read", "rejected", "changed", "left")] == [20, 1, 1, 1]
