"""Importing many contacts: what the service receives, what is counted, and how an import ends."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_provider_mail.api._core.interrupt import Interrupt, Workers
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.contacts import UpdateMode
from airflow_provider_mail.api.errors import (
    MailAnswerLostError,
    MailAuthError,
    MailRejectedError,
    MailServerError,
    MailValidationError,
)
from airflow_provider_mail.api.flows.import_contacts import batches, import_contacts
from airflow_provider_mail.api.flows.import_plan import ImportCheckpoint, ImportPlan, Progress
from airflow_provider_mail.api.flows.upload_chunks import MAX_REJECTED_ROWS
from airflow_provider_mail.api.flows.validate_rows import CheckedRows, Reject, Row
from airflow_provider_mail.emulator import Emulator
from benchmarks.contact_import import sink
from tests.api.driving import QUICK
from tests.support.processes import PATIENCE, wait_until

IMPORTS = "contacts/imports"
PROPERTIES = ("email", "name", "phoneNumber")


def address(number: int) -> str:
    return f"p{number}@example.com"


def people(count: int, first: int = 1) -> list[Row]:
    """Contacts that are numbered as their rows are."""
    return [(address(number), f"Person {number}", f"+49 {number}") for number in range(first, first + count)]


class Import:
    """An import into a service, with what was heard of it."""

    def __init__(self, base_url: str, **settings: Any) -> None:
        self._config = ClientConfig(
            **{"base_url": base_url, "api_key": "emulator-api-key", "retry": QUICK, "timeout": 60, **settings}
        )
        self.progress = Progress()
        self.rejects: list[Reject] = []
        self.heard: list[tuple[int, int, int]] = []

    def run(
        self, source: Iterator[Sequence[Row]] | Sequence[Row], checkpoint: ImportCheckpoint | None = None, **plan: Any
    ) -> Progress:
        """Import batches, or rows to be cut into chunks."""
        made = ImportPlan(**{"properties": PROPERTIES, "chunk_size": 10, "max_in_flight": 4, **plan})
        chunks = batches(source, made.chunk_size) if isinstance(source, list) else source
        with MailClient(self._config) as client:
            done = import_contacts(
                client,
                chunks,
                made,
                on_reject=self.rejects.append,
                on_progress=self._hear,
                progress=self.progress,
                memory=checkpoint,
            )
        assert done is self.progress
        return done

    def _hear(self, progress: Progress) -> None:
        self.heard.append((progress.accepted, progress.rejected, progress.requests))

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.progress.read, self.progress.accepted, self.progress.rejected


@pytest.fixture
def job(emulator: Emulator) -> Import:
    """An import into the emulator."""
    return Import(emulator.base_url)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mail-import")]


def imported(emulator: Emulator) -> list[str]:
    return sorted(contact["email"] for contact in emulator.contacts())


def chunk_sizes(emulator: Emulator) -> Counter[int]:
    return Counter(len(entry["body"]["contactData"]) for entry in emulator.journal.entries(IMPORTS))


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Future[Any]]:
    """The futures of all chunks that were given to the threads; one is done when its response was evaluated."""
    futures: list[Future[Any]] = []
    submit = Workers.submit

    def recorded(self: Workers[Any], *arguments: Any) -> Future[Any]:
        futures.append(submit(self, *arguments))
        return futures[-1]

    monkeypatch.setattr(Workers, "submit", recorded)
    return futures


# --- what arrives ---


def test_every_contact_arrives_once_as_it_was(job: Import, emulator: Emulator) -> None:
    done = job.run(people(95), list_name="all", list_description="Everybody")

    assert job.counts == (95, 95, 0)
    assert done.requests == 10
    assert chunk_sizes(emulator) == {10: 9, 5: 1}
    sent = [row for entry in emulator.journal.entries(IMPORTS) for row in entry["body"]["contactData"]]
    assert sorted(sent) == sorted(map(list, people(95)))
    assert emulator.contact_count("all") == 95
    found = emulator.contact(address(7))
    assert found is not None
    assert (found["name"], found["phoneNumber"]) == ("Person 7", "+49 7")


def test_what_the_plan_says_is_asked_for_in_every_request(job: Import, emulator: Emulator) -> None:
    job.run(
        [(f"+1 {n}", None, n) for n in range(25)],
        properties=("phoneNumber", "email", "customer"),
        update_mode=UpdateMode.CREATE_ONLY,
        list_name="L",
        list_description="D",
        sandbox_mode=True,
        null_value="",
    )

    asked = [dict(entry["body"]) for entry in emulator.journal.entries(IMPORTS)]
    assert sorted(row for body in asked for row in body.pop("contactData")) == sorted(
        [f"+1 {n}", "", str(n)] for n in range(25)
    )
    assert asked == 3 * [
        {
            "contactDataMapping": [
                {"columnNum": 0, "propertyName": "phoneNumber"},
                {"columnNum": 1, "propertyName": "email"},
                {"columnNum": 2, "propertyName": "customer"},
            ],
            "updateMode": 2,
            "listName": "L",
            "listDescription": "D",
            "sandboxMode": True,
        }
    ]
    assert emulator.contact_count() == 0


def test_a_sandboxed_connection_sandboxes_every_chunk(emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(3),))
    job = Import(emulator.base_url, sandbox=True)
    job.run(people(30))

    assert job.counts == (30, 29, 1)
    assert all(entry["body"]["sandboxMode"] is True for entry in emulator.journal.entries(IMPORTS))
    assert emulator.contact_count() == 0


def test_nothing_is_sent_for_nothing(job: Import, emulator: Emulator) -> None:
    assert job.run([]).requests == 0
    assert job.run([("nobody", None, None)] * 30).requests == 0
    assert job.counts == (30, 0, 30)
    assert emulator.journal.count() == 0


# --- rows that are set aside ---


def test_bad_rows_are_set_aside_by_their_place_in_the_source(job: Import, emulator: Emulator) -> None:
    rows = people(100)
    bad = {1: "x", 10: None, 11: "a@b", 57: 7, 100: "a b@c.de"}
    for number, email in bad.items():
        rows[number - 1] = (email, "?", "")
    job.run(rows)

    assert job.counts == (100, 95, 5)
    assert [reject.row_number for reject in job.rejects] == list(bad)
    assert {reject.field for reject in job.rejects} == {"email"}
    assert [reject.row for reject in job.rejects] == [rows[number - 1] for number in bad]
    assert imported(emulator) == sorted(address(number) for number in range(1, 101) if number not in bad)


def test_rows_that_the_service_refuses_are_found(job: Import, emulator: Emulator) -> None:
    bad, poison = (3, 12, 50), (1, 4, 20, 21, 22, 49, 51, 99)
    emulator.change_settings(refused_addresses=tuple(map(address, poison)))
    rows = people(100)
    for number in bad:
        rows[number - 1] = ("nobody", "?", None)
    done = job.run(rows, chunk_size=25)

    assert job.counts == (100, 89, 11)
    refused = {reject.row_number: reject for reject in job.rejects if not reject.field}
    assert sorted(refused) == list(poison)
    for number, reject in refused.items():
        assert list(reject.row) == list(rows[number - 1])
        assert reject.reason.startswith("rejected by the service (code 400): ")
        assert address(number) not in reject.reason
    assert imported(emulator) == sorted(address(n) for n in range(1, 101) if n not in (*bad, *poison))
    assert done.requests == emulator.journal.count()


def test_many_refused_rows_are_set_aside_as_long_as_others_are_wanted(job: Import, emulator: Emulator) -> None:
    poison = range(1, 2 * MAX_REJECTED_ROWS)  # all at the beginning of one chunk
    emulator.change_settings(refused_addresses=tuple(map(address, poison)))
    job.run(people(400), chunk_size=400)

    assert [reject.row_number for reject in job.rejects] == list(poison)
    assert imported(emulator) == sorted(address(number) for number in range(len(poison) + 1, 401))


def test_a_chunk_that_is_too_long_for_the_service_goes_in_pieces(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(import_max_rows=30)
    done = job.run(people(300), chunk_size=100)

    assert job.counts == (300, 300, 0)
    assert done.requests == 3 * (1 + 2 + 4)
    assert emulator.contact_count() == 300


@pytest.mark.not_unit
def test_a_refusal_that_is_not_about_rows_ends_the_import_soon(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(contact_properties=())
    with pytest.raises(MailRejectedError, match="unknown propertyName customer"):
        job.run(people(100_000), properties=("email", "customer", "phoneNumber"), chunk_size=5000)

    assert job.rejects == []
    assert (job.progress.accepted, job.progress.rejected) == (0, 0)
    assert job.progress.requests == emulator.journal.count()
    # At most four chunks were under way; in each, two halves at each of 13 levels led to single rows, and these came
    # in pairs.
    assert emulator.journal.count() <= 4 * (2 * 13 + 2 * MAX_REJECTED_ROWS)


@pytest.mark.not_unit
@pytest.mark.parametrize(
    ("quota", "chunk_size"),
    [(990, 1000), (990, 100), (0, 30), (1, 10), (500, 5000), (100 - MAX_REJECTED_ROWS, 100), (998, 10)],
)
def test_rows_are_not_wrong_because_the_account_is_full(
    job: Import, emulator: Emulator, quota: int, chunk_size: int
) -> None:
    emulator.change_settings(contact_quota=quota)
    with pytest.raises(MailRejectedError, match="contact quota exceeded"):
        job.run(people(1000), chunk_size=chunk_size)

    assert job.rejects == []
    assert job.progress.rejected == 0
    assert job.progress.accepted == emulator.contact_count() <= quota
    # What was sought in the chunks under way, of which there are four.
    assert emulator.journal.count() <= 1000 / chunk_size + 4 * (2 * 13 + 2 * MAX_REJECTED_ROWS)


def test_refused_rows_that_were_found_before_the_account_was_full_stay_known(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(contact_quota=150, refused_addresses=(address(3), address(77)))
    with pytest.raises(MailRejectedError, match="the rows are not the cause"):
        job.run(people(200), chunk_size=100, max_in_flight=1)

    assert [reject.row_number for reject in job.rejects] == [3, 77]
    assert emulator.contact_count() == job.progress.accepted == 150


@pytest.mark.parametrize("properties", [("phoneNumber",), ("email", "phoneNumber"), ("name", "phoneNumber", "email")])
def test_what_is_asked_about_the_account_changes_nothing(
    job: Import, emulator: Emulator, properties: tuple[str, ...]
) -> None:
    whole = {"email": address, "phoneNumber": lambda n: f"+49 30 {n}", "name": lambda n: f"N{n}"}
    rows = [tuple(whole[name](number) for name in properties) for number in range(1, 41)]
    emulator.change_settings(contact_quota=35)
    with pytest.raises(MailRejectedError, match="the rows are not the cause"):
        job.run(rows, chunk_size=40, properties=properties)

    (asked,) = [entry["body"] for entry in emulator.journal.entries(IMPORTS) if entry["body"].get("sandboxMode")]
    assert len(asked["contactData"]) == 1
    assert list(asked["contactData"][0]) not in [list(row) for row in rows]
    assert emulator.contact_count() == 35


def test_an_import_that_only_updates_is_judged_by_a_contact_that_exists(job: Import, emulator: Emulator) -> None:
    for number in range(1, 31):
        emulator.add_contact(address(number))
    emulator.change_settings(refused_addresses=(address(3),))
    job.run(people(30), chunk_size=30, update_mode=UpdateMode.UPDATE_ONLY)

    assert [reject.row_number for reject in job.rejects] == [3]
    (asked,) = [entry["body"] for entry in emulator.journal.entries(IMPORTS) if entry["body"].get("sandboxMode")]
    assert asked["contactData"][0][0] in {address(number) for number in range(1, 31) if number != 3}


def test_an_import_that_only_updates_and_finds_nobody_is_not_judged_at_all(job: Import, emulator: Emulator) -> None:
    emulator.faults.add("code_before", IMPORTS, count=None, code=404, message="there is no such contact")
    job.run(people(4), update_mode=UpdateMode.UPDATE_ONLY)

    assert [reject.row_number for reject in job.rejects] == [1, 2, 3, 4]
    assert not any(entry["body"].get("sandboxMode") for entry in emulator.journal.entries(IMPORTS))


def test_what_the_service_says_beside_success_is_counted_and_logged(
    job: Import, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    words = f"12 rows were ignored, {address(3)} among them"
    emulator.faults.add("code_after", IMPORTS, skip=1, count=2, code=200, message=words)
    done = job.run(people(50))

    assert job.counts == (50, 50, 0)
    assert done.remarks == 2
    assert caplog.text.count("12 rows were ignored") == 2
    assert address(3) not in caplog.text


# --- how an import ends early ---


def test_refused_credentials_end_the_import_at_once(emulator: Emulator, submitted: list[Future[Any]]) -> None:
    job = Import(emulator.base_url, api_key="wrong")
    taken: list[int] = []

    def source() -> Iterator[list[Row]]:
        for number in range(100):
            # However slow the source is, the refusal is noticed before the next chunk but one.
            wait(submitted)
            taken.append(number)
            yield people(10)

    with pytest.raises(MailAuthError):
        job.run(source())

    assert len(taken) <= 2
    assert emulator.journal.count() <= len(taken)
    assert job.rejects == []
    assert job.progress.accepted == 0


@pytest.mark.parametrize(
    ("fault", "params"),
    [
        ("refuse", {}),
        ("close_before", {}),
        ("reset_before", {}),
        ("close_after", {}),
        ("reset_after", {}),
        ("cut_body", {}),
        ("html_before", {}),
        ("html_after", {}),
        ("cut_json", {}),
        ("empty_body", {}),
        ("http_error_before", {}),
        ("http_error_after", {}),
        ("code_before", {}),
        ("code_after", {}),
        ("too_many_requests", {"retry_after": 0}),
        ("too_many_requests", {"retry_after": None}),
    ],
)
def test_a_fault_in_the_middle_is_overcome(job: Import, emulator: Emulator, fault: str, params: dict[str, Any]) -> None:
    emulator.faults.add(fault, IMPORTS, skip=3, count=2, **params)
    job.run(people(100))

    assert [each["struck"] for each in emulator.faults.list()] == [2]
    assert job.counts == (100, 100, 0)
    assert emulator.contact_count() == 100
    assert emulator.journal.count() == 12


@pytest.mark.parametrize(
    ("fault", "error"), [("close_before", MailAnswerLostError), ("http_error_before", MailServerError)]
)
def test_a_lasting_fault_ends_the_import_with_true_counts(
    job: Import, emulator: Emulator, fault: str, error: type[Exception]
) -> None:
    emulator.faults.add(fault, IMPORTS, skip=20, count=None)
    with pytest.raises(error):
        job.run(people(100_000))

    assert job.progress.accepted == emulator.contact_count() == 200
    assert job.progress.rejected == 0
    # Four in flight, six waiting, and the one that was just read.
    assert job.progress.read <= 200 + 11 * 10


@pytest.mark.parametrize("known", [0, 1])
def test_a_fault_while_refused_rows_are_sought_keeps_what_is_known(job: Import, emulator: Emulator, known: int) -> None:
    emulator.change_settings(refused_addresses=(address(1),))
    # 32 rows, refused down to the first one: all halves beside it are accepted. Then the connection fails before or
    # after it is found out that the row was the reason.
    emulator.faults.add("close_before", IMPORTS, skip=1 + 2 * 5 + known, count=None)
    with pytest.raises(MailAnswerLostError):
        job.run(people(64), chunk_size=32, max_in_flight=1)

    assert job.counts == (64, 31, known)
    assert [reject.row_number for reject in job.rejects] == [1][:known]
    assert emulator.contact_count() == 31


def test_an_error_of_the_source_is_passed_on_after_what_is_under_way(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(latency_seconds=0.05)

    def source() -> Iterator[list[Row]]:
        for number in range(3):
            yield people(10, first=1 + 10 * number)
        raise RuntimeError("the database went away")

    with pytest.raises(RuntimeError, match="the database went away"):
        job.run(source())

    assert job.progress.read == 30
    assert job.progress.accepted == emulator.contact_count()
    assert job.progress.requests == emulator.journal.count()


def test_an_error_of_the_caller_s_own_is_passed_on(job: Import, emulator: Emulator) -> None:
    def full(progress: Progress) -> None:
        raise OSError("no space left")

    job._hear = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space left"):
        job.run(people(100))
    assert job.progress.accepted == emulator.contact_count()


def test_what_waited_is_not_sent_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Interrupt.stop
    with Gate() as gate:
        job = Import(gate.base_url)

        def stopped(self: Interrupt) -> None:
            stop(self)
            gate.open()

        monkeypatch.setattr(Interrupt, "stop", stopped)

        def source() -> Iterator[list[Row]]:
            for number in range(4):
                yield people(10, first=1 + 10 * number)
            gate.wait_for(2)
            raise RuntimeError("the database went away")

        with pytest.raises(RuntimeError):
            job.run(source(), max_in_flight=2)

        assert gate.most == gate.requests == 2
        assert job.counts == (40, 20, 0)


# --- how much at once ---


class Gate:
    """A service that answers nothing before it is opened, and counts who stands in front of it."""

    def __init__(self) -> None:
        gate, self._open, self._lock = self, threading.Event(), threading.Lock()
        self.waiting = self.most = self.requests = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                gate._arrive()
                body = json.dumps({"code": 200, "message": ""}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"

    def _arrive(self) -> None:
        with self._lock:
            self.requests += 1
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        self._open.wait(PATIENCE)
        with self._lock:
            self.waiting -= 1

    def wait_for(self, count: int) -> None:
        wait_until(lambda: self.waiting >= count, what=f"{count} requests", timeout=60, interval=0.01)

    def open(self) -> None:
        self._open.set()

    def __enter__(self) -> Gate:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.mark.parametrize(("of_plan", "of_connection"), [(3, 16), (16, 3)])
def test_no_more_is_in_flight_than_plan_and_connection_allow(of_plan: int, of_connection: int) -> None:
    read = 0

    def source() -> Iterator[list[Row]]:
        nonlocal read
        for _ in range(60):
            read += 1
            yield people(10)

    def watch() -> None:
        gate.wait_for(3)
        # The reader stops too: what waits is bounded, however fast the source is.
        wait_until(lambda: read >= 3 + 3, what="reading", timeout=60, interval=0.01)
        looks.append((gate.waiting, read))
        gate.open()

    looks: list[tuple[int, int]] = []
    with Gate() as gate:
        watcher = threading.Thread(target=watch)
        watcher.start()
        Import(gate.base_url, max_in_flight=of_connection).run(source(), max_in_flight=of_plan)
        watcher.join()

    assert looks == [(3, 3 + 3)]
    assert gate.most == 3
    assert gate.requests == 60


def test_the_connection_s_rate_holds_for_all_threads_together(emulator: Emulator) -> None:
    job = Import(emulator.base_url, requests_per_second=20)
    job.run(people(16, first=1), chunk_size=1, max_in_flight=16)

    arrivals = [entry["real_ms"] for entry in emulator.journal.entries(IMPORTS)]
    # 15 gaps of 50 ms; the first may have come late.
    assert max(arrivals) - min(arrivals) > 500
    assert job.counts == (16, 16, 0)


@pytest.mark.not_unit
def test_memory_does_not_grow_with_the_rows() -> None:
    def peak(rows: int) -> int:
        # So slow a service that all places are taken all the time.
        with sink.running(300) as service:
            job = Import(f"http://127.0.0.1:{service.port}")
            tracemalloc.start()
            try:
                job.run((people(500, first) for first in range(1, rows, 500)), chunk_size=500, max_in_flight=8)
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert service.received is not None
        assert service.received.contacts == job.progress.accepted == rows
        # On a busy machine rows may be made more slowly than the service takes them.
        assert service.received.most_in_flight >= 4 or rows == 30_000
        return most

    few, many = peak(30_000), peak(80_000)
    # Kept as they came, the rows between would be some 16 MB; encoded, 2.5 MB.
    assert many < few + 1_000_000


# --- what an earlier try had accepted ---


class Notes:
    """Recalls what it is told to, by place of the chunk, and notes what was accepted."""

    def __init__(self, **recalled: list[int]) -> None:
        self._recalled = {int(name.removeprefix("chunk")): refused for name, refused in recalled.items()}
        self.asked: list[tuple[int, int, int]] = []
        self.accepted_chunks: dict[int, list[int]] = {}
        self.threads: set[int] = set()

    def lookup(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        self.threads.add(threading.get_ident())
        self.asked.append((chunk, first_number, len(checked.numbers)))
        return self._recalled.get(chunk)

    def prepare(self, chunk: int) -> None:
        pass

    def accepted(self, chunk: int, refused: Sequence[int]) -> None:
        self.threads.add(threading.get_ident())
        assert chunk not in self.accepted_chunks
        self.accepted_chunks[chunk] = sorted(refused)


def test_every_chunk_is_noted_with_the_rows_that_the_service_does_not_want(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(3), address(4), address(17)))
    rows = people(45)
    rows[20:30] = [("nobody", "?", None)] * 10
    rows[30] = ("nobody", "?", None)
    notes = Notes()
    job.run(rows, checkpoint=notes)

    assert notes.asked == [(0, 1, 10), (1, 11, 10), (2, 21, 0), (3, 31, 9), (4, 41, 5)]
    assert notes.accepted_chunks == {0: [3, 4], 1: [17], 3: [], 4: []}
    assert notes.threads == {threading.get_ident()}


def test_what_is_recalled_is_not_sent_but_for_refused_rows(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(12),))
    rows = people(50)
    rows[4] = ("nobody", "?", None)
    notes = Notes(chunk0=[], chunk1=[12, 14], chunk3=[])
    done = job.run(rows, checkpoint=notes)

    bodies = [entry["body"] for entry in emulator.journal.entries(IMPORTS)]
    sent = [row[0] for body in bodies if "sandboxMode" not in body for row in body["contactData"]]
    assert set(sent) == {address(number) for number in (12, 14, *range(21, 31), *range(41, 51))}
    assert [(reject.row_number, list(reject.row)) for reject in job.rejects] == [
        (5, list(rows[4])),
        (12, list(rows[11])),
    ]
    assert (done.read, done.accepted, done.accepted_earlier, done.rejected) == (50, 48, 9 + 8 + 10, 2)
    assert notes.accepted_chunks == {1: [12], 2: [], 4: []}


def test_what_is_recalled_is_heard_of_also_when_nothing_is_sent(job: Import, emulator: Emulator) -> None:
    job.run(people(30), checkpoint=Notes(chunk0=[], chunk1=[], chunk2=[]))

    assert emulator.journal.count() == 0
    assert job.heard == [(10, 0, 0), (20, 0, 0), (30, 0, 0)]


def test_a_chunk_whose_rows_are_not_all_known_is_not_noted(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(1),))
    # The second chunk is refused down to its first row, and then the connection fails.
    emulator.faults.add("close_before", IMPORTS, skip=1 + 1 + 2 * 4, count=None)
    notes = Notes()
    with pytest.raises(MailAnswerLostError):
        job.run(iter([people(32, first=101), people(32), people(32, first=201)]), max_in_flight=1, checkpoint=notes)

    assert emulator.contact_count() == 32 + 31 - 1
    assert notes.accepted_chunks == {0: []}


# --- what is heard of it ---


def test_progress_is_told_as_it_comes(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(5),))
    done = job.run(people(200))

    assert job.heard == sorted(job.heard)
    assert job.heard[-1] == (199, 1, done.requests)
    assert len(job.heard) > 1
    assert done.seconds > 0


def test_a_slow_source_hears_of_every_answer(job: Import, submitted: list[Future[Any]]) -> None:
    def source() -> Iterator[list[Row]]:
        for number in range(4):
            yield people(10, first=1 + 10 * number)
            # What was answered while the source took its time is known one chunk later.
            assert job.progress.accepted >= 10 * number
            wait(submitted)

    job.run(source())
    assert job.counts == (40, 40, 0)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"chunk_size": 0}, "chunk_size"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"properties": ("name",)}, "neither email nor phoneNumber"),
        ({"properties": ("email", "email")}, "duplicate properties"),
        ({"properties": ()}, "contact_data_mapping"),
        ({"list_name": ""}, "list_name"),
        ({"list_description": "of none"}, "list_name"),
        ({"null_value": "\ud800"}, "null_value"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(plan: dict[str, Any], said: str) -> None:
    with pytest.raises(MailValidationError, match=said):
        ImportPlan(**{"properties": PROPERTIES, **plan})


def test_rows_are_cut_into_batches_as_they_come() -> None:
    taken: list[int] = []

    def rows() -> Iterator[Row]:
        for number in range(5):
            taken.append(number)
            yield (number,)

    cut = batches(rows(), 2)
    assert next(cut) == [(0,), (1,)]
    assert taken == [0, 1]
    assert list(cut) == [[(2,), (3,)], [(4,)]]
