"""Importing any number of contacts in flat memory (document, "Contacts", ``imports``).

One thread reads, checks and encodes chunk after chunk; several carry the encoded chunks to the service over one client.
What waits or is under way is kept encoded only, a tenth of the rows' size. A chunk that the service refuses is halved
until the rows that it does not want stand alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import msgspec
from pydantic import Field

from airflow_provider_mail.api._core.interrupt import GRACE_SECONDS, Interrupt, Workers
from airflow_provider_mail.api._core.requests import MailRequest, MailResponse, Sandboxed
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.contacts import ColumnMapping, ImportContacts, UpdateMode
from airflow_provider_mail.api.errors import MailError, MailInterruptedError, MailRejectedError, MailValidationError
from airflow_provider_mail.api.flows.import_probe import about_the_account, surely_good
from airflow_provider_mail.api.flows.validate_rows import CheckedRows, Reject, Row, RowChecker

MAX_REJECTED_ALONE = 50
"""So many refused rows in one chunk may mean that the rows are not the reason: then it is found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is imported, and how.

    :param properties: the property that each value of a row belongs to, by position: ``email``, ``name``,
        ``phoneNumber`` or another that the platform knows (the document has no complete list).
    :param update_mode: what happens with contacts that exist, and that do not.
    :param list_name: the list they are added to; made when missing.
    :param list_description: its description.
    :param chunk_size: rows in one request.
    :param max_in_flight: requests under way at once; no more than the client's own ``max_in_flight``.
    :param null_value: what is sent for a missing value; the document does not say what ``null`` does to a contact.
    :param sandbox_mode: let the service check and change nothing.
    :raises MailValidationError: naming what is wrong.
    """

    properties: tuple[str, ...]
    update_mode: UpdateMode = UpdateMode.CREATE_AND_UPDATE
    list_name: str | None = None
    list_description: str | None = None
    chunk_size: int = 5000
    max_in_flight: int = 8
    null_value: str | None = None
    sandbox_mode: bool | None = None

    def __post_init__(self) -> None:
        for name in ("chunk_size", "max_in_flight"):
            if getattr(self, name) < 1:
                raise MailValidationError(f"{name}: must be at least 1")
        try:
            (self.null_value or "").encode()
        except UnicodeEncodeError:
            raise MailValidationError("null_value: holds half a surrogate pair, which is no text") from None
        self.template()

    def template(self) -> ImportContacts:
        """The request of every chunk, but for the rows."""
        return ImportContacts(
            contact_data=[[""] * len(self.properties)],
            contact_data_mapping=[
                ColumnMapping(column_num=number, property_name=name) for number, name in enumerate(self.properties)
            ],
            update_mode=self.update_mode,
            list_name=self.list_name,
            list_description=self.list_description,
            sandbox_mode=self.sandbox_mode,
        )


@dataclass(slots=True)
class Progress:
    """How far an import is.

    :param read: rows taken from the source.
    :param accepted: rows in requests that the service accepted.
    :param accepted_earlier: those among them that were not sent, because an earlier try had them accepted.
    :param rejected: rows set aside.
    :param requests: import requests that were answered.
    :param remarks: those among them that were accepted with a message, which the document has for errors only.
    :param seconds: since the import began.
    """

    read: int = 0
    accepted: int = 0
    accepted_earlier: int = 0
    rejected: int = 0
    requests: int = 0
    remarks: int = 0
    seconds: float = 0.0


class ImportCheckpoint(Protocol):
    """Knows which chunks earlier tries of an import had accepted, and is told of those of this one.

    It is used in the thread that calls :func:`import_contacts`, and only there.
    """

    def recall(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        """Whether the service has accepted this very chunk already.

        :param chunk: its place in the source, from 0.
        :param first_number: of its rows, good or bad.
        :param checked: its rows.
        :returns: the numbers of the rows that it had refused; ``None`` when all good rows are to be sent.
        """

    def accepted(self, chunk: int, refused: Sequence[int]) -> None:
        """Note that the service has taken a chunk.

        :param chunk: its place in the source, from 0.
        :param refused: the numbers of the rows that it does not want.
        """


class _NoMemory:
    """Every try is the first."""

    def recall(self, chunk: int, first_number: int, checked: CheckedRows) -> None:
        return None

    def accepted(self, chunk: int, refused: Sequence[int]) -> None:
        pass


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Rows in lists of at most ``size``."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def import_contacts(
    client: MailClient,
    source: Iterable[Sequence[Row]],
    plan: ImportPlan,
    *,
    on_reject: Callable[[Reject], None],
    on_progress: Callable[[Progress], None] = lambda progress: None,
    progress: Progress | None = None,
    memory: ImportCheckpoint | None = None,
    interrupt: Interrupt | None = None,
) -> Progress:
    """Import all rows of a source.

    Rows that name the same contact should not be far apart in meaning: chunks overtake each other.

    :param client: the client whose connection is used by all threads.
    :param source: lists of rows; each list becomes one request, so they should hold ``plan.chunk_size`` rows.
    :param plan: what to do with them.
    :param on_reject: called for each row that is set aside, from the calling thread.
    :param on_progress: called when chunks were answered or need not be sent, from the calling thread.
    :param progress: kept up to date, so that the caller knows it when an error ends the import.
    :param memory: of earlier tries. All rows are read and checked again, so that rows are set aside as if this were
        the only try; chunks that the memory recalls are not sent, but for the rows that the service had refused.
    :param interrupt: ends the import from outside, such as from ``on_kill`` of an operator.
    :raises MailError: the first final error of a chunk. Chunks that were under way get the connection's timeout to be
        answered; when something else than an error ends the import, such as Airflow's ``execution_timeout``, two
        seconds. What was not answered by then is sent again by a further try.
    :raises MailInterruptedError: the interrupt ended it.
    """
    progress = progress if progress is not None else Progress()
    memory = memory if memory is not None else _NoMemory()
    checker = RowChecker(plan.properties, plan.null_value)
    started = time.monotonic()
    under_way: dict[Future[_ChunkResult], int] = {}

    def set_aside(rejects: Iterable[Reject]) -> None:
        for reject in rejects:
            progress.rejected += 1
            on_reject(reject)

    def begin(chunk: int, rows: Sequence[Row]) -> None:
        first_number = progress.read + 1
        checked = checker.check(rows, first_number)
        progress.read += len(rows)
        set_aside(checked.rejects)
        encoded, numbers, earlier = checked.encoded, checked.numbers, 0
        refused = memory.recall(chunk, first_number, checked)
        if refused is not None:
            encoded, numbers = _select_rows(checked, refused)
            earlier = len(checked.numbers) - len(numbers)
            progress.accepted += earlier
            progress.accepted_earlier += earlier
            progress.seconds = time.monotonic() - started
            on_progress(progress)
        if numbers:
            under_way[workers.submit(courier.send, courier.body(encoded), numbers, earlier)] = chunk

    def take_in(sent: _ChunkResult, chunk: int) -> None:
        progress.accepted += sent.accepted
        progress.requests += sent.requests
        progress.remarks += sent.remarks
        progress.seconds = time.monotonic() - started
        set_aside(sent.rejects)
        if sent.complete:
            memory.accepted(chunk, [reject.row_number for reject in sent.rejects])

    def collect(most: int) -> None:
        """Take in what was answered; when more than ``most`` are under way, wait for that."""
        while under_way:
            wanted = len(under_way) > most
            done = workers.first_done(under_way) if wanted else [each for each in under_way if each.done()]
            if not done:
                return
            for future in done:
                chunk = under_way.pop(future)
                sent = future.result()
                take_in(sent, chunk)
                if sent.error is not None:
                    raise sent.error
            on_progress(progress)

    # Never more threads than connections: httpcore may close one that a waiting thread was just given (its issue 1110).
    threads = min(plan.max_in_flight, client.config.max_in_flight)
    with Workers[_ChunkResult](threads, "mail-import", interrupt) as workers:
        courier = _ChunkUploader(client, plan, workers.interrupt)
        try:
            for chunk, rows in enumerate(source):
                begin(chunk, rows)
                del rows
                # A little more than can be under way, so that no thread waits for the next chunk to be encoded.
                collect(threads + 2)
            collect(0)
        except BaseException as error:
            ordinary = isinstance(error, Exception) and not isinstance(error, MailInterruptedError)
            workers.end(client.config.timeout if ordinary else GRACE_SECONDS)
            for future, chunk in under_way.items():
                if future.done() and not future.cancelled():
                    take_in(future.result(), chunk)
            raise
    progress.seconds = time.monotonic() - started
    return progress


def _select_rows(checked: CheckedRows, wanted: Sequence[int]) -> tuple[bytes, Sequence[int]]:
    """The rows with these numbers, encoded."""
    if not wanted:
        return b"", ()
    rows = dict(zip(checked.numbers, msgspec.json.decode(checked.encoded), strict=True))
    return msgspec.json.encode([rows[number] for number in wanted]), wanted


@dataclass(slots=True)
class _ChunkResult:
    """What became of one chunk, and the error that ended it, if one did.

    :param rows: in it.
    :param earlier: rows that belong to it and were accepted in an earlier try.
    """

    rows: int
    earlier: int = 0
    accepted: int = 0
    requests: int = 0
    remarks: int = 0
    rejects: list[Reject] = field(default_factory=list)
    error: MailError | None = None

    @property
    def complete(self) -> bool:
        """Whether it is known of every row that the service has it, or does not want it."""
        return self.accepted + len(self.rejects) == self.rows

    @property
    def some_wanted(self) -> bool:
        """Whether the service has taken any of its rows; if so, a refusal is about rows."""
        return bool(self.accepted or self.earlier)


class _EncodedImport(MailRequest[MailResponse], Sandboxed):
    """An import whose body is there already: it is made by the thread that reads, and kept once."""

    path = ImportContacts.path
    effect = ImportContacts.effect

    body: bytes = Field(repr=False)

    def payload(self) -> bytes:
        return self.body

    def personal(self) -> Iterator[str]:
        for row in msgspec.json.decode(self.body)["contactData"]:
            yield from filter(None, row)


class _ChunkUploader:
    """Carries chunks to the service, for many threads; a refused one in halves."""

    def __init__(self, client: MailClient, plan: ImportPlan, interrupt: Interrupt) -> None:
        self._client = client
        template = plan.template()
        if client.config.sandbox:
            template = template.model_copy(update={"sandbox_mode": True})
        self._template = template
        self._plan = plan
        self._accepted_body: bytes | None = None
        self._interrupt = interrupt

    def body(self, encoded: bytes) -> bytes:
        """The body of a request for encoded rows."""
        return self._template.model_copy(update={"contact_data": msgspec.Raw(encoded)}).payload()

    def send(self, body: bytes, numbers: Sequence[int], earlier: int) -> _ChunkResult:
        """Send one chunk.

        :param body: as :meth:`body` made it.
        :param numbers: of the rows.
        :param earlier: rows that belong to it and need not be sent.
        """
        sent = _ChunkResult(len(numbers), earlier)
        finished = False
        try:
            refusal = self._post(body, len(numbers), sent)
            if refusal is not None:
                self._halve(msgspec.json.decode(body)["contactData"], numbers, refusal, sent)
            finished = not self._interrupt.stopped
        except MailError as error:
            sent.error = error
        if not finished and not sent.some_wanted:
            # It is not known that the rows were the reason.
            sent.rejects.clear()
        return sent

    def _halve(self, rows: list[Row], numbers: Sequence[int], refusal: MailRejectedError, sent: _ChunkResult) -> None:
        """Halve what was refused until the rows that the service does not want stand alone."""
        refused = [(rows, numbers, refusal)]
        alone: list[Reject] = []
        while refused and not self._interrupt.stopped:
            rows, numbers, refusal = refused.pop()
            if len(rows) == 1:
                if len(alone) == MAX_REJECTED_ALONE:
                    if not sent.some_wanted:
                        raise refusal
                    self._set_aside(alone, refusal, sent)
                said = refusal.service_message or "no message"
                reason = f"refused by the service (code {refusal.code}): {said}"
                alone.append(Reject(row_number=numbers[0], field="", reason=reason, row=rows[0]))
                continue
            middle = len(rows) // 2
            # The second half is popped first, so the first one is put behind it. Both are sent before either is cut
            # further: where the rows are the reason, something is soon accepted.
            for half in (slice(middle, None), slice(middle)):
                refusal_of_half = self._post(self.body(msgspec.json.encode(rows[half])), len(rows[half]), sent)
                if refusal_of_half is not None:
                    refused.append((rows[half], numbers[half], refusal_of_half))
        if alone and not self._interrupt.stopped:
            self._set_aside(alone, refusal, sent)

    def _set_aside(self, alone: list[Reject], refusal: MailRejectedError, sent: _ChunkResult) -> None:
        """Set aside what was refused alone, unless the service would now refuse a good contact too, with the same code.

        :param alone: is emptied.
        :param refusal: the last one.
        """
        like = None
        if self._accepted_body is not None:
            like = msgspec.json.decode(self._accepted_body)["contactData"][0]
        row = surely_good(self._plan, like)
        if row is not None:
            template = self._template.model_copy(update={"sandbox_mode": True, "contact_data": [row]})
            outcome = self._request(template.payload(), sent)
            if isinstance(outcome, MailRejectedError) and outcome.code == refusal.code:
                raise about_the_account(refusal, sent.accepted)
        sent.rejects.extend(alone)
        alone.clear()

    def _post(self, body: bytes, rows: int, sent: _ChunkResult) -> MailRejectedError | None:
        outcome = self._request(body, sent)
        if isinstance(outcome, MailRejectedError):
            return outcome
        sent.accepted += rows
        sent.remarks += bool(outcome.message)
        self._accepted_body = body
        return None

    def _request(self, body: bytes, sent: _ChunkResult) -> MailResponse | MailRejectedError:
        sent.requests += 1
        try:
            return self._client.send(_EncodedImport(body=body))
        except MailInterruptedError:
            sent.requests -= 1
            raise
        except MailRejectedError as refusal:
            return refusal
