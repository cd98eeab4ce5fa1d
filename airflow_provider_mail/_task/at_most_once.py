"""Send a mailing at most once: the state is stored before and after each request.

A transactional send cannot be looked up, so only the stored state shows what an earlier try has sent. It holds the
number of accepted requests, a digest of their content, and a digest of the request in flight.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.api._core.exchange import NOT_REPEATED
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAnswerLostError,
    MailConflictError,
    MailError,
    MailRejectedError,
)
from airflow_provider_mail.api.transactional import Chunk, SendBatch

if TYPE_CHECKING:
    from airflow_provider_mail._task.state import TaskState
    from airflow_provider_mail.hooks.mail import MailHook

log = getLogger(__name__)

_USED_BEFORE = re.compile(r"(?i)already|before|duplicat|exist|repeat|reuse|in use|taken|not unique|\bused\b")
"""Words in the rejection of a repeated id. The specification shows neither the words nor whether ids are checked."""


class MailingState(BaseModel):
    """The stored state of a mailing, over all tries.

    :param version: of the format. A record of another version is an error: interpreting it could send mail twice.
    :param under_way: the digest including the request in flight; ``None`` if no request is in flight.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[1]
    requests: NonNegativeInt
    recipients: NonNegativeInt
    unknown_requests: NonNegativeInt
    unknown_recipients: NonNegativeInt
    digest: str
    under_way: str | None

    @classmethod
    def parse(cls, record: object) -> MailingState:
        """Parse the stored record. No record means that nothing was sent yet.

        :raises MailConflictError: the record is not of this version.
        """
        if record is None:
            return cls(
                version=1, requests=0, recipients=0, unknown_requests=0, unknown_recipients=0, digest="", under_way=None
            )
        try:
            return cls.model_validate(record)
        except ValidationError:
            raise MailConflictError(
                "task state: the record of what an earlier try has sent was not written by this version of "
                "airflow-provider-mail: nothing was sent. Finish this run with the version that started it, or start a "
                "new run, which sends everything"
            ) from None

    @property
    def done(self) -> int:
        """The number of requests that are not sent again."""
        return self.requests + self.unknown_requests

    def __str__(self) -> str:
        text = f"{self.recipients} recipients in {self.requests} requests were accepted"
        if self.unknown_requests:
            text += f", and of {self.unknown_recipients} in {self.unknown_requests} requests the outcome is unknown"
        return text


@dataclass
class Mailing:
    """One mailing of a task instance, over all its tries.

    :param on_ambiguous: what to do with a request whose outcome is unknown: ``fail``, ``resend`` it, or ``skip`` it.
    :param own_ids: whether the ids of the requests are generated here, so that no other mailing can have used them.
    :param state_lost: whether earlier tries may have sent requests that the stored state does not have.
    :raises MailConflictError: the stored record is not of this version.
    """

    hook: MailHook
    task_state: TaskState
    on_ambiguous: str
    argument: str = "messages"
    things: str = "messages"
    own_ids: bool = True
    state_lost: bool = False

    def __post_init__(self) -> None:
        self.state = MailingState.parse(self.task_state.read())

    def send(self, chunks: Iterable[Chunk]) -> MailingState:
        """Send the chunks that were not sent yet, in order.

        :raises MailConflictError: an earlier try sent other chunks than these.
        :raises MailAmbiguousSendError: the outcome of a request is unknown, and ``on_ambiguous`` is ``fail``.
        :raises MailError: the service rejected a request; the requests accepted before stay recorded.
        """
        for chunk in self._remaining(chunks):
            self._send(chunk)
        self._write(under_way=None)
        return self.state

    def _remaining(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks to send, after verifying that earlier tries sent the chunks before these."""
        iterator, digest = iter(chunks), ""
        for _ in range(self.state.done):
            chunk = next(iterator, None)
            if chunk is None:
                raise self._conflict()
            digest = _digest(digest, chunk)
        first = next(iterator, None)
        if digest != self.state.digest:
            raise self._conflict()
        if self.state.under_way is not None:
            if first is None or _digest(digest, first) != self.state.under_way:
                raise self._conflict()
            if self.on_ambiguous != "resend":
                self._handle_unknown(first, "was in flight when an earlier try ended")
                first = next(iterator, None)
        if first is not None:
            yield first
            yield from iterator

    def _conflict(self) -> MailConflictError:
        return MailConflictError(
            f"{self.argument}: these differ from what an earlier try began to send ({self.state}): nothing more was "
            f"sent. Give every try the same {self.things} in the same order with the same settings, or start a new "
            "run, which sends everything"
        )

    def _send(self, chunk: Chunk) -> None:
        digest = _digest(self.state.digest, chunk)
        in_doubt = self.state.under_way == digest
        # This also records that the request before this one was accepted.
        self._write(under_way=digest)
        try:
            self.hook.send(chunk.request)
        except MailError as error:
            if error.may_have_taken_effect:
                self._handle_unknown(chunk, "got no clear response", error)
                return
            if not (in_doubt or self.state_lost) or not self._was_sent_before(chunk, error):
                # It provably had no effect, so the next try may send it, unless an earlier attempt is still in doubt.
                self._write(under_way=digest if in_doubt else None)
                raise
            log.warning(
                "Request %s (%s recipients) was rejected because its uniqueMsgID %s is known: it was accepted in an "
                "earlier try. Continuing with the next request.",
                *(chunk.index, chunk.recipients, chunk.request.unique_msg_id),
            )
        self.state.requests += 1
        self.state.recipients += chunk.recipients
        self.state.digest = digest

    def _was_sent_before(self, chunk: Chunk, error: MailError) -> bool:
        """Return whether a rejection proves that the service accepted this request before: it knows the id."""
        if not self.own_ids or not isinstance(error, MailRejectedError):
            return False
        message, own_id = error.service_message or "", chunk.request.unique_msg_id or ""
        about_id = own_id in message or re.search(r"(?i)unique[ _-]?msg[ _-]?id", message) is not None
        return bool(own_id) and about_id and _USED_BEFORE.search(message.replace(own_id, "")) is not None

    def _handle_unknown(self, chunk: Chunk, problem: str, error: MailError | None = None) -> None:
        """Handle a request that may have been sent, as the user chose."""
        request = f"request {chunk.index} ({chunk.recipients} recipients, uniqueMsgID {chunk.request.unique_msg_id})"
        reason = f" ({str(error).removesuffix(NOT_REPEATED)})" if error else ""
        summary = f"{request} {problem}{reason} and may have been sent; apart from it {self.state}."
        if self.on_ambiguous == "fail":
            raise MailAmbiguousSendError(
                f"{summary} Check at the service; then clear the task with on_ambiguous='resend' to send that request "
                "again, or 'skip' to continue after it",
                operation=chunk.request.path,
            )
        if self.on_ambiguous == "resend":
            resent = "it" if self.task_state.durable else "everything"
            raise MailAnswerLostError(f"{summary} The next try sends {resent} again", operation=chunk.request.path)
        self.state.unknown_requests += 1
        self.state.unknown_recipients += chunk.recipients
        self.state.digest = _digest(self.state.digest, chunk)

    def _write(self, *, under_way: str | None) -> None:
        self.state.under_way = under_way
        self.task_state.write(self.state.model_dump())


def _digest(before: str, chunk: Chunk) -> str:
    """Return the digest of requests, given that of those before the last."""
    return hashlib.sha256(f"{before}{chunk.digest}".encode()).hexdigest()[:32]


class ChunkSpool:
    """Stores the chunks of one mailing, and yields them in order.

    All chunks are validated before the first one is sent, and a source may change between two reads. Only the fields
    that differ between chunks are in a file; shared fields, such as an attachment, are held once.
    """

    def __init__(self) -> None:
        self._spool = Spool[tuple[int, int, str, dict[str, Any]]]()
        self._first: SendBatch | None = None

    def add(self, chunk: Chunk) -> None:
        request = chunk.request
        assert isinstance(request, SendBatch)
        self._first = self._first or request
        own_fields = {"unique_msg_id": request.unique_msg_id, "message_versions": request.message_versions}
        self._spool.add((chunk.index, chunk.recipients, chunk.digest, own_fields))

    def __iter__(self) -> Iterator[Chunk]:
        for index, recipients, digest, own_fields in self._spool:
            assert self._first is not None
            yield Chunk(index, self._first.model_copy(update=own_fields), recipients, digest)

    def close(self) -> None:
        self._spool.close()
