"""Processes are killed with SIGKILL, in a real Airflow; what the service holds afterwards is counted.

With MAIL_ALL_FAULTS=1 or MAIL_ALL_CASES=1 at every step, else at every second one. In `tests/faults` and
`tests/machines` a worker ends before and after every request, without Airflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.real.airflow.crash_runs import RETRIES_KILLED_TASKS, TASK, Crash, Service, clear, run_all, some
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(1800)

CREATES, LOOKS = "campaign/mail/sends", "campaign/mail/get"
SENDS = "transactional/mail/sends_customised"
IMPORTS = "contacts/imports"

EVERYBODY = [f"reader{number:02}@example.com" for number in range(20)]
REMEMBERS = AIRFLOW_VERSION >= (3, 3)
HELD = {"seconds": 60}
"""How long a request waits; the task is killed meanwhile."""
ROWS = 40_000
CHUNKS = 40
MOST_AGAIN = 20
"""Chunks that were under way when an import was killed, or were accepted in the two seconds before."""
REQUESTS = 20
PEOPLE = {f"user{number}@example.com" for number in range(100 * REQUESTS)}
WAITING = 20


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


def tries(airflow: RunningAirflow, crash: Crash) -> int:
    return int(airflow.task(crash.dag_id, crash.run_id, TASK)["try_number"])


def campaign_crashes() -> Iterator[Crash]:
    # Held until the next try has looked for the campaign in vain; then the request of the dead one is processed.
    yield Crash("crash_campaign", held=("delay", CREATES, 0, HELD))
    points = ["before request 1", "after request 1", "after request 2", "after request 3", "before push 1"]
    for point in some([*points, "after push 1", "after push 4", "before complete 1", "after complete 1"]):
        yield Crash("crash_campaign", point)
    yield from some(
        [
            Crash("crash_campaign", "after request 1", tries=(1, 2, 3)),
            Crash("crash_campaign", "after request 2", tries=(1, 2, 3)),
            Crash("crash_campaign", held=("delay", LOOKS, 0, HELD)),
            Crash("crash_campaign", held=("delay_answer", CREATES, 0, HELD)),
            Crash("crash_campaign", held=("drip", CREATES, 0, {"bytes_per_second": 0.4})),
            # Two faults at once: the response is lost, then the process.
            Crash("crash_campaign", "after request 2", lost=("close_after", CREATES, 0, {})),
            Crash("crash_campaign", held=("delay", LOOKS, 1, HELD), lost=("close_after", CREATES, 0, {})),
        ],
        first=1,
    )


def test_a_killed_task_creates_its_campaign_once(airflow: RunningAirflow, service: Service) -> None:
    crashes = run_all(airflow, service, campaign_crashes())
    service.settle()
    if not RETRIES_KILLED_TASKS:
        assert "failed" in {crash.state for crash in crashes}
        for _ in range(4):
            clear(airflow, [crash for crash in crashes if crash.state == "failed"])

    creations = Counter(entry["body"]["mailName"] for entry in service.journal.processed(CREATES))
    problems = [
        f"{crash}: {creations[crash.case]} creations"
        for crash in crashes
        if (crash.state, creations[crash.case]) != ("success", 1)
        or service.campaign_recipients(crash.case) != EVERYBODY
        or len(service.campaigns(crash.case)) != 1
    ]
    assert not problems, "\n".join(problems)
    assert all(tries(airflow, crash) > 1 for crash in crashes)


def batch_crashes() -> Iterator[Crash]:
    points = ["before write 1", "after request 1", "before request 10", "after write 1"]
    points += [f"after request {REQUESTS}", f"after write {REQUESTS + 1}", "after request 10", "after execute 1"]
    if not REMEMBERS:
        points = [point for point in points if "write" not in point]
    for first, choice in enumerate(("fail", "skip")):
        for point in some(points, first):
            yield Crash("crash_batch", point, on_ambiguous=choice)
        for kind, params in some([("delay", HELD), ("delay_answer", HELD), ("drip", {"bytes_per_second": 0.4})], first):
            yield Crash("crash_batch", held=(kind, SENDS, 9, params), on_ambiguous=choice)
    yield Crash("crash_batch", "after request 4", tries=(1, 2, 3), on_ambiguous="skip")


@pytest.mark.ci
def test_a_killed_batch_mails_nobody_twice(airflow: RunningAirflow, service: Service) -> None:
    crashes = run_all(airflow, service, batch_crashes())
    service.settle()

    got = service.mails()
    assert max(count for mails in got.values() for count in mails.values()) == 1
    problems = [f"{crash}: {problem}" for crash in crashes if (problem := problem_of_batch(airflow, crash, got))]
    assert not problems, "\n".join(problems)

    stopped = [crash for crash in crashes if crash.state == "failed"]
    if REMEMBERS:
        the_user_decides(airflow, service, stopped)
    else:
        clear(airflow, stopped[:5])
        assert {crash.state for crash in stopped[:5]} == {"failed"}
        assert service.mails() == got


def problem_of_batch(airflow: RunningAirflow, crash: Crash, got: dict[str, Counter[str]]) -> str | None:
    """What is wrong with a run that was killed, if anything is."""
    mails = got[crash.case]
    if set(mails) - PEOPLE:
        return "somebody else was mailed"
    if crash.state == "failed":
        # Where a request may have been under way, the default is to stop; and 3.0 never gets to a second try.
        return None if crash.on_ambiguous == "fail" or not REMEMBERS else "failed although it may skip"
    result = airflow.xcom(crash.dag_id, crash.run_id, TASK)
    if result is None or result["recipients"] + result["unknown_recipients"] != len(PEOPLE):
        return f"the numbers do not add up: {result}"
    if len(mails) < result["recipients"]:
        return f"only {len(mails)} were mailed: {result}"
    return "skipped although it may not" if crash.on_ambiguous == "fail" and result["unknown_recipients"] else None


def the_user_decides(airflow: RunningAirflow, service: Service, stopped: list[Crash]) -> None:
    """Half of the runs that stopped continue behind the request in doubt, the others send it again."""
    assert stopped
    for number, crash in enumerate(stopped):
        crash.on_ambiguous = ["skip", "resend"][number % 2]
        airflow.set_variable(f"decision_{crash.case}", crash.on_ambiguous)
    clear(airflow, stopped)

    got = service.mails()
    for crash in stopped:
        result, mails = airflow.xcom(crash.dag_id, crash.run_id, TASK), got[crash.case]
        assert crash.state == "success", crash
        assert result["recipients"] + result["unknown_recipients"] == len(PEOPLE), crash
        if crash.on_ambiguous == "skip":
            assert max(mails.values()) == 1, crash
            assert len(mails) >= result["recipients"], crash
        else:
            assert set(mails) == PEOPLE, crash
            # Only those in the request that was in doubt, once more for each time that the task was killed.
            assert sum(mails.values()) - len(PEOPLE) <= 100 * len(crash.tries), crash


def import_crashes() -> Iterator[Crash]:
    points = ["before request 1", "after request 1", "after request 20", f"after request {CHUNKS}"]
    # What is stored about an import is removed at its end.
    points += ["before write 1", "after write 1", "before delete 1", "after delete 1"] if REMEMBERS else []
    for point in some(points):
        yield Crash("crash_import", point)
    yield Crash("crash_import", "after request 12", tries=(1, 2, 3))
    yield Crash("crash_import", held=("delay", IMPORTS, 25, {**HELD, "count": 2}))


def test_a_killed_import_loses_nobody(airflow: RunningAirflow, service: Service) -> None:
    # Two at once, six a second: what a try that is killed has done is stored every two seconds.
    service.change_settings(latency_seconds=0.3)
    try:
        crashes = run_all(airflow, service, import_crashes())
        if not RETRIES_KILLED_TASKS:
            assert {crash.state for crash in crashes} == {"failed"}
            for _ in range(3):
                clear(airflow, [crash for crash in crashes if crash.state == "failed"])
        service.settle()
    finally:
        service.change_settings(latency_seconds=0.0)

    held = {crash: service.contact_count(crash.case) for crash in crashes}
    assert [crash for crash in crashes if crash.state != "success" or held[crash] != ROWS] == []
    assert service.contact_count() == ROWS + len(EVERYBODY)
    assert all(tries(airflow, crash) > 1 for crash in crashes)
    requests = Counter(body["listName"] for body in service.bodies(IMPORTS))
    for crash in crashes:
        check_import(airflow, crash, requests[crash.case] - CHUNKS)


def check_import(airflow: RunningAirflow, crash: Crash, again: int) -> None:
    """The result has what the run did, which sent no more chunks again than it must."""
    result = airflow.xcom(crash.dag_id, crash.run_id, TASK)
    earlier = result["accepted_earlier"] // (ROWS // CHUNKS)
    assert (result["read"], result["accepted"], result["rejected"]) == (ROWS, ROWS, 0), crash
    assert result["requests"] + earlier == CHUNKS, crash
    if not REMEMBERS or crash.point == "after delete 1":  # the record was not there, or no longer
        assert earlier == 0, crash
    else:
        assert again <= MOST_AGAIN * len(crash.tries), crash
        assert crash.point != "before delete 1" or earlier == CHUNKS, crash


def test_campaigns_wait_while_the_triggerer_and_the_api_server_go(airflow: RunningAirflow, service: Service) -> None:
    def all_wait() -> bool:
        return Counter(airflow.task_states("crash_waiting", run_id).values()) == {"deferred": WAITING}

    def created() -> list[str]:
        names = (entry["body"]["mailName"] for entry in service.journal.processed(CREATES))
        return sorted(name for name in names if name.startswith("waiting"))

    service.change_settings(sending_seconds=1e6)
    run_id = airflow.start_run("crash_waiting")
    wait_until(all_wait, what="all wait")
    assert len(before := created()) == WAITING

    airflow.kill("triggerer")
    assert airflow.slots()["occupied"] == 0
    airflow.restart("triggerer")
    looks = service.journal.count(LOOKS)
    wait_until(lambda: service.journal.count(LOOKS) > looks + 2, what="the triggerer polls again")

    batch = Crash("crash_batch")
    service.change_settings(latency_seconds=0.5)
    batch.run_id = airflow.start_run("crash_batch", conf=batch.conf)
    wait_until(lambda: len(service.mails()[batch.case]) > 300, what="a batch in its middle")
    airflow.kill("api-server")
    airflow.restart("api-server")
    service.change_settings(latency_seconds=0.0)
    wait_until(all_wait, what="all wait")

    service.clock.advance(days=30)
    assert airflow.wait_for_run("crash_waiting", run_id) == "success"
    assert created() == before
    assert all(service.campaign_recipients(name) == EVERYBODY for name in before)
    batch.state = airflow.wait_for_run("crash_batch", batch.run_id)
    mails = service.mails()[batch.case]
    assert max(mails.values()) == 1
    assert batch.state == "failed" or set(mails) == PEOPLE
