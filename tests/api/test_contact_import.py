"""Importing many contacts: what the service receives, what is counted, and how an import ends.

What holds over several tries, whatever ends them, is shown by `tests/machines/test_importing.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.contacts import UpdateMode
from airflow_provider_mail.api.errors import MailRejectedError, MailResponseLostError, MailValidationError
from airflow_provider_mail.api.flows.import_contacts import MAX_REJECTED_ROWS, ImportPlan, Progress, import_contacts
from airflow_provider_mail.api.flows.validate_rows import CheckedRows, Reject, Row
from airflow_provider_mail.warehouse.rows import batched
from mail_emulator import Emulator
from tests.api.wire import Gate

pytestmark = pytest.mark.usefixtures("clock")

IMPORTS = "contacts/imports"
PROPERTIES = ("email", "name", "phoneNumber")
AT_LIMIT = "the rows are not the cause"


def address(number: int) -> str:
    return f"p{number}@example.com"


def people(count: int, first: int = 1) -> list[Row]:
    """Contacts that are numbered as their rows are."""
    return [(address(number), f"Person {number}", f"+49 {number}") for number in range(first, first + count)]


def chunked(count: int) -> Iterator[list[Row]]:
    return (people(10, first=1 + 10 * number) for number in range(count))


class Import:
    """An import into a service, with what it reported."""

    def __init__(self, base_url: str, **settings: Any) -> None:
        self._config = ClientConfig(**{"base_url": base_url, "api_key": "emulator-api-key", "timeout": 60, **settings})
        self.progress = Progress()
        self.rejects: list[Reject] = []
        self.heard: list[tuple[int, int, int]] = []

    def run(self, source: Iterator[Sequence[Row]] | Sequence[Row], checkpoint: Any = None, **plan: Any) -> Progress:
        """Import batches, or rows to be cut into chunks."""
        made = ImportPlan(**{"properties": PROPERTIES, "chunk_size": 10, "max_in_flight": 4, **plan})
        chunks = batched(source, made.chunk_size) if isinstance(source, list) else source
        report: dict[str, Any] = {
            "on_reject": self.rejects.append,
            "on_progress": lambda now: self.heard.append((now.accepted, now.rejected, now.requests)),
        }
        with MailClient(self._config) as client:
            return import_contacts(client, chunks, made, progress=self.progress, checkpoint=checkpoint, **report)

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.progress.read, self.progress.accepted, self.progress.rejected

    @property
    def rejected(self) -> list[int]:
        return sorted(reject.row_number for reject in self.rejects)


@pytest.fixture
def job(emulator: Emulator) -> Import:
    """An import into the emulator."""
    return Import(emulator.base_url)


def bodies(emulator: Emulator, *, sandbox: bool = False) -> list[Any]:
    """The requests, or those in sandbox mode, which ask whether the account is at a limit."""
    found = [dict(entry["body"]) for entry in emulator.journal.entries(IMPORTS)]
    return [body for body in found if bool(body.get("sandboxMode")) is sandbox]


def test_every_request_has_what_the_plan_says(job: Import, emulator: Emulator) -> None:
    names = ("phoneNumber", "email", "customer")
    common: dict[str, Any] = {"list_name": "L", "list_description": "D", "sandbox_mode": True, "null_value": ""}
    job.run([(f"+1 {n}", None, n) for n in range(25)], properties=names, update_mode=UpdateMode.CREATE_ONLY, **common)
    requests = bodies(emulator, sandbox=True)
    rows = sorted(row for body in requests for row in body.pop("contactData"))
    assert rows == sorted([f"+1 {n}", "", str(n)] for n in range(25))
    mapping = [{"columnNum": number, "propertyName": name} for number, name in enumerate(names)]
    others = {"updateMode": 2, "listName": "L", "listDescription": "D", "sandboxMode": True}
    assert requests == 3 * [{"contactDataMapping": mapping, **others}]


def test_an_impossible_plan_is_an_error() -> None:
    for plan, words in [
        ({"chunk_size": 0}, "chunk_size"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"properties": ("name",)}, "neither email nor phoneNumber"),
        ({"properties": ("email", "email")}, "duplicate properties"),
        ({"properties": ()}, "contact_data_mapping"),
        ({"list_name": ""}, "list_name"),
        ({"list_description": "of none"}, "list_name"),
        ({"null_value": "\ud800"}, "null_value"),
    ]:
        with pytest.raises(MailValidationError, match=words):
            ImportPlan(**{"properties": PROPERTIES, **plan})


# --- rejected rows ---


def test_rejected_rows_are_found_and_reported(job: Import, emulator: Emulator) -> None:
    bad, poison = {1: "x", 3: None, 12: "a@b", 50: 7}, (2, 4, 20, 21, 22, 49, 51, 99)
    emulator.change_settings(refused_addresses=tuple(map(address, poison)))
    rows = people(100)
    for number, email in bad.items():
        rows[number - 1] = (email, "?", "")
    done = job.run(rows, chunk_size=25)
    assert job.counts == (100, 88, 12)
    assert job.rejected == sorted([*bad, *poison])
    for reject in job.rejects:
        number = reject.row_number
        assert list(reject.row) == list(rows[number - 1])
        assert reject.field == ("email" if number in bad else "")
        assert address(number) not in reject.reason
        assert reject.reason.startswith("rejected by the service (code 400): ") == (number in poison)
    held = {contact["email"] for contact in emulator.contacts()}
    assert held == {address(number) for number in range(1, 101) if number not in (*bad, *poison)}
    assert job.heard[-1] == (88, 12, done.requests) == (88, 12, emulator.journal.count())


def test_many_rejected_rows_do_not_keep_others_out(job: Import, emulator: Emulator) -> None:
    poison = range(1, 2 * MAX_REJECTED_ROWS)  # all at the beginning of one chunk, which is too long, too
    emulator.change_settings(refused_addresses=tuple(map(address, poison)), import_max_rows=300)
    job.run(people(400), chunk_size=400)
    assert job.rejected == list(poison)
    assert emulator.contact_count() == 400 - len(poison)


@pytest.mark.parametrize(
    ("limit", "chunk_size"),
    [
        *(({"contact_quota": quota}, size) for quota, size in [(0, 30), (190, 200), (198, 10)]),
        ({"contact_quota": 100 - MAX_REJECTED_ROWS}, 100),
        ({"contact_properties": ()}, 200),
    ],
)
def test_a_rejection_that_no_row_causes_ends_the_import(
    job: Import, emulator: Emulator, limit: dict[str, Any], chunk_size: int
) -> None:
    emulator.change_settings(**limit)
    with pytest.raises(MailRejectedError, match=r"contact quota exceeded|unknown propertyName"):
        job.run(people(200), chunk_size=chunk_size, properties=("email", "customer", "phoneNumber"))
    assert (job.rejects, job.progress.rejected) == ([], 0)
    assert job.progress.accepted == emulator.contact_count()
    assert job.progress.requests == emulator.journal.count() <= 200 / chunk_size + 4 * 2 * (9 + MAX_REJECTED_ROWS)


@pytest.mark.parametrize(
    ("refused", "fault", "error"),
    [
        # Once the valid row was rejected, too: only the code of the last row was compared.
        ([2], {"kind": "code_before", "skip": 2, "code": 403, "message": "contact quota exceeded"}, MailRejectedError),
        # The response to the check of the account is lost.
        ([1, 2], {"kind": "close_before", "where": {"sandboxMode": True}}, MailResponseLostError),
    ],
)
def test_no_row_is_rejected_while_the_account_may_be_the_cause(
    job: Import, emulator: Emulator, refused: list[int], fault: Any, error: type[Exception]
) -> None:
    emulator.change_settings(refused_addresses=tuple(map(address, refused)))
    emulator.faults.add(operation=IMPORTS, count=None, **fault)
    with pytest.raises(error):
        job.run(people(2))
    assert job.rejected == []


@pytest.mark.parametrize("properties", [("phoneNumber",), ("email", "phoneNumber"), ("name", "phoneNumber", "email")])
def test_the_account_is_checked_with_a_new_contact(properties: Any, job: Import, emulator: Emulator) -> None:
    values = {"email": address, "phoneNumber": lambda n: f"+49 30 {n}", "name": lambda n: f"N{n}"}
    rows = [tuple(values[name](number) for name in properties) for number in range(1, 41)]
    emulator.change_settings(contact_quota=35)
    with pytest.raises(MailRejectedError, match=AT_LIMIT):
        job.run(rows, chunk_size=40, properties=properties)
    ((contact,),) = (body["contactData"] for body in bodies(emulator, sandbox=True))
    assert contact not in [list(row) for row in rows]
    assert emulator.contact_count() == 35


def test_an_update_is_checked_with_an_existing_contact(emulator: Emulator) -> None:
    for number in range(2, 5):
        emulator.add_contact(address(number))
    emulator.change_settings(refused_addresses=(address(3),))
    for rows, checks in ((people(4), 1), (people(1, first=3), 0)):  # without one that exists there is no check
        emulator.journal.clear()
        job = Import(emulator.base_url)
        job.run(rows, update_mode=UpdateMode.UPDATE_ONLY)
        assert [reject.row[0] for reject in job.rejects] == [address(3)]
        probes = [body["contactData"][0][0] for body in bodies(emulator, sandbox=True)]
        assert len(probes) == checks
        assert set(probes) <= {address(2), address(4), address(1)}


def test_messages_beside_success_are_counted_and_logged(
    job: Import, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    words = f"12 rows were ignored, {address(3)} among them"
    emulator.faults.add("code_after", IMPORTS, skip=1, count=2, code=200, message=words)
    assert job.run(people(50)).requests_with_message == caplog.text.count("12 rows were ignored") == 2
    assert (job.counts, address(3) in caplog.text) == ((50, 50, 0), False)


# --- how an import ends early, and how much is in flight ---


@pytest.mark.parametrize(("of_plan", "of_connection"), [(3, 16), (16, 3)])
def test_requests_in_flight_have_a_limit(of_plan: int, of_connection: int) -> None:
    pending: list[int] = []

    def source() -> Iterator[list[Row]]:
        for number, rows in enumerate(chunked(60)):
            pending.append(number - job.progress.accepted // 10)
            yield rows

    with Gate(3) as gate:
        job = Import(gate.base_url, max_in_flight=of_connection)
        job.run(source(), max_in_flight=of_plan)
    assert (gate.most, job.counts) == (3, (600, 600, 0))
    assert max(pending) <= 3 + 2, "the reader waits, however fast the source is"


# --- what an earlier try had accepted ---


class Notes:
    """A checkpoint that knows some chunks, and notes what was accepted, in the thread of the import."""

    def __init__(self, known: dict[int, list[int]]) -> None:
        self._known, self._thread = known, threading.get_ident()
        self.accepted_chunks: dict[int, list[int]] = {}

    def lookup(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        assert (self._thread, first_number) == (threading.get_ident(), 1 + 10 * chunk)
        return self._known.get(chunk)

    def prepare(self, chunk: int) -> None:
        assert self._thread != threading.get_ident()

    def accepted(self, chunk: int, rejected: Sequence[int]) -> None:
        assert self._thread == threading.get_ident()
        self.accepted_chunks[chunk] = sorted(rejected)


def test_known_chunks_are_not_sent_but_for_rejected_rows(job: Import, emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(12), address(21)))
    notes, rows = Notes({0: [], 1: [12, 14]}), people(35)
    rows[4] = ("nobody", "?", None)
    done = job.run(rows, notes)
    sent = {row[0] for body in bodies(emulator) for row in body["contactData"]}
    assert sent == {address(number) for number in (12, 14, *range(21, 36))}
    assert (done.read, done.accepted, done.accepted_earlier, job.rejected) == (35, 32, 9 + 8, [5, 12, 21])
    assert notes.accepted_chunks == {1: [12], 2: [21], 3: []}
    assert job.heard[0] == (9, 1, 0)
