"""Import any number of contacts in constant memory (specification, "Contacts", ``imports``).

One thread reads, validates and encodes the chunks; several threads upload the encoded chunks through one client.
Pending chunks are held only in encoded form, in a tenth of the rows' memory. A chunk that the service rejects is
bisected, to find the rows that cause the rejection.

A limit of the account (contacts, credits) is reported like an invalid row: the specification shows no codes for
imports. So before rows are rejected, a valid new contact is sent in sandbox mode, which changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

import msgspec

from airflow_provider_mail.api._core.pacing import GRACE_SECONDS, Interrupt, Workers, infrequent_gc
from airflow_provider_mail.api._core.requests import MailResponse
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.contacts import ColumnMapping, ImportContacts, UpdateMode
from airflow_provider_mail.api.errors import MailError, MailInterruptedError, MailRejectedError, MailValidationError
from airflow_provider_mail.api.flows.validate_rows import CheckedRows, Reject, Row, RowChecker, Spell, unchanged

__all__ = ["ImportPlan", "Progress", "import_contacts"]


@dataclass(slots=True)
class Progress:
    """The progress of an import.

    :param accepted_earlier: those of them that were not sent, because the service accepted them in an earlier try.
    :param opted_out: rows of people who said that they want no mail; not sent.
    :param without_address: rows with neither an address nor a phone number; not sent, and not rejected.
    :param requests: import requests that got a response.
    :param requests_with_message: those of them that were accepted with a message, which the specification has for
        errors only.
    :param seconds: since the start of the import.
    """

    read: int = 0
    accepted: int = 0
    accepted_earlier: int = 0
    rejected: int = 0
    opted_out: int = 0
    without_address: int = 0
    requests: int = 0
    requests_with_message: int = 0
    seconds: float = 0.0


class ImportCheckpoint(Protocol):
    """Knows which chunks the service accepted in earlier tries, and records those of this one.

    It is called only from the thread that runs the import, except for :meth:`prepare`.
    """

    def lookup(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        """Return which rows of a chunk to send again.

        :param chunk: its index in the source, from 0.
        :param first_number: the number of its first row, valid or not.
        :return: the numbers of the rows that the service rejected, if it accepted exactly this chunk before; ``None``
            to send all valid rows.
        """

    def prepare(self, chunk: int) -> None:
        """Do the time-consuming part of recording a chunk; called in the thread that sends it, before it is sent.

        :param chunk: its index in the source, from 0.
        """

    def accepted(self, chunk: int, rejected: Sequence[int]) -> None:
        """Record that the service accepted a chunk.

        :param chunk: its index in the source, from 0.
        """


class SelectedRows(list[Row]):
    """Some of the rows of a source. Their selection counts the rows that were read.

    :param numbers: the numbers of these rows in the source, from 1.
    :param lines: the lines of the file in which they begin, from 1; empty if it is not from a file with lines.
    :param encoded: the rows as JSON, if they are known in that form.
    """

    def __init__(
        self, rows: Iterable[Row], numbers: Sequence[int], lines: Sequence[int] = (), encoded: bytes | None = None
    ) -> None:
        super().__init__(rows)
        self.numbers = numbers
        self.lines = lines
        self.encoded = encoded


def import_contacts(
    client: MailClient,
    source: Iterable[Sequence[Row]],
    plan: ImportPlan,
    *,
    on_reject: Callable[[Reject], None],
    on_progress: Callable[[Progress], None] = lambda progress: None,
    progress: Progress | None = None,
    checkpoint: ImportCheckpoint | None = None,
    interrupt: Interrupt | None = None,
    spell: Spell = unchanged,
) -> Progress:
    """Import all rows of a source.

    Chunks may arrive in another order, so rows for the same contact should not contradict each other.

    :param source: lists of rows; each list becomes one request, so it should hold ``plan.chunk_size`` rows. An
        attribute ``lines`` of a list has the line in the file of each row, which rejected rows report; for rows that
        were selected from a source, give ``SelectedRows``.
    :param on_reject: called in the calling thread for each rejected row.
    :param on_progress: called in the calling thread when chunks got a response or need not be sent.
    :param progress: updated continuously, so that the caller has the counts when an error ends the import.
    :param checkpoint: that of earlier tries. All rows are read and validated again, so that the same rows are
        rejected; chunks that the service has accepted are not sent, except for the rows that it had rejected.
    :param interrupt: ends the import from outside, such as from ``on_kill`` of an operator.
    :param spell: returns rows with each address in the spelling to send. Default: text is sent unchanged.
    :raises MailError: the first final error of a chunk. Requests in flight may finish within the connection's timeout;
        if something else ends the import, such as Airflow's ``execution_timeout``, within two seconds. Chunks without a
        response are sent again by the next try.
    :raises MailInterruptedError: the interrupt ended the import.
    """
    progress = Progress() if progress is None else progress
    checker = RowChecker(plan.properties, plan.null_value, spell)
    _Import(client, plan, checker, on_reject, on_progress, progress, checkpoint).run(source, interrupt)
    return progress


@dataclass(slots=True)
class _Import:
    """One import: reads and validates in the calling thread, and processes the results of the uploading threads."""

    client: MailClient
    plan: ImportPlan
    checker: RowChecker
    on_reject: Callable[[Reject], None]
    on_progress: Callable[[Progress], None]
    progress: Progress
    checkpoint: ImportCheckpoint | None
    # The function at that time, not at import: tests replace it with a clock that they move.
    started: float = field(default_factory=lambda: time.monotonic())
    in_flight: dict[Future[ChunkResult], int] = field(default_factory=dict)
    position: int = 0
    """The number of rows that were given."""
    origins: dict[int, tuple[int, Sequence[int], Sequence[int]]] = field(default_factory=dict)
    """Of each chunk in flight, the position of its first row, and the numbers and the lines of its rows, if given."""

    def run(self, source: Iterable[Sequence[Row]], interrupt: Interrupt | None) -> None:
        # Never more threads than connections: httpcore may close a connection just assigned to a waiting thread (its
        # issue 1110).
        threads = min(self.plan.max_in_flight, self.client.config.max_in_flight)
        with infrequent_gc(), Workers[ChunkResult](threads, "mail-import", interrupt) as workers:
            uploader = ChunkUploader(self.client, self.plan, workers.interrupt)
            try:
                for chunk, rows in enumerate(source):
                    self._submit(chunk, rows, workers, uploader)
                    del rows
                    # Slightly more than can be in flight, so that no thread waits for the next chunk to be encoded.
                    self._collect(workers, threads + 2)
                self._collect(workers, 0)
            except BaseException as error:
                ordinary = isinstance(error, Exception) and not isinstance(error, MailInterruptedError)
                workers.end(self.client.config.timeout if ordinary else GRACE_SECONDS)
                for future, chunk in self.in_flight.items():
                    if future.done() and not future.cancelled():
                        self._process(future.result(), chunk)
                raise
        self.progress.seconds = time.monotonic() - self.started

    def _submit(self, chunk: int, rows: Sequence[Row], workers: Workers[ChunkResult], uploader: ChunkUploader) -> None:
        progress = self.progress
        first_number = self.position + 1
        checked = self.checker.check(rows, first_number, getattr(rows, "encoded", None))
        self.position += len(rows)
        lines, numbers_in_source = getattr(rows, "lines", ()), getattr(rows, "numbers", ())
        if not isinstance(rows, SelectedRows):
            progress.read += len(rows)
        if lines or numbers_in_source:
            self.origins[chunk] = first_number, numbers_in_source, lines
        self._reject(checked.rejects, chunk)
        encoded, numbers, earlier = checked.encoded, checked.numbers, 0
        rejected = self.checkpoint.lookup(chunk, first_number, checked) if self.checkpoint is not None else None
        if rejected is not None:
            encoded, numbers = _select_rows(checked, rejected)
            earlier = len(checked.numbers) - len(numbers)
            progress.accepted += earlier
            progress.accepted_earlier += earlier
            progress.seconds = time.monotonic() - self.started
            self.on_progress(progress)
        if numbers:
            future = workers.submit(self._upload, uploader, chunk, encoded, numbers, earlier)
            self.in_flight[future] = chunk
        else:
            self.origins.pop(chunk, None)

    def _upload(
        self, uploader: ChunkUploader, chunk: int, encoded: bytes, numbers: Sequence[int], earlier: int
    ) -> ChunkResult:
        if self.checkpoint is not None:
            self.checkpoint.prepare(chunk)
        return uploader.upload(encoded, numbers, earlier)

    def _collect(self, workers: Workers[ChunkResult], limit: int) -> None:
        """Process finished chunks; while more than ``limit`` are in flight, wait for one."""
        in_flight = self.in_flight
        while in_flight:
            done = [future for future in in_flight if future.done()]
            if not done and len(in_flight) > limit:
                done = list(workers.first_done(in_flight))
            if not done:
                return
            for future in done:
                chunk = in_flight.pop(future)
                result = future.result()
                self._process(result, chunk)
                if result.error is not None:
                    raise result.error
            self.on_progress(self.progress)

    def _process(self, result: ChunkResult, chunk: int) -> None:
        progress = self.progress
        progress.accepted += result.accepted
        progress.requests += result.requests
        progress.requests_with_message += result.requests_with_message
        progress.seconds = time.monotonic() - self.started
        self._reject(result.rejects, chunk)
        self.origins.pop(chunk, None)
        if result.complete and self.checkpoint is not None:
            self.checkpoint.accepted(chunk, [reject.row_number for reject in result.rejects])

    def _reject(self, rejects: Iterable[Reject], chunk: int) -> None:
        first_number, numbers, lines = self.origins.get(chunk, (0, (), ()))
        for reject in rejects:
            index = reject.row_number - first_number
            if lines:
                reject = replace(reject, line=lines[index])
            if numbers:
                reject = replace(reject, row_number=numbers[index])
            self.progress.rejected += 1
            self.on_reject(reject)


def _select_rows(checked: CheckedRows, selected: Sequence[int]) -> tuple[bytes, Sequence[int]]:
    if not selected:
        return b"", ()
    rows = dict(zip(checked.numbers, msgspec.json.decode(checked.encoded), strict=True))
    return msgspec.json.encode([rows[number] for number in selected]), selected


MAX_REJECTED_ROWS = 50
"""After this many rejected rows of one chunk the account is checked: the rows may not be the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What to import, and how.

    :param properties: the property of each value of a row, by position: ``email``, ``name``, ``phoneNumber`` or another
        that the platform knows (the specification has no complete list).
    :param update_mode: whether to create new contacts and to update existing ones.
    :param list_name: the list to add the contacts to; created when missing. Default: none.
    :param chunk_size: rows per request.
    :param max_in_flight: concurrent requests; limited by the client's own ``max_in_flight``.
    :param null_value: sent for a missing value; the specification does not define the effect of ``null`` on a contact.
    :param sandbox_mode: let the service check the rows and change nothing.
    :raises MailValidationError: naming the wrong field.
    """

    properties: tuple[str, ...]
    update_mode: UpdateMode = UpdateMode.CREATE_AND_UPDATE
    list_name: str | None = None
    list_description: str | None = None
    chunk_size: int = 5000
    max_in_flight: int = 16
    null_value: str | None = None
    sandbox_mode: bool | None = None

    def __post_init__(self) -> None:
        for name in ("chunk_size", "max_in_flight"):
            if getattr(self, name) < 1:
                raise MailValidationError(f"{name}: must be at least 1")
        try:
            (self.null_value or "").encode()
        except UnicodeEncodeError:
            raise MailValidationError("null_value: holds half a surrogate pair, which is not text") from None
        self.template()

    def template(self) -> ImportContacts:
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
class ChunkResult:
    """The result of uploading one chunk.

    :param earlier: further rows of the chunk, which were accepted in an earlier try.
    :param requests: requests that got a response.
    :param requests_with_message: requests that were accepted with a message.
    """

    rows: int
    earlier: int = 0
    accepted: int = 0
    requests: int = 0
    requests_with_message: int = 0
    rejects: list[Reject] = field(default_factory=list)
    error: MailError | None = None

    @property
    def complete(self) -> bool:
        return self.accepted + len(self.rejects) == self.rows

    @property
    def some_accepted(self) -> bool:
        """Whether the service has accepted any row of the chunk; if so, the rows cause a rejection, not the account."""
        return bool(self.accepted or self.earlier)


class _RejectedRows(NamedTuple):
    """Rows of one request that the service rejected, with their numbers."""

    rows: list[Row]
    numbers: Sequence[int]
    rejection: MailRejectedError


class ChunkUploader:
    """Uploads chunks from many threads, and bisects those that the service rejects."""

    def __init__(self, client: MailClient, plan: ImportPlan, interrupt: Interrupt) -> None:
        self._client = client
        self._template = plan.template()
        self._plan = plan
        self._accepted: bytes | None = None
        self._interrupt = interrupt

    def upload(self, encoded: bytes, numbers: Sequence[int], earlier: int) -> ChunkResult:
        """Upload one chunk.

        :param encoded: its rows as JSON.
        :param earlier: further rows of the chunk, which were accepted in an earlier try.
        """
        result = ChunkResult(len(numbers), earlier)
        try:
            rejection = self._post(encoded, len(numbers), result)
            if rejection is not None:
                rows = msgspec.json.decode(encoded)
                self._bisect(_RejectedRows(rows, numbers, rejection), result)
        except MailError as error:
            result.error = error
        return result

    def _bisect(self, rejected: _RejectedRows, result: ChunkResult) -> None:
        """Halve rejected rows until each row that the service rejects is alone in a request."""
        pending = [rejected]
        rejects: list[Reject] = []
        rejections: list[MailRejectedError] = []
        while pending and not self._interrupt.stopped:
            part = pending.pop()
            if len(part.rows) == 1:
                if len(rejects) == MAX_REJECTED_ROWS:
                    if not result.some_accepted:
                        raise part.rejection
                    self._report(rejects, rejections, result)
                message = part.rejection.service_message or "no message"
                reason = f"rejected by the service (code {part.rejection.code}): {message}"
                rejects.append(Reject(row_number=part.numbers[0], field="", reason=reason, row=part.rows[0]))
                rejections.append(part.rejection)
                continue
            middle = len(part.rows) // 2
            # The second half is posted first, so that the first one is popped first. Both are posted before either is
            # halved again: if individual rows are the cause, others are soon accepted.
            for half in (slice(middle, None), slice(middle)):
                rows, numbers = part.rows[half], part.numbers[half]
                rejection = self._post(msgspec.json.encode(rows), len(rows), result)
                if rejection is not None:
                    pending.append(_RejectedRows(rows, numbers, rejection))
        if rejects and not self._interrupt.stopped:
            self._report(rejects, rejections, result)

    def _report(self, rejects: list[Reject], rejections: list[MailRejectedError], result: ChunkResult) -> None:
        """Report the rejected rows and empty both lists, unless a valid contact is rejected with one of their codes."""
        accepted_row = None if self._accepted is None else msgspec.json.decode(self._accepted)[0]
        probe = probe_row(self._plan, accepted_row)
        if probe is not None:
            response = self._request(result, contact_data=[probe], sandbox_mode=True)
            if isinstance(response, MailRejectedError):
                # The limit may have been reached between two of the rows.
                matching = next((rejection for rejection in rejections if rejection.code == response.code), None)
                if matching is not None:
                    raise _account_error(matching, result.accepted)
        result.rejects.extend(rejects)
        rejects.clear()
        rejections.clear()

    def _post(self, encoded: bytes, rows: int, result: ChunkResult) -> MailRejectedError | None:
        response = self._request(result, contact_data=msgspec.Raw(encoded))
        if isinstance(response, MailRejectedError):
            return response
        result.accepted += rows
        result.requests_with_message += bool(response.message)
        self._accepted = encoded
        return None

    def _request(self, result: ChunkResult, **fields: Any) -> MailResponse | MailRejectedError:
        result.requests += 1
        try:
            return self._client.send(self._template.model_copy(update=fields))
        except MailInterruptedError:
            result.requests -= 1
            raise
        except MailRejectedError as rejection:
            return rejection


def probe_row(plan: ImportPlan, accepted_row: Row | None) -> Row | None:
    """Return a contact that the service accepts as long as it accepts any; ``None`` if none is known.

    An import that only updates accepts existing contacts; other imports count new contacts against a limit.

    :param accepted_row: a row that the service has accepted. A new contact has its values, but another identity.
    """
    if plan.update_mode is UpdateMode.UPDATE_ONLY:
        return accepted_row
    missing = plan.null_value
    values = dict(zip(plan.properties, accepted_row or [missing] * len(plan.properties), strict=True))
    if "email" in values:
        email = values["email"] or ""
        values["email"] = f"{token_hex(8)}@{email.rpartition('@')[2] if '@' in email else 'example.com'}"
    if "phoneNumber" in values:
        values["phoneNumber"] = missing if "email" in values else f"+1555{int(token_hex(4), 16):010}"
    return list(values.values())


def _account_error(rejection: MailRejectedError, accepted: int) -> MailRejectedError:
    return MailRejectedError(
        f"{rejection}. The service would reject any contact now, a valid one as well, so the rows are not the cause: "
        f"is the account at a limit? No row is set aside for it; {accepted} rows of this chunk were accepted before",
        operation=rejection.operation,
        **rejection.details,
    )
