"""Importing any number of contacts in flat memory (document, "Contacts", ``imports``).

One thread reads, checks and encodes chunk after chunk; several carry the encoded chunks to the service over one client.
What waits or is under way is kept encoded only, a tenth of the rows' size. A chunk that the service refuses is halved
until the rows that it does not want stand alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.contact_rows import Reject, Row, RowChecker
from airflow_provider_mail.api.contacts import ColumnMapping, ImportContacts, UpdateMode
from airflow_provider_mail.api.errors import MailAuthError, MailRejectedError, MailValidationError

MOST_REFUSED_ALONE = 50
"""So many refused rows in one chunk mean that the rows are not the reason: the refusal is passed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is imported, and how.

    :param properties: the property that each value of a row belongs to, by position: ``email``, ``name``,
        ``phoneNumber`` or another that the platform knows (the document has no complete list).
    :param update_mode: what happens with contacts that exist, and that do not.
    :param list_name: the list they are added to; made when missing.
    :param list_description: its description.
    :param chunk_size: rows in one request.
    :param max_in_flight: requests under way at once.
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
    :param rejected: rows set aside.
    :param requests: import requests that were answered.
    :param seconds: since the import began.
    """

    read: int = 0
    accepted: int = 0
    rejected: int = 0
    requests: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sent:
    """What became of one chunk."""

    accepted: int
    rejects: list[Reject]
    requests: int


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
) -> Progress:
    """Import all rows of a source.

    Rows that name the same contact should not be far apart in meaning: chunks overtake each other.

    :param client: the client whose connection is used by all threads.
    :param source: lists of rows; each list becomes one request, so they should hold ``plan.chunk_size`` rows.
    :param plan: what to do with them.
    :param on_reject: called for each row that is set aside, from the calling thread.
    :param on_progress: called after each answered chunk, from the calling thread.
    :param progress: kept up to date, so that the caller knows it when an error ends the import.
    :raises MailError: the first final error of a chunk; chunks that were under way are waited for.
    """
    progress = progress if progress is not None else Progress()
    checker = RowChecker(plan.properties, plan.null_value)
    template = plan.template()
    started = time.monotonic()
    under_way: set[Future[_Sent]] = set()

    def set_aside(rejects: Iterable[Reject]) -> None:
        for reject in rejects:
            progress.rejected += 1
            on_reject(reject)

    def collect(most: int) -> None:
        nonlocal under_way
        while len(under_way) > most:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                sent = future.result()
                progress.accepted += sent.accepted
                progress.requests += sent.requests
                set_aside(sent.rejects)
            progress.seconds = time.monotonic() - started
            on_progress(progress)

    with ThreadPoolExecutor(plan.max_in_flight, thread_name_prefix="mail-import") as pool:
        try:
            for rows in source:
                good, numbers, rejects = checker.check(rows, progress.read + 1)
                progress.read += len(rows)
                set_aside(rejects)
                if good:
                    under_way.add(pool.submit(_Chunk(client, template, numbers).send, msgspec.json.encode(good)))
                del rows, good
                # A little more than can be under way, so that no thread waits for the next chunk to be encoded.
                collect(plan.max_in_flight + 2)
            collect(0)
        except BaseException:
            for future in under_way:
                future.cancel()
            raise
    progress.seconds = time.monotonic() - started
    return progress


class _Chunk:
    """Sends one chunk; when it is refused, its halves."""

    def __init__(self, client: MailClient, template: ImportContacts, numbers: Sequence[int]) -> None:
        self._client = client
        self._template = template
        self._numbers = numbers
        self._rejects: list[Reject] = []
        self._requests = 0

    def send(self, encoded: bytes) -> _Sent:
        self._send(encoded, 0, len(self._numbers))
        return _Sent(len(self._numbers) - len(self._rejects), self._rejects, self._requests)

    def _send(self, encoded: bytes, start: int, end: int) -> None:
        self._requests += 1
        try:
            self._client.send(self._template.model_copy(update={"contact_data": msgspec.Raw(encoded)}))
        except MailAuthError:
            raise
        except MailRejectedError as error:
            if end - start > 1:
                rows: list[Any] = msgspec.json.decode(encoded)
                middle = len(rows) // 2
                self._send(msgspec.json.encode(rows[:middle]), start, start + middle)
                self._send(msgspec.json.encode(rows[middle:]), start + middle, end)
                return
            if len(self._rejects) >= MOST_REFUSED_ALONE:
                raise
            (row,) = msgspec.json.decode(encoded)
            reason = f"refused by the service (code {error.code}): {error.service_message or 'no message'}"
            self._rejects.append(Reject(row_number=self._numbers[start], field="", reason=reason, row=row))
