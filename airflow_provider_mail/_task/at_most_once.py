"""Send a mailing at most once: the state is stored before and after each request.

A transactional send cannot be looked up, so only the stored state shows what an earlier try has sent. It holds the
number of accepted requests, a digest of their content, and a digest of each request in flight.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, islice
from logging import getLogger
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.api._core.pacing import Workers
from airflow_provider_mail.api.client import NOT_REPEATED
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailConflictError,
    MailError,
    MailRejectedError,
    MailResponseLostError,
)
from airflow_provider_mail.api.transactional import Chunk, EncodedBatch

if TYPE_CHECKING:
    from airflow_provider_mail._task.state import TaskState
    from airflow_provider_mail.hooks.mail import MailHook

log = getLogger(__name__)

MAX_AHEAD = 64
"""So many requests may be accepted while an earlier one has no response: the record must stay small."""

_USED_BEFORE = re.compile(r"(?i)already|before|duplicat|exist|repeat|reuse|in use|taken|not unique|\bused\b")
"""Words in the rejection of a repeated id. The specification shows neither the words nor whether ids are checked."""


class Halved(BaseModel):
    """A request that is sent in parts, because a proxy does not pass it on as a whole.

    :param digest: of the whole request.
    :param unknown: whether the outcome of some of these is unknown.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    digest: str
    size: PositiveInt
    done: NonNegativeInt = 0
    unknown: bool = False


class MailingState(BaseModel):
    """The stored state of a mailing, over all tries.

    :param version: of the format. A record of another version is an error: interpreting it could send mail twice.
    :param digest: of the first requests, which are all done with: see :attr:`done`.
    :param ahead: the digests of requests that are done with although an earlier one is not, by index.
    :param under_way: the digests of the requests in flight, by index.
    :param halved: the requests that are sent in parts, by index.
    :param content: the digest of the first request, in a mapped task; empty until it is known.
    :param clears: how often the run had been cleared when the first try began.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[1]
    requests: NonNegativeInt
    recipients: NonNegativeInt
    unknown_requests: NonNegativeInt
    unknown_recipients: NonNegativeInt
    digest: str
    ahead: dict[str, str]
    under_way: dict[str, str]
    halved: dict[str, Halved]
    content: str
    clears: NonNegativeInt

    @classmethod
    def parse(cls, record: object, clears: int = 0) -> MailingState:
        """Parse the stored record. No record means that nothing was sent yet.

        :raises MailConflictError: the record is not of this version.
        """
        if record is None:
            counts = dict.fromkeys(("requests", "recipients", "unknown_requests", "unknown_recipients"), 0)
            return cls(version=1, **counts, digest="", ahead={}, under_way={}, halved={}, content="", clears=clears)
        try:
            return cls.model_validate(record)
        except ValidationError:
            raise MailConflictError(
                "task state: the record of what an earlier try has sent was not written by this version of "
                "airflow-provider-mail: nothing was sent. Finish this run with the version that started it"
            ) from None

    @property
    def done(self) -> int:
        """The number of requests before the first one that is still to be sent."""
        return self.requests + self.unknown_requests - len(self.ahead)

    @property
    def begun(self) -> dict[str, str]:
        """The digests of requests, after the first :attr:`done`, of which something was sent, by index."""
        return self.ahead | self.under_way | {index: half.digest for index, half in self.halved.items()}

    def part(self, chunk: Chunk) -> Chunk:
        """Return the part of a request that is to be sent next; mostly that is all of it."""
        half = self.halved.get(str(chunk.index))
        return chunk.part(half.done, half.size) if half else chunk

    def halve(self, chunk: Chunk, size: int) -> None:
        """Note that a request is sent in smaller parts from now on."""
        half = self.halved.setdefault(str(chunk.index), Halved(digest=chunk.digest, size=size))
        half.size = size

    def settle(self, chunk: Chunk, *, accepted: bool) -> bool:
        """Note that a request, or its next part, is not sent again: it was accepted, or the user skips it.

        :return: whether all of the request is done with.
        """
        index, part = str(chunk.index), self.part(chunk)
        self.under_way.pop(index, None)
        self.recipients += part.recipients if accepted else 0
        self.unknown_recipients += 0 if accepted else part.recipients
        if half := self.halved.get(index):
            half.done += part.versions
            half.unknown |= not accepted
            if half.done < chunk.versions:
                return False
            accepted = not self.halved.pop(index).unknown
        self.requests += accepted
        self.unknown_requests += not accepted
        self.ahead[index] = chunk.digest
        while (digest := self.ahead.pop(str(self.done), None)) is not None:
            self.digest = _digest(self.digest, digest)
        return True

    def __str__(self) -> str:
        text = f"{self.recipients} recipients in {self.requests} requests were accepted"
        if self.unknown_recipients:
            text += f", and of {self.unknown_recipients} in {self.unknown_requests} requests the outcome is unknown"
        return text


@dataclass
class Mailing:
    """One mailing of a task instance, over all its tries.

    :param max_in_flight: maximum number of concurrent requests; as many may be in doubt after a crash.
    :param own_ids: whether the ids of the requests are generated here, so that no other mailing can have used them.
    :param state_lost: whether earlier tries may have sent requests that the stored state does not have.
    :param clears: how often the run had been cleared when the first try began, if the stored state does not have it.
    :raises MailConflictError: the stored record is not of this version.
    """

    hook: MailHook
    task_state: TaskState
    on_ambiguous: str
    max_in_flight: int = 1
    argument: str = "messages"
    things: str = "messages"
    own_ids: bool = True
    state_lost: bool = False
    clears: int = 0

    def __post_init__(self) -> None:
        record = self.task_state.read()
        self.state = MailingState.parse(record, self.clears)
        self._in_flight: dict[Future[object], tuple[Chunk, bool]] = {}
        self._unclear: list[tuple[Chunk, MailError]] = []
        self._failure: MailError | None = None
        self._stored = record
        self._again: list[Chunk] = []
        self._largest = 0
        self.is_empty = True
        """Whether there was no message, in any try."""
        self.counts: dict[str, int] = {}
        """Further counts for the result."""

    @property
    def durable(self) -> bool:
        """Whether the record outlives the try."""
        return self.task_state.durable

    def send(self, chunks: Iterable[Chunk]) -> MailingState:
        """Send the chunks that were not sent yet, and begin them in order.

        After an error no further request is begun, and those in flight are waited for.

        :raises MailConflictError: an earlier try sent other chunks than these.
        :raises MailAmbiguousSendError: the outcome of a request is unknown, and ``on_ambiguous`` is ``fail``.
        :raises MailError: the service rejected a request; the requests accepted before stay recorded.
        """
        self.hook.get_conn().open_ahead()
        self.write()  # Also if nothing is begun: a try has come so far.
        left = self._remaining(chunks)
        try:
            threads = min(self.max_in_flight, self.hook.config.max_in_flight)
            with Workers[object](threads, "mail-batch") as workers:
                while True:
                    self._begin(workers, left)
                    if not self._in_flight:
                        break
                    for future in workers.first_done(list(self._in_flight)):
                        self._end(*self._in_flight.pop(future), future)
        except BaseException:
            self._harvest()
            raise
        for chunk in self._again:
            self._not_sent(chunk, in_doubt=str(chunk.index) in self.state.under_way)
        self.write()
        if self._unclear:
            doubtful = [chunk for chunk, _ in self._unclear]
            self._handle_unknown(doubtful, "got no clear response", self._unclear[0][1])
        if self._failure is not None:
            raise self._failure
        self.is_empty = self.is_empty and not self.state.done
        return self.state

    def _begin(self, workers: Workers[object], left: Iterator[Chunk]) -> None:
        """Record the next requests, together with what has become of earlier ones; then send them."""
        begun: list[tuple[Chunk, bool]] = []
        while (
            self._failure is None
            and not self._unclear
            and len(self._in_flight) + len(begun) < self.max_in_flight
            and len(self.state.ahead) < MAX_AHEAD
            and (chunk := self._again.pop() if self._again else next(left, None)) is not None
        ):
            in_doubt = str(chunk.index) in self.state.under_way
            if not in_doubt and 0 < self._largest < self.state.part(chunk).versions:
                self.state.halve(chunk, self._largest)
            begun.append((chunk, in_doubt))
            self.state.under_way[str(chunk.index)] = chunk.digest
        if begun:
            self.write()
        for chunk, in_doubt in begun:
            self._in_flight[workers.submit(self.hook.send, self.state.part(chunk).request)] = chunk, in_doubt

    def _harvest(self) -> None:
        """Record which of the requests in flight were accepted before the work was interrupted."""
        accepted = [
            chunk
            for future, (chunk, _) in self._in_flight.items()
            if future.done() and not future.cancelled() and future.exception() is None
        ]
        for chunk in accepted:
            self._settled(chunk, accepted=True)
        if accepted:
            self.write()

    def _remaining(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Return the chunks to send, after verifying that they are those which earlier tries began to send."""
        iterator, digest = iter(chunks), ""
        for _ in range(self.state.done):
            chunk = next(iterator, None)
            if chunk is None:
                raise self._conflict()
            digest = _digest(digest, chunk.digest)
        begun = self.state.begun
        known = list(islice(iterator, max(map(int, begun), default=self.state.done - 1) + 1 - self.state.done))
        if digest != self.state.digest or begun.items() - {(str(chunk.index), chunk.digest) for chunk in known}:
            raise self._conflict()
        doubtful = [chunk for chunk in known if str(chunk.index) in self.state.under_way]
        if doubtful and self.on_ambiguous != "resend":
            self._handle_unknown(doubtful, f"{_verb(doubtful)} in flight when an earlier try ended")
        done, ahead = self.state.done, self.state.ahead
        self._again.clear()
        return chain([chunk for chunk in known if chunk.index >= done and str(chunk.index) not in ahead], iterator)

    def _conflict(self) -> MailConflictError:
        return MailConflictError(
            f"{self.argument}: these differ from what an earlier try began to send ({self.state}): nothing more was "
            f"sent. Give every try the same {self.things} in the same order with the same settings, and a mapped task "
            "the same list. A new run sends everything, also to those who were mailed"
        )

    def _end(self, chunk: Chunk, in_doubt: bool, future: Future[object]) -> None:
        """Note what has become of a request."""
        try:
            future.result()
        except MailError as error:
            if error.may_have_taken_effect:
                if self.on_ambiguous == "skip":
                    self._handle_unknown([chunk], "got no clear response", error)
                else:
                    self._unclear.append((chunk, error))
                return
            if not (in_doubt or self.state_lost) or not self._was_sent_before(chunk, error):
                # It provably had no effect, so the next try may send it, unless an earlier attempt is still in doubt.
                if self._halve(chunk, error, in_doubt=in_doubt):
                    return
                self._not_sent(chunk, in_doubt=in_doubt)
                self._failure = self._failure or error
                return
            log.warning(
                "Request %s (%s recipients) was rejected because its uniqueMsgID %s is known: it was accepted in an "
                "earlier try. Continuing with the next request.",
                *(chunk.index, chunk.recipients, chunk.request.unique_msg_id),
            )
        self._settled(chunk, accepted=True)

    def _settled(self, chunk: Chunk, *, accepted: bool) -> None:
        if not self.state.settle(chunk, accepted=accepted):
            self._again.append(chunk)

    def _not_sent(self, chunk: Chunk, *, in_doubt: bool) -> None:
        if not in_doubt:
            self.state.under_way.pop(str(chunk.index), None)

    def _halve(self, chunk: Chunk, error: MailError, *, in_doubt: bool) -> bool:
        """Send a request in halves if it is too large for a proxy; return whether it can be halved.

        One in doubt is repeated as it was, under its id, or not at all.
        """
        versions = self.state.part(chunk).versions
        is_too_large = isinstance(error, MailRejectedError) and 413 in (error.status, error.code)
        if in_doubt or not is_too_large or versions == 1:
            return False
        self._largest = (versions + 1) // 2
        log.warning("%s. Continuing with at most %d messages in a request.", error, self._largest)
        self.state.halve(chunk, self._largest)
        del self.state.under_way[str(chunk.index)]
        self._again.append(chunk)
        return True

    def _was_sent_before(self, chunk: Chunk, error: MailError) -> bool:
        """Return whether a rejection proves that the service accepted this request before: it knows the id."""
        if not self.own_ids or not isinstance(error, MailRejectedError):
            return False
        message, own_id = error.service_message or "", self.state.part(chunk).request.unique_msg_id or ""
        about_id = own_id in message or re.search(r"(?i)unique[ _-]?msg[ _-]?id", message) is not None
        return bool(own_id) and about_id and _USED_BEFORE.search(message.replace(own_id, "")) is not None

    def _handle_unknown(self, chunks: Sequence[Chunk], problem: str, error: MailError | None = None) -> None:
        """Handle requests that may have been sent, as the user chose."""
        described = ", ".join(
            f"{part.index} ({part.recipients} recipients, uniqueMsgID {part.request.unique_msg_id})"
            for part in map(self.state.part, chunks)
        )
        requests, them = ("request", "it") if len(chunks) == 1 else ("requests", "them")
        reason = f" ({str(error).removesuffix(NOT_REPEATED)})" if error else ""
        summary = f"{requests} {described} {problem}{reason} and may have been sent; apart from {them} {self.state}."
        operation = chunks[0].request.path
        if self.on_ambiguous == "fail":
            those = "that request" if len(chunks) == 1 else "those requests"
            raise MailAmbiguousSendError(
                f"{summary} Check at the service; then clear the task with on_ambiguous='resend' to send {those} "
                f"again, or 'skip' to continue after {them}",
                operation=operation,
            )
        if self.on_ambiguous == "resend":
            resent = them if self.durable else "everything"
            raise MailResponseLostError(f"{summary} The next try sends {resent} again", operation=operation)
        for chunk in chunks:
            self._settled(chunk, accepted=False)

    def write(self) -> None:
        """Store the state, if it has changed."""
        record = self.state.model_dump()
        if record != self._stored:
            self.task_state.write(record)
            self._stored = record


def _digest(before: str, digest: str) -> str:
    """Return the digest of requests, given that of those before the last, and that of the last."""
    return hashlib.sha256(f"{before}{digest}".encode()).hexdigest()[:32]


def _verb(chunks: Sequence[Chunk]) -> str:
    return "was" if len(chunks) == 1 else "were"


class ChunkSpool:
    """Stores the chunks of one mailing, and yields them in order.

    All chunks are validated before the first one is sent, and a source may change between two reads. Only the fields
    that differ between chunks are in a file; shared fields, such as an attachment, are held once.
    """

    def __init__(self) -> None:
        self._spool = Spool[tuple[int, dict[str, Any], int, str, int]]()
        self._first: EncodedBatch | None = None

    def add(self, chunk: Chunk) -> None:
        request = chunk.request
        assert isinstance(request, EncodedBatch)
        self._first = self._first or request
        own_fields = {"unique_msg_id": request.unique_msg_id, "encoded": request.encoded}
        self._spool.add((chunk.index, own_fields, chunk.recipients, chunk.digest, chunk.versions))

    def __iter__(self) -> Iterator[Chunk]:
        for index, own_fields, recipients, digest, versions in self._spool:
            assert self._first is not None
            yield Chunk(index, self._first.model_copy(update=own_fields), recipients, digest, versions)

    def close(self) -> None:
        self._spool.close()
