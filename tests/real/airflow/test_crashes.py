"""Processes are killed with SIGKILL, in a real Airflow; what the service holds afterwards is counted.

With MAIL_ALL_FAULTS=1 or MAIL_ALL_CASES=1 at every step, else at every second one. In `tests/machines` a process ends
at any request and any write of its record, without Airflow.
MAIL_CRASH_POINTS=200 adds so many points by chance, MAIL_CRASH_SEED other ones.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.real.airflow.crash_runs import (
    RETRIES_KILLED_TASKS,
    TASK,
    Crash,
    Service,
    chance,
    clear,
    more_points,
    run_all,
    some,
)
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(1800 + 30 * more_points())

CREATES, LOOKS = "campaign/mail/sends", "campaign/mail/get"
SENDS = "transactional/mail/sends_customised"
IMPORTS = "contacts/imports"

EVERYBODY = [f"reader{number:02}@example.com" for number in range(20)]
CHOICES = ["fail", "skip"]
REMEMBERS = AIRFLOW_VERSION >= (3, 3)
ROWS = 40_000
CHUNKS = 40
MOST_AGAIN = 20
"""Chunks that were under way when an import was killed, or were accepted in the two seconds before."""
REQUESTS = 20
PEOPLE = {f"user{number}@example.com" for number in range(100 * REQUESTS)}
WAITING = 20
PATIENCE = 600 + 30 * more_points()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service") / "service.db") as service:
        service.add_sender("news@example.com")
        service.add_list("everybody", EVERYBODY)
        yield service
        assert service.crashes() == []


@pytest.fixture(scope="module", autouse=True)
def connections(airflow: RunningAirflow, postgres_server: PostgresServer, service: Service) -> Iterator[None]:
    airflow.set_mail_connection("mail_default", service)
    with postgres_server.database() as crm:
        airflow.set_connection("crm", crm.airflow_connection)
        with crm.connect() as connection:
            connection.execute(
                "CREATE TABLE people AS SELECT id, 'person' || id || '@example.com' AS email, 'Person ' || id AS name "
                f"FROM generate_series(1, {ROWS}) AS id"
            )
        yield


def campaign_crashes() -> Iterator[Crash]:
    points = ["before request 1", "after request 1", "after request 2", "after request 3", "before push 1"]
    points += ["after push 1", "after push 4", "before complete 1", "after complete 1"]
    # Held so long that the next try has looked, and found nothing, before the request of the dead one is carried out.
    yield Crash("crash_campaign", held=("delay", CREATES, 0, {"seconds": 15}))
    for point in some(points):
        yield Crash("crash_campaign", point)
    others = [
        Crash("crash_campaign", "after request 1", tries=(1, 2, 3)),
        Crash("crash_campaign", "after request 2", tries=(1, 2, 3)),
        Crash("crash_campaign", held=("delay", LOOKS, 0, {"seconds": 8})),
        Crash("crash_campaign", held=("delay_answer", CREATES, 0, {"seconds": 8})),
        Crash("crash_campaign", held=("drip", CREATES, 0, {"bytes_per_second": 5})),
        # Two misfortunes at once: the answer is lost, then the process.
        Crash("crash_campaign", "after request 2", lost=("close_after", CREATES, 0, {})),
        Crash("crash_campaign", held=("delay", LOOKS, 1, {"seconds": 8}), lost=("close_after", CREATES, 0, {})),
    ]
    yield from some(others, first=1)
    for number in range(more_points()):
        draw = chance(number)
        point = draw.choice([*points, *(f"{when} request {count}" for when in ("before", "after") for count in (1, 2))])
        lost = (draw.choice(["close_before", "close_after", "reset_after", "html_after"]), CREATES, 0, {})
        tries = draw.choice([(1,), (1, 2), (1, 2, 3), (1, 3)])
        yield Crash("crash_campaign", point, tries=tries, lost=draw.choice([None, lost]))


def test_a_killed_task_creates_its_campaign_once(airflow: RunningAirflow, service: Service) -> None:
    crashes = run_all(airflow, service, campaign_crashes(), timeout=PATIENCE)
    service.settle()
    if not RETRIES_KILLED_TASKS:
        assert "failed" in {crash.state for crash in crashes}
        for _ in range(4):
            clear(airflow, [crash for crash in crashes if crash.state == "failed"])

    creations = Counter(entry["body"]["mailName"] for entry in service.journal.processed(CREATES))
    requests = Counter(body["mailName"] for body in service.bodies(CREATES))
    problems = [
        f"{crash}: {crash.state}, {creations[crash.case]} creations"
        for crash in crashes
        if (crash.state, creations[crash.case]) != ("success", 1)
        or service.campaign_recipients(crash.case) != EVERYBODY
        or len(service.campaigns(crash.case)) != 1
    ]
    print(
        f"\ncampaigns: {len(crashes)} runs killed, {len(requests)} campaigns, {sum(requests.values())} requests to "
        f"create, {sum(creations.values())} carried out, {len(problems)} problems"
    )
    assert not problems, "\n".join(problems)
    assert all(_tries(airflow, crash) > 1 for crash in crashes)


def _tries(airflow: RunningAirflow, crash: Crash) -> int:
    tries: int = airflow.task(crash.dag_id, crash.run_id, TASK)["try_number"]
    return tries


def batch_crashes() -> Iterator[Crash]:
    points = ["before write 1", "after write 1", "after request 1", "before request 10", "after request 10"]
    points += [f"after request {REQUESTS}", f"after write {REQUESTS + 1}", "after execute 1"]
    if not REMEMBERS:
        points = [point for point in points if "write" not in point]
    faults = [("delay", {"seconds": 8}), ("delay_answer", {"seconds": 8}), ("drip", {"bytes_per_second": 1})]
    for first, choice in enumerate(CHOICES):
        for point in some(points, first):
            yield Crash("crash_batch", point, on_ambiguous=choice)
        for fault, params in some(faults, first):
            yield Crash("crash_batch", held=(fault, SENDS, 9, params), on_ambiguous=choice)
    yield Crash("crash_batch", "after request 4", tries=(1, 2, 3), on_ambiguous="skip")
    for number in range(more_points()):
        draw = chance(number)
        where = draw.choice(["before request", "after request", "before write", "after write"])
        tries = draw.choice([(1,), (1, 2), (1, 2, 3)])
        yield Crash(
            "crash_batch", f"{where} {draw.randint(1, REQUESTS)}", tries=tries, on_ambiguous=draw.choice(CHOICES)
        )


@pytest.mark.ci
def test_a_killed_batch_mails_nobody_twice(airflow: RunningAirflow, service: Service) -> None:
    crashes = run_all(airflow, service, batch_crashes(), timeout=PATIENCE)
    service.settle()

    got = service.mails()
    finished = [crash for crash in crashes if crash.state == "success"]
    problems = []
    for crash in crashes:
        mails = got[crash.case]
        told = airflow.xcom(crash.dag_id, crash.run_id, TASK) if crash in finished else None
        if (problem := _problem_of_batch(crash, mails, told)) is not None:
            problems.append(f"{crash}: {crash.state}, {told}: {problem}")
    twice = sum(count > 1 for mails in got.values() for count in mails.values())
    print(
        f"\nbatches: {len(crashes)} runs killed, {sum(map(len, got.values()))} people mailed, {twice} twice, "
        f"{len(finished)} finished by Airflow's retry, {len(crashes) - len(finished)} stopped, {len(problems)} problems"
    )
    assert twice == 0
    assert not problems, "\n".join(problems)

    stopped = [crash for crash in crashes if crash.state == "failed"]
    if REMEMBERS:
        _the_user_decides(airflow, service, stopped)
    else:
        clear(airflow, stopped[:5])
        assert {crash.state for crash in stopped[:5]} == {"failed"}
        assert service.mails() == got


def _problem_of_batch(crash: Crash, mails: Counter[str], told: dict[str, int] | None) -> str | None:
    """What is wrong with a run that was killed, if anything is."""
    if set(mails) - PEOPLE:
        return "somebody else was mailed"
    if crash.state == "failed":
        # Where a request may have been under way, the default is to stop; and 3.0 never gets to a second try.
        expected = crash.on_ambiguous == "fail" or not REMEMBERS
        return None if expected else "failed although it may skip"
    if told is None or told["recipients"] + told["unknown_recipients"] != len(PEOPLE):
        return "the numbers do not add up"
    if len(mails) < told["recipients"]:
        return f"{told['recipients'] - len(mails)} were left out without saying so"
    if crash.on_ambiguous == "fail" and told["unknown_recipients"]:
        return "skipped although it may not"
    return None


def _the_user_decides(airflow: RunningAirflow, service: Service, stopped: list[Crash]) -> None:
    """Half of the runs that stopped go on behind the request in doubt, the others send it again."""
    assert stopped
    for number, crash in enumerate(stopped):
        crash.on_ambiguous = ["skip", "resend"][number % 2]
        airflow.set_variable(f"decision_{crash.case}", crash.on_ambiguous)
    clear(airflow, stopped)

    got = service.mails()
    for crash in stopped:
        told = airflow.xcom(crash.dag_id, crash.run_id, TASK)
        mails = got[crash.case]
        assert crash.state == "success", crash
        assert told["recipients"] + told["unknown_recipients"] == len(PEOPLE), crash
        if crash.on_ambiguous == "skip":
            assert max(mails.values()) == 1, crash
            assert len(mails) >= told["recipients"], crash
        else:
            assert set(mails) == PEOPLE, crash
            # Only those in the request that was in doubt, once more for each time that the task was killed.
            assert sum(mails.values()) - len(PEOPLE) <= 100 * len(crash.tries), crash


def import_crashes() -> Iterator[Crash]:
    points = ["before request 1", "after request 1", "after request 20", f"after request {CHUNKS}"]
    # What is written down of an import is removed at its end.
    points += ["before write 1", "after write 1", "before delete 1", "after delete 1"] if REMEMBERS else []
    for point in some(points):
        yield Crash("crash_import", point)
    yield Crash("crash_import", "after request 12", tries=(1, 2, 3))
    yield Crash("crash_import", held=("delay", IMPORTS, 25, {"seconds": 8, "count": 2}))
    for number in range(more_points() // 10):
        draw = chance(number)
        yield Crash("crash_import", f"{draw.choice(['before', 'after'])} request {draw.randint(1, CHUNKS)}")


def test_a_killed_import_loses_nobody(airflow: RunningAirflow, service: Service) -> None:
    # Two at once, six a second: what a try that is killed has done is written down every two seconds.
    service.change_settings(latency_seconds=0.3)
    try:
        crashes = run_all(airflow, service, import_crashes(), timeout=PATIENCE)
        if not RETRIES_KILLED_TASKS:
            assert {crash.state for crash in crashes} == {"failed"}
            for _ in range(3):
                clear(airflow, [crash for crash in crashes if crash.state == "failed"])
        service.settle()
    finally:
        service.change_settings(latency_seconds=0.0)

    held = {crash.case: service.contact_count(crash.case) for crash in crashes}
    requests = Counter(body["listName"] for body in service.bodies(IMPORTS))
    again = {crash: requests[crash.case] - CHUNKS for crash in crashes}
    told = ", ".join(f"{count} ({crash.point or crash.held})" for crash, count in again.items())
    print(
        f"\nimports: {len(crashes)} runs killed; contacts in each list: {sorted(set(held.values()))}; "
        f"of {CHUNKS} chunks were sent again: {told}"
    )
    assert [str(crash) for crash in crashes if crash.state != "success" or held[crash.case] != ROWS] == []
    assert service.contact_count() == ROWS + len(EVERYBODY)
    assert all(_tries(airflow, crash) > 1 for crash in crashes)
    problems = [problem for crash in crashes if (problem := _problem_of_import(airflow, crash, again[crash]))]
    assert not problems, "\n".join(problems)


def _problem_of_import(airflow: RunningAirflow, crash: Crash, again: int) -> str | None:
    """Whether a run told what it did, and sent more again than it must."""
    told = airflow.xcom(crash.dag_id, crash.run_id, TASK)
    earlier = told["accepted_earlier"] // (ROWS // CHUNKS)
    if (told["read"], told["accepted"], told["rejected"]) != (ROWS, ROWS, 0) or told["requests"] + earlier != CHUNKS:
        return f"{crash}: {told}: the numbers do not add up"
    if not REMEMBERS or crash.point == "after delete 1":
        # The record was not there, or no longer.
        return f"{crash}: {told}: nothing can be remembered" if earlier else None
    if again > MOST_AGAIN * len(crash.tries):
        return f"{crash}: {told}: {again} chunks were sent again"
    return f"{crash}: {told}: all was accepted" if crash.point == "before delete 1" and earlier != CHUNKS else None


def test_campaigns_wait_while_the_triggerer_and_the_api_server_go(airflow: RunningAirflow, service: Service) -> None:
    service.change_settings(sending_seconds=1e6)
    run_id = airflow.start_run("crash_waiting")
    _wait_for_states(airflow, run_id, {"deferred": WAITING})
    created = _creations_of(service, "waiting")
    assert len(created) == WAITING

    airflow.kill("triggerer")
    assert airflow.slots()["occupied"] == 0
    airflow.restart("triggerer")
    looks = service.journal.count(LOOKS)
    wait_until(lambda: service.journal.count(LOOKS) > looks + 2, what="the triggerer looks again")

    batch = Crash("crash_batch", on_ambiguous="fail")
    service.change_settings(latency_seconds=0.5)
    batch.run_id = airflow.start_run("crash_batch", conf=batch.conf)
    wait_until(lambda: len(service.mails()[batch.case]) > 300, what="a batch in its middle")
    airflow.kill("api-server")
    time.sleep(5)
    airflow.restart("api-server")
    service.change_settings(latency_seconds=0.0)
    _wait_for_states(airflow, run_id, {"deferred": WAITING})

    service.clock.advance(days=30)
    assert airflow.wait_for_run("crash_waiting", run_id) == "success"

    assert _creations_of(service, "waiting") == created
    for name in created:
        assert service.campaign_recipients(name) == EVERYBODY
    batch.state = airflow.wait_for_run("crash_batch", batch.run_id)
    mails = service.mails()[batch.case]
    print(f"\nbatch while the API server was gone: {batch.state}, {len(mails)} people mailed")
    assert max(mails.values()) == 1
    assert batch.state == "failed" or set(mails) == PEOPLE


def _wait_for_states(airflow: RunningAirflow, run_id: str, states: dict[str, int]) -> None:
    def look() -> bool:
        return Counter(airflow.task_states("crash_waiting", run_id).values()) == states

    wait_until(look, what=str(states))


def _creations_of(service: Service, prefix: str) -> list[str]:
    """Names of the campaigns that were created, one for each time."""
    names = (entry["body"]["mailName"] for entry in service.journal.processed(CREATES))
    return sorted(name for name in names if name.startswith(prefix))
