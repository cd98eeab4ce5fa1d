"""An exact audience believes the lists, not its memory: whatever others do, a campaign is right or red."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.api.flows.audience import AudienceList, list_versions
from airflow_provider_mail.arguments import Suppress
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.contacts import MailDeleteContactOperator, MailImportContactsOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from mail_emulator import Emulator
from mail_emulator.responses import Response
from tests.machines.audience_parts import STORE_KEY, AudienceState, ComparedAudience, forget
from tests.support.changes import around_requests, at_request, post
from tests.support.clock import Clock
from tests.support.tries import HAS_STORE, Killed, TaskInstance, Tries
from tests.tasks import test_audience
from tests.tasks.conftest import Connect, Run, SqlDatabase
from tests.tasks.loading import error_of
from tests.tasks.test_audience import IMPORTS, Audience, created, done, mailed, requested
from tests.tasks.test_audience_changes import ALL, DELETES, NAMES, emails

DAY = 24 * 3600.0
imported = partial(test_audience.imported, changes_only=True, state_conn_id="warehouse")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")


@pytest.fixture
def audience(emulator: Emulator, warehouse: SqlDatabase) -> Audience:
    return Audience(emulator, changes_only=True, state_conn_id="warehouse")


def other(emulator: Emulator, **arguments: Any) -> Audience:
    """A second audience in the same store."""
    given = {"changes_only": True, "state_conn_id": "warehouse", "task_id": "other", "list_name": "others"}
    second = Audience(emulator, **given | arguments)
    second.numbers = itertools.count(101)
    return second


def names(emulator: Emulator) -> dict[str, str]:
    return {contact["email"].partition("@")[0]: contact["name"] for contact in emulator.contacts()}


def at_killing(*arguments: Any) -> None:
    raise Killed


def preflight(result: Any, **arguments: Any) -> MailPreflightOperator:
    given = {"task_id": "check", "mail_name": "spring", "subject": "a", "content": "<p>a</p>"}
    return MailPreflightOperator(audience=result, **given | {"sender_mail": "news@example.com"} | arguments)


# --- which audience a result is ---


@pytest.mark.parametrize(("people", "arguments"), [
    ("ada bob eva", {}),
    ("bob eva", {}),
    # As many as before.
    ("ada eva", DELETES),
])  # fmt: skip
def test_a_later_import_fails_the_campaign_of_an_earlier_one(
    emulator: Emulator,
    audience: Audience,
    clock: Clock,
    people: str,
    arguments: dict[str, Any],
) -> None:
    audience.load("ada bob", **arguments)
    result = audience.load("ada bob max", **arguments)
    clock.sleep(60)
    audience.load(people + " max", **arguments)
    for operator in (created(result), preflight(result)):
        said = error_of(partial(done, operator))
        assert "was changed after the import" in said.replace("It was", "was")
        assert "lear the import, then this task" in said
    assert emulator.campaigns() == []
    done(created(audience.load(people + " max", **arguments)))
    assert mailed(emulator) == sorted((people + " max").split())


@pytest.mark.parametrize("own_name", [False, True])
@pytest.mark.parametrize("prefix", ["", "test"])
def test_a_list_of_an_exact_audience_is_not_named(
    emulator: Emulator,
    audience: Audience,
    monkeypatch: pytest.MonkeyPatch,
    own_name: bool,
    prefix: str,
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", prefix)
    emulator.add_list("friends", ["ada@example.com", "left@example.com"])
    emulator.add_list("friends of friends", ["ada@example.com"])
    result = audience.load("ada bob")
    names = result["send_list_names"] if own_name else ["friends"]
    for operator in (created(None, send_list_names=names), preflight(None, send_list_names=names)):
        said = error_of(partial(done, operator))
        assert "send_list_names: '" in said
        assert "give the campaign audience=<the import task>.output instead" in said
    assert emulator.campaigns() == []
    done(created(None, send_list_names=["friends of friends"]))
    assert mailed(emulator) == ["ada"]


def test_a_list_of_an_exact_audience_is_not_excluded_by_its_name(emulator: Emulator) -> None:
    """Who is new is not on it."""
    emulator.add_list("friends", ["ada@example.com"])
    emulator.add_list("all", ["ada@example.com", "bob@example.com", "eva@example.com"])
    names = done(test_audience.imported("bob"))["send_list_names"]
    for operator in (created, preflight):
        said = error_of(partial(done, operator(None, send_list_names=["all"], repel_list_names=["friends"])))
        assert "repel_list_names: 'friends' is the name of an exact audience" in said
        assert "give it <the import task>.output['send_list_names']" in said
    assert emulator.campaigns() == []
    done(created(None, send_list_names=["all"], repel_list_names=names))
    assert mailed(emulator) == ["ada", "eva"]


@pytest.mark.parametrize("prefix", ["", "test "])
def test_a_name_that_is_too_long_for_the_lists(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", prefix)
    name = "\u00e9" * 90
    emulator.add_list(name, ["left@example.com"])
    done(test_audience.imported("ada", list_name=name))
    assert "is the name of an exact audience" in error_of(lambda: done(created(None, send_list_names=[name])))


def test_who_left_one_audience_is_not_excluded_from_another(emulator: Emulator, audience: Audience) -> None:
    emulator.add_list("vip", ["max@example.com"])
    audience.load("ada bob cem max")
    result = audience.load("ada bob cem")
    both: dict[str, Any] = {"audience": [result, other(emulator).load("max")]}
    plain = done(test_audience.imported("max", task_id="vip", list_name="vip", exact_audience=False))
    for arguments in (both, {"audience": result, "send_list_names": ["vip"]}, {"audience": [plain, result]}):
        assert "is excluded from the whole campaign" in error_of(partial(done, created(**arguments)))
    assert emulator.campaigns() == []


def test_who_left_an_audience_is_not_excluded_as_its_member(emulator: Emulator, audience: Audience) -> None:
    emulator.add_list("all", [f"{person}@example.com" for person in ("ada", "bob", "cem", "max")])
    for number, people in enumerate(("ada bob cem", "ada bob", "ada bob cem")):
        members = audience.load(people)["send_list_names"]
        others = partial(created, None, f"others {number}", send_list_names=["all"], repel_list_names=members)
        if "cem" not in people:
            for operator in (others(), preflight(None, send_list_names=["all"], repel_list_names=members)):
                assert "has people, too, who have left that audience" in error_of(partial(done, operator))
            assert emulator.find_campaign(f"others {number}") is None
        else:
            done(others())
            assert mailed(emulator, f"others {number}") == ["max"]


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("exact", [True, False])
def test_an_audience_that_was_imported_in_the_sandbox_only(
    emulator: Emulator, audience: Audience, state: bool, exact: bool
) -> None:
    """The lists are those of an earlier run."""
    audience.load("ada bob", changes_only=state, exact_audience=exact)
    result = audience.load("ada eva", changes_only=state, exact_audience=exact, sandbox_mode=True)
    for operator in (created(result), preflight(result)):
        assert "audience: the import ran in sandbox mode" in error_of(partial(done, operator))
    assert emulator.campaigns() == []
    assert done(created(result, sandbox_mode=True))["sandbox"]


def test_an_erasure_and_a_later_import_before_the_campaign(
    emulator: Emulator, audience: Audience, clock: Clock
) -> None:
    """There are as many people as before, and others."""
    result = audience.load("ada bob cem")
    clock.sleep(DAY)
    _erase(emulator, "bob")
    assert forget("warehouse", "bob@example.com") == {"dag/load": "forgotten"}
    audience.load("ada cem eva")
    assert "It was changed after the import" in error_of(lambda: done(created(result)))


@pytest.mark.parametrize("dates", [True, False])
@pytest.mark.parametrize("state", [True, False])
def test_an_erasure_and_a_stranger_before_the_campaign(
    emulator: Emulator, audience: Audience, clock: Clock, dates: bool, state: bool
) -> None:
    emulator.change_settings(list_modify_date=dates)
    result = audience.load("ada bob cem", changes_only=state)
    clock.sleep(60)
    _erase(emulator, "bob")
    _put_on(emulator, result["send_list_names"][0])
    for operator in (created(result), preflight(result)):
        assert "has other people" in error_of(partial(done, operator))
    assert emulator.campaigns() == []


@pytest.mark.parametrize(("seconds", "people", "asked"), [(0, 1100, True), (60, 1100, False), (0, 10_001, False)])
def test_the_people_of_a_list_are_read_if_its_date_may_not_show_them(
    emulator: Emulator, clock: Clock, seconds: float, people: int, asked: bool
) -> None:
    """Not if it has changed before, nor those of a large list."""
    emulator.add_list("friends")
    clock.sleep(seconds)
    contacts = [{"email": f"p{number}@example.com"} for number in range(people)]
    done(test_audience.imported(contacts=contacts, exact_audience=False))
    emulator.journal.clear()
    versions = list_versions(MailHook().get_conn(), ["friends"])
    bodies = [entry["body"] for entry in emulator.journal.entries("/v5/contacts/list/get")]
    assert any(body["pageSize"] == 1000 for body in bodies) is asked
    assert versions.keys() == {"friends"}


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize(("problem", "begin"), [("missing", 1), ("smaller", 1), ("smaller", 4)])
def test_lists_that_the_service_shows_late(
    emulator: Emulator, audience: Audience, clock: Clock, state: bool, problem: str, begin: int
) -> None:
    """One of its servers does not know yet what another one has done: that is no change by others."""
    looks = itertools.count(1)

    def around(perform: Callable[[], Response]) -> Response:
        response = perform()
        if begin <= next(looks) < begin + 3:
            if problem == "missing":
                return Response({"code": 404, "message": "no such list"})
            response.payload["totalRecords"] = 1
        return response

    with around_requests(emulator, "contacts/list/get", around):
        result = audience.load("ada bob cem", changes_only=state)
        assert [*result["totals"].values()] == [3]
        done(created(result))
    assert mailed(emulator) == ["ada", "bob", "cem"]


# --- what others do to the lists ---


def _take_off(emulator: Emulator, list_name: str, person: str) -> None:
    store = emulator.service.store
    store.run(
        "DELETE FROM members WHERE list_id = (SELECT id FROM lists WHERE name = ?) "
        "AND contact_id = (SELECT id FROM contacts WHERE key = ?)", [list_name, f"{person}@example.com"],
    )  # fmt: skip
    store.run("UPDATE lists SET modified = ? WHERE name = ?", [emulator.service.clock.now_ms(), list_name])
    store.members.clear_cache()


def _put_on(emulator: Emulator, list_name: str, person: str = "stranger") -> None:
    assert post(emulator, "contacts/upsert", email=f"{person}@example.com", listName=list_name)["code"] == 200


def _erase(emulator: Emulator, person: str) -> None:
    assert post(emulator, "contacts/delete", email=f"{person}@example.com")["code"] == 200


@pytest.mark.parametrize("dates", [True, False])
@pytest.mark.parametrize("deeds", [
    "off excluded", "off excluded, put on excluded", "put on sent", "put on sent, erase bob", "erase bob",
    "erase eva", "off sent, put on sent",
])  # fmt: skip
def test_lists_that_others_have_changed(
    emulator: Emulator,
    audience: Audience,
    clock: Clock,
    deeds: str,
    dates: bool,
) -> None:
    """Eva has left. There may be as many people as before, and no date that says that they are others."""
    emulator.change_settings(list_modify_date=dates)
    audience.load("ada bob cem eva")
    audience.load("ada bob cem")
    clock.sleep(DAY)
    result = audience.load("ada bob cem")
    lists = {"sent": result["send_list_names"][0], "excluded": result["repel_list_names"][0]}
    for deed in deeds.split(", "):
        verb, *_, thing = deed.split()
        if verb == "off":
            _take_off(emulator, lists[thing], "eva" if thing == "excluded" else "bob")
        elif verb == "put":
            _put_on(emulator, lists[thing])
        else:
            _erase(emulator, thing)
    audience.run("ada bob cem", "ada bob cem")


@pytest.mark.parametrize(("number", "is_seen"), [(4, True), (5, True), (6, False)])
def test_lists_that_others_change_during_a_run_without_changes(
    emulator: Emulator, audience: Audience, clock: Clock, number: int, is_seen: bool
) -> None:
    """As many people as before are on them."""
    result = audience.load("ada bob cem")
    clock.sleep(DAY)

    def change() -> None:
        _erase(emulator, "bob")
        _put_on(emulator, result["send_list_names"][0])

    with at_request(emulator, "contacts/list/get", number, change):
        if is_seen:
            with pytest.raises(AirflowException, match="has 1 people who are not in the audience"):
                audience.load("ada bob cem")
        else:
            result = audience.load("ada bob cem")
            assert "has other people" in error_of(partial(done, created(result)))
    audience.run("ada bob cem", "ada bob cem")


@pytest.mark.parametrize("exact", [True, False])
def test_a_list_that_others_have_made_anew(emulator: Emulator, audience: Audience, clock: Clock, exact: bool) -> None:
    emulator.change_settings(list_modify_date=False)
    (name,) = audience.load("ada bob", exact_audience=exact)["send_list_names"]
    clock.sleep(DAY)
    post(emulator, "lists/delete", listName=name)
    post(emulator, "lists/add", listName=name)
    for person in ("max", "moritz"):
        _put_on(emulator, name, person)
    reached = "ada bob" if exact else "ada bob max moritz"
    audience.run("ada bob", "ada bob", exact_audience=exact, reached=reached)


@pytest.mark.parametrize("dates", [True, False])
@pytest.mark.parametrize("deeds", ["put on", "put on, take off", "phone number, put on, take off"])
@pytest.mark.parametrize(("before", "state"), [("", True), ("ada bob", True), ("ada bob dan", True), ("", False)])
def test_lists_that_others_change_during_a_run(
    emulator: Emulator, audience: Audience, clock: Clock, before: str, state: bool, deeds: str, dates: bool
) -> None:
    """The people of the list show it, if not the number, also of a new one; the next try sends everybody."""
    emulator.change_settings(list_modify_date=dates)
    if before:
        audience.load(before)
        clock.sleep(DAY)

    def change() -> None:
        (name, *_) = [entry["name"] for entry in emulator.lists() if " excluded " not in entry["name"]]
        if "phone" in deeds:
            post(emulator, "contacts/upsert", phoneNumber="+49301", listName=name)
            _take_off(emulator, name, "ada")
        _put_on(emulator, name)
        if "take off" in deeds:
            _take_off(emulator, name, "bob")

    with at_request(emulator, IMPORTS, 1, change), pytest.raises(AirflowException, match="Others have changed it"):
        audience.load("ada bob eva", "2", changes_only=state)
    audience.load("ada bob eva", "2", changes_only=state)
    assert requested(emulator) == ["ada", "bob", "eva"]
    audience.run("ada bob eva", changes_only=state)


def test_exclusions_that_others_change_during_a_run(emulator: Emulator, audience: Audience, clock: Clock) -> None:
    """A member in the place of a person who has left."""
    audience.load("ada bob cem dan")
    audience.load("ada bob cem")
    clock.sleep(DAY)

    def change() -> None:
        (name,) = [entry["name"] for entry in emulator.lists() if " excluded " in entry["name"]]
        _put_on(emulator, name, "bob")
        _take_off(emulator, name, "dan")

    with at_request(emulator, IMPORTS, 1, change), pytest.raises(AirflowException, match="Others have changed it"):
        audience.load("ada bob cem eva")
    audience.run("ada bob cem eva", "ada bob cem eva")


def test_an_older_state_after_an_erasure(
    emulator: Emulator,
    audience: Audience,
    warehouse: SqlDatabase,
    clock: Clock,
) -> None:
    """There are as many contacts as it knows, and other ones."""
    audience.load("ada bob")
    tables = ("mail_audiences", "mail_audiences_members")
    stored = {table: warehouse.query(f"SELECT * FROM {table}") for table in tables}
    clock.sleep(DAY)
    audience.load("ada bob eva")
    _erase(emulator, "bob")
    for table, rows in stored.items():
        warehouse.execute(f"DELETE FROM {table}")
        warehouse.execute(f"INSERT INTO {table}", rows)
    audience.run("ada bob", "ada bob")


def test_renewed_credentials_do_not_send_everybody(
    emulator: Emulator,
    audience: Audience,
    connect: Connect,
) -> None:
    audience.load("ada bob")
    emulator.change_settings(api_key="renewed")
    connect(password="renewed")
    audience.run("ada bob eva", "eva")


# --- several audiences ---


def test_values_of_another_audience(emulator: Emulator, audience: Audience, clock: Clock) -> None:
    """A contact has the values that came last, also if they are not those that this audience has sent."""
    second = other(emulator)
    for one in (audience, second):
        one.run("ada=old bob", "ada bob")
        clock.sleep(DAY)
    second.run("ada=new bob", "ada")
    clock.sleep(DAY)
    audience.run("ada=old bob", "ada")
    assert names(emulator) == {"ada": "old", "bob": "N"}
    clock.sleep(DAY)
    second.run("ada=new bob", "ada")
    second.run("bob", "(ada)")
    clock.sleep(DAY)
    audience.run("ada=old bob", "ada")
    clock.sleep(DAY)
    for one, people in ((audience, "ada=old bob"), (second, "bob")):
        one.run(people, "")


def test_values_of_an_audience_with_other_columns(emulator: Emulator, audience: Audience, clock: Clock) -> None:
    contacts = [{"email": f"{person}@example.com", "name": "new", "city": "Oslo"} for person in ("ada", "max")]
    given: dict[str, Any] = {"columns": {"email": "email", "name": "name", "city": "city"}, "contacts": contacts}
    for number, sent in enumerate(("ada bob", "ada", "ada", "")):
        if 0 < number < 3:
            done(imported(task_id="other", list_name="others", **given), f"other {number}")
            clock.sleep(DAY)
        audience.run("ada=old bob", sent)
        clock.sleep(DAY)
        assert ("ada@example.com", "old") in {(contact["email"], contact["name"]) for contact in emulator.contacts()}


def test_values_of_an_audience_that_begins_anew(
    emulator: Emulator, audience: Audience, warehouse: SqlDatabase, clock: Clock
) -> None:
    second = other(emulator)
    for number in range(4):
        for one in (second, audience):
            one.load(f"ada=old bob={number}")
            clock.sleep(DAY)
    of_other = "audience LIKE '%other'"
    members = f"mail_audiences_members WHERE generation = (SELECT generation FROM mail_audiences WHERE {of_other})"
    for number, lost in enumerate((f"mail_audiences WHERE {of_other}", members)):
        second.load(f"ada=new{number} bob=3")
        warehouse.execute(f"DELETE FROM {lost}")
        second.load("eva")
        clock.sleep(DAY)
        for sent in ("ada bob", ""):
            audience.run("ada=old bob=3", sent)
            clock.sleep(DAY)
        assert names(emulator) == {"ada": "old", "bob": "3", "eva": "N"}


@pytest.mark.parametrize("exact", [True, False])
def test_values_of_an_audience_that_people_have_left(
    emulator: Emulator, audience: Audience, warehouse: SqlDatabase, clock: Clock, exact: bool
) -> None:
    """Also if it was sent to new lists since then; and until they are forgotten."""
    second = other(emulator, exact_audience=exact, full_every=1)
    audience.run("ada=old bob", "ada bob")
    clock.sleep(DAY)
    for people in ("ada=new eva", "eva", "eva max"):
        second.load(people)
        clock.sleep(DAY)
    audience.run("ada=old bob", "ada")
    assert names(emulator) == {"ada": "old", "bob": "N", "eva": "N", "max": "N"}
    assert forget("warehouse", "Ada@example.com") == dict.fromkeys(("dag/load", "dag/other"), "forgotten")
    assert forget("warehouse", "ada@example.com") == {}


def test_people_who_left_long_ago(emulator: Emulator, audience: Audience, clock: Clock) -> None:
    second = other(emulator, full_every=1)
    for one in (audience, second):
        one.load("ada=old bob")
    second.load("ada=new bob")
    for days in (1, 101):
        clock.sleep(days * DAY)
        second.load("bob")
    audience.run("ada=old bob", "ada bob")
    assert forget("warehouse", "ada@example.com") == {"dag/load": "forgotten"}


def test_values_of_people_with_rows_in_several_mapped_tasks(
    audience: Audience, emulator: Emulator, clock: Clock
) -> None:
    audience.run("ada=one bob|ada=two eva", reached="ada bob eva")
    clock.sleep(DAY)
    audience.run("ada=one bob|eva", reached="ada bob eva")
    assert names(emulator)["ada"] == "one"


def test_contacts_of_other_audiences_are_not_deleted(emulator: Emulator, audience: Audience) -> None:
    second = other(emulator)
    second.run("ada bob eva", "ada bob eva")
    audience.run("ada bob max", **DELETES)
    audience.run("bob", **DELETES)
    assert emails(emulator) == "ada bob eva"
    second.run("ada bob eva")


def test_contacts_that_another_audience_only_excludes_are_deleted(
    emulator: Emulator, audience: Audience, clock: Clock
) -> None:
    """That changes its lists, and it knows."""
    second = other(emulator)
    for one, people, sent, contacts in (
        (second, "ada bob cem dan", "ada bob cem dan", "ada bob cem dan"),
        (audience, "ada bob cem dan", "ada bob cem dan", "ada bob cem dan"),
        (audience, "ada cem dan", "(bob)", "ada bob cem dan"),
        (second, "ada dan", "(cem)", "ada cem dan"),
        (audience, "ada dan", "", "ada dan"),
        (second, "ada dan", "", "ada dan"),
    ):
        one.run(people, sent, **DELETES)
        assert emails(emulator) == contacts
        clock.sleep(DAY)


def test_an_audience_whose_run_was_killed(
    emulator: Emulator, audience: Audience, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have sent other values of the same people, and nothing shows of whom."""
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: "failed")
    second = other(emulator)
    for one in (second, audience):
        one.run("ada=old bob", "ada bob")
        clock.sleep(DAY)

    with pytest.MonkeyPatch.context() as patch:
        for method in ("_store", "release"):
            owner = AudienceState if method == "release" else ComparedAudience
            patch.setattr(owner, method, at_killing)
        with pytest.raises(Killed):
            second.load("ada=new bob")
    for sent in ("ada bob", ""):
        clock.sleep(DAY)
        audience.run("ada=old bob", sent)
    assert {contact["name"] for contact in emulator.contacts()} == {"old", "N"}


def test_a_person_gets_the_first_of_several_mails(emulator: Emulator, audience: Audience) -> None:
    second = other(emulator)
    for first, left in (("ada bob", "cem"), ("ada", "bob cem"), ("cem", "ada bob")):
        audience.run(first)
        # Not in the groups of the tests, as it is a list.
        operator = imported(*["ADA", "bob", "cem"], task_id="other", list_name="others")
        operator.suppress = Suppress(audiences=["dag/load"], sql_conn_id="warehouse")
        result = done(operator, f"second {left}")
        done(created(result, left), left)
        assert mailed(emulator, left) == left.split()

    def people() -> Iterator[dict[str, str]]:
        yield {"email": "cem@example.com", "name": "N"}
        assert "suppress: audience 'dag/load': a run imports it now" in error_of(lambda: done(operator))

    audience.load("", contacts=people)
    operator.suppress = Suppress(audiences=["dag/no"], sql_conn_id="warehouse")
    assert "suppress: there is no audience dag/no" in error_of(lambda: done(operator))
    assert second.load("ada bob cem")["size"] == 3


# --- brakes ---


@pytest.mark.parametrize(("before", "after", "fraction", "stops"), [
    (ALL, " ".join(NAMES[:9]), None, True),
    (ALL, " ".join(NAMES[:10]), None, False),
    (" ".join(NAMES[:9]), "max", None, True),
    (" ".join(NAMES[:9]), "p00", None, False),
    (" ".join(NAMES[:9]), " ".join(NAMES[:8]), 0.01, True),
    (" ".join(NAMES[:9]), "p00", 1, False),
])  # fmt: skip
@pytest.mark.parametrize(("lost", "back"), [
    ("", ""), ("members", ""), ("all", ""), ("all", "to one of two"), ("all", "to all of a list"),
    ("all", "after a run without rows"),
])  # fmt: skip
def test_how_many_may_leave(
    emulator: Emulator, audience: Audience, warehouse: SqlDatabase, before: str, after: str,
    fraction: float | None, stops: bool, lost: str, back: str,
) -> None:  # fmt: skip
    """Also if the state is lost: its row, or the lists, have the size. Exclusion lists may not be in use any more."""
    given = {} if fraction is None else {"max_removed_fraction": fraction}
    without_one = before.partition(" ")[2]
    days = {"": [before], "to one of two": [without_one, before], "to all of a list": [before, without_one, before],
            "after a run without rows": [before, ""]}  # fmt: skip
    for people in (before + " once", *days[back]):
        audience.load(people, max_removed_fraction=1)
    if lost:
        warehouse.execute("DELETE FROM mail_audiences_members")
    if lost == "all":
        warehouse.execute("DELETE FROM mail_audiences")
    if lost and after == "max":
        stops = False  # one of nine is there: whether it is one of those is not known
    if not stops:
        audience.run(after, **given)
        return
    with pytest.raises(AirflowFailException, match="would leave the audience"):
        audience.load(after, **given)
    assert requested(emulator) == []


@pytest.mark.parametrize("changes_only", [True, False])
@pytest.mark.parametrize(("left_out", "later", "stops"), [
    (1, 0, True), (2, 1, False), (20, 9, True), (20, 10, False), (200, 181, False), (200, 179, True),
])  # fmt: skip
def test_how_many_may_be_left_out_no_longer(
    emulator: Emulator,
    audience: Audience,
    warehouse: SqlDatabase,
    changes_only: bool,
    left_out: int,
    later: int,
    stops: bool,
) -> None:
    """Also if the state is lost, or there is none."""
    warehouse.execute("CREATE TABLE no_mail (email TEXT)")
    warehouse.execute("INSERT INTO no_mail", [(f"q{number}@example.com",) for number in range(left_out)])
    given: dict[str, Any] = {"suppress_conn_id": "warehouse", "suppress_table": "no_mail", "changes_only": changes_only}
    audience.run("ada bob q0", reached="ada bob", **given)
    warehouse.execute(f"DELETE FROM no_mail WHERE CAST(substr(email, 2, instr(email, '@') - 2) AS INT) >= {later}")
    if changes_only:
        warehouse.execute("DELETE FROM mail_audiences")
    # A run that is stopped is not the one before.
    for _ in range(2):
        if stops:
            with pytest.raises(AirflowFailException, match="would be left out no longer"):
                audience.load("ada bob q0", **given)
            assert requested(emulator) == []
    audience.load("ada bob q0", dry_run=True, max_removed_fraction=1, **given)
    if stops:
        with pytest.raises(AirflowFailException, match="would be left out no longer"):
            audience.load("ada bob q0", **given)
    audience.run("ada bob", max_removed_fraction=1, **given)
    audience.run("ada bob", **given)


# --- a person is forgotten ---


@pytest.mark.parametrize("folds", [True, False])
@pytest.mark.parametrize("arguments", [{}, {"full_every": 1}], ids=["changes", "everybody"])
def test_no_run_brings_back_a_person_who_was_erased(
    emulator: Emulator,
    audience: Audience,
    folds: bool,
    arguments: dict[str, Any],
) -> None:
    """Nor one who had left, when the exclusion list is made anew for a person who comes back."""
    emulator.change_settings(contact_identity="folding" if folds else "exact")
    audience.load("ada bob cem eva")
    audience.load("ada bob")
    for person in ("CEM", "Bob"):
        erase = MailDeleteContactOperator(
            task_id="erase", contact_email=f"{person}@example.com", sql_conn_id="warehouse"
        )
        receipts = [done(erase), done(erase)]
        assert [[receipt[name] for name in ("deleted", "gone", "audiences")] for receipt in receipts] == [
            [True, True, ["dag/load"]], [False, True, []],
        ]  # fmt: skip
    for people in ("ada", "ada eva", "ada"):
        audience.run(people, **arguments)
        assert emails(emulator) == "ada eva"


@pytest.mark.parametrize(("task_state", "result"), [
    ("running", "not forgotten: a run is importing it now; try again when it has ended"), ("failed", "forgotten"),
])  # fmt: skip
def test_a_claim_of_a_run_that_has_ended_keeps_nobody(
    audience: Audience,
    warehouse: SqlDatabase,
    monkeypatch: pytest.MonkeyPatch,
    task_state: str,
    result: str,
) -> None:
    monkeypatch.setattr("airflow_provider_mail._task.waiting.task_instance_state", lambda ti: task_state)
    audience.load("ada")
    warehouse.execute("""UPDATE mail_audiences SET claimed_by = '["dag", "load", "killed", -1]'""")
    assert forget("warehouse", "ada@example.com") == {"dag/load": result}
    if task_state == "failed":
        audience.run("ada bob")
    erase = MailDeleteContactOperator(task_id="erase", contact_email="ada@example.com", sql_conn_id="warehouse")
    if task_state == "running":
        with pytest.raises(AirflowException, match=f"the contact was deleted, but not everywhere: dag/load: {result}"):
            done(erase)
    else:
        assert done(erase)["audiences"] == ["dag/load"]


# --- lists of other deployments and runs ---


@contextmanager
def another_airflow() -> Iterator[None]:
    """Be an Airflow with the same DAGs, configuration, secrets and connections, and no prefix."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskInstance, "earlier", {("load", -1, STORE_KEY): "0123abcd"})
        yield


def test_another_deployment_deletes_no_list(
    emulator: Emulator, clock: Clock, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = partial(test_audience.imported, keep_lists=1)
    ours, theirs = [], []
    for number in range(3):
        ours += done(plain("ada"), f"run {number}")["send_list_names"]
        clock.sleep(DAY)
        with another_airflow():
            theirs += done(plain("ada"), f"run {number}")["send_list_names"]
        clock.sleep(DAY)
    assert test_audience.lists(emulator) == sorted([ours[-1], theirs[-1]])
    assert "If nobody needs the lists: airflow mail audience prune 0123abcd" in capfd.readouterr().out + caplog.text


def test_a_renewed_secret_does_not_keep_lists(
    emulator: Emulator, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", f"secret {number}")
        last = done(test_audience.imported("ada", keep_lists=1), str(number))
        clock.sleep(DAY)
    assert test_audience.lists(emulator) == last["send_list_names"]


@pytest.mark.parametrize("arguments", [{"max_removed_fraction": 1}, DELETES], ids=["exclude", "delete"])
def test_a_copied_state_changes_no_list_and_no_contact(
    emulator: Emulator, audience: Audience, clock: Clock, arguments: dict[str, Any]
) -> None:
    """Both Airflows go on with it, as if the other one had never been."""
    for people in ("ada bob cem", "ada bob"):
        result = audience.run(people, **arguments)
        clock.sleep(DAY)
    with another_airflow():
        for people in ("ada test", "ada test test2", "ada test"):
            audience.run(people, **arguments)
            clock.sleep(DAY)
    assert {*result["send_list_names"], *result["repel_list_names"]} <= {*test_audience.lists(emulator)}
    assert {"ada", "bob"} <= {*emails(emulator).split()}
    audience.run("ada bob eva", **arguments)


def test_airflow_knows_which_lists_it_has_made(
    run_in_airflow: Run, new_dag: Callable[..., DAG], emulator: Emulator
) -> None:
    """Also those of mapped tasks, and of a run without a date."""
    arguments: dict[str, Any] = {"list_name": "friends", "exact_audience": True, "on_empty": "continue"}
    with new_dag() as dag:
        MailImportContactsOperator(task_id="one", contacts=[], **arguments)
        MailImportContactsOperator.partial(task_id="mapped", **arguments).expand(contacts=[[], []])

    for logical_date in (datetime(2026, 1, 1, tzinfo=UTC), None, datetime(2026, 12, 1, tzinfo=UTC)):
        assert run_in_airflow(dag, logical_date=logical_date).state == "success"
    made = [AudienceList.parse(name) for name in test_audience.lists(emulator)]
    stores = {(name.owner, name.store) for name in made if name is not None}
    assert (len(made), len(stores)) == (9, 2)


def test_lists_with_another_name_in_each_run_are_deleted(emulator: Emulator, clock: Clock) -> None:
    for number in range(3):
        last = done(test_audience.imported("ada", list_name=f"friends {number}", keep_lists=1), str(number))
        clock.sleep(DAY)
    assert test_audience.lists(emulator) == last["send_list_names"]


def test_phone_numbers_with_spaces(emulator: Emulator, warehouse: SqlDatabase) -> None:
    contacts = [{"email": None, "phone": "+49 30 12"}, {"email": "ada@example.com.", "phone": "(030) 13"}]
    for run_id in ("first", "second"):
        result = done(imported(contacts=contacts, columns={"email": "email", "phone": "phoneNumber"}), run_id)
    assert [result[name] for name in ("joined", "changed", "left", "size")] == [0, 0, 0, 2]
    assert [contact["email"] for contact in emulator.contacts() if contact["email"]] == ["ada@example.com"]


def test_who_clears_an_old_run_is_not_told_to_mail_again(emulator: Emulator, audience: Audience, clock: Clock) -> None:
    done(created(audience.load("ada bob", "old"), None), "old")
    sent = emulator.campaigns()
    clock.sleep(DAY)
    audience.load("ada eva", "new")
    said = error_of(lambda: done(created(audience.load("ada eva", "old"), sent[0]["mailName"]), "old"))
    assert "deleting it, mails people again" in said
    assert "delete that campaign" not in said
    assert len(emulator.campaigns()) == 1


@pytest.mark.parametrize("people", ["ada", "ada bob"])
def test_a_mapped_campaign_of_an_old_run_mails_nobody_again(
    emulator: Emulator, audience: Audience, clock: Clock, people: str
) -> None:
    """Its audience has other lists by now, also exclusion lists, and another place in the mapped list."""
    second, tasks = other(emulator), [Tries(map_index=0), Tries(map_index=1)]
    results = [audience.load("ada bob", "old"), second.load("max", "old")]
    for task, result in zip(tasks, results, strict=True):
        task.run(created(result, None))
    clock.sleep(DAY)
    audience.load(people, "new", full_every=1, max_removed_fraction=1)
    results = [second.load("max", "old"), audience.load("ada", "old", max_removed_fraction=1)]
    for task in tasks:
        task.clear()
    assert tasks[0].run(created(results[0], None))["adopted"]
    with pytest.raises(AirflowFailException, match="mark this task as success"):
        tasks[1].run(created(results[1], None))
    assert len(emulator.campaigns()) == 2


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize(("before", "arguments"), [
    ("scheduled", {}), ("scheduled", {"replace_scheduled": True}), ("draft", {}), ("sent", {}),
])  # fmt: skip
def test_a_cleared_run_whose_campaign_is_still_to_be_sent(
    emulator: Emulator, audience: Audience, clock: Clock, state: bool, before: str, arguments: dict[str, Any]
) -> None:
    """It would go to the people of the first try."""
    times: dict[str, Any] = {"scheduled": {"send_date": datetime.now(UTC) + timedelta(days=1)}, "sent": {}}
    given = times.get(before, {"only_save": True}) | arguments
    task = Tries()
    task.run(created(audience.load("ada bob", "first", changes_only=state), **given))
    clock.sleep(60)
    result = audience.load("ada eva", "first", changes_only=state)
    task.clear()
    if before == "sent" and not state:
        assert task.run(created(result))["adopted"]
    elif arguments and HAS_STORE:
        task.run(created(result, **given))
        clock.sleep(2 * DAY)
        assert mailed(emulator) == ["ada", "eva"]
    else:
        cure = {"scheduled": "replace_scheduled=True", "draft": "delete it and clear this task", "sent": "as success"}
        # Without a store, it is not known which task has created it.
        text = cure[before] if HAS_STORE else "as success"
        with pytest.raises(AirflowFailException, match=f"differs in (send|repel)_list_names: .*{text}"):
            task.run(created(result, **given))
        assert len(emulator.campaigns()) == 1
