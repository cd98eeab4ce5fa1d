"""Sending a mailing at most once: what was sent is written down before and after each request.

There is no operation to look a transactional send up with, so only the record says how far an earlier try came. It
holds how many requests were accepted, a digest of what they said, and one of what was under way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from logging import getLogger
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from airflow_provider_mail.api._core.exchange import NOT_REPEATED
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAnswerLostError,
    MailConflictError,
    MailError,
    MailRejectedError,
)

if TYPE_CHECKING:
    from airflow_provider_mail._task.state import TaskState
    from airflow_provider_mail.api.flows.batches import Chunk
    from airflow_provider_mail.hooks.mail import MailHook

log = getLogger(__name__)

ON_AMBIGUOUS = ("fail", "resend", "skip")

_USED_BEFORE = re.compile(r"(?i)already|before|duplicat|exist|repeat|reuse|in use|taken|not unique|\bused\b")
"""What a service may say of an id that it has seen. The document shows no words for it, nor whether it minds."""


class Sent(BaseModel):
    """How far a mailing is, over all tries. This is what is written down.

    :param version: of this form. Another one is not guessed at: that could mail people twice.
    :param requests: accepted by the service.
    :param recipients: in them.
    :param unknown_requests: skipped, because their outcome is unknown.
    :param unknown_recipients: in them.
    :param digest: of all these requests.
    :param under_way: the digest including the request that was being sent, while there is one.
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
    def read(cls, record: object) -> Sent:
        """What was written down; nothing was sent where nothing was.

        :raises MailConflictError: when it is not understood.
        """
        if record is None:
            return cls(
                version=1, requests=0, recipients=0, unknown_requests=0, unknown_recipients=0, digest="", under_way=None
            )
        try:
            return cls.model_validate(record)
        except ValidationError:
            raise MailConflictError(
                "task state: what an earlier try wrote down about what it has sent was not written by this version of "
                "airflow-provider-mail: nothing was sent. Finish this run with the version that it was begun with, or "
                "start a new run, which sends everything"
            ) from None

    @property
    def done(self) -> int:
        """Requests that are behind us."""
        return self.requests + self.unknown_requests

    def __str__(self) -> str:
        told = f"{self.recipients} recipients in {self.requests} requests were accepted"
        if self.unknown_requests:
            told += f", and of {self.unknown_recipients} in {self.unknown_requests} requests it is unknown"
        return told


class Mailing:
    """One mailing of a task instance, over all its tries.

    :param hook: sends.
    :param ledger: remembers.
    :param on_ambiguous: what to do with a request whose outcome is unknown: ``fail``, ``resend`` it, or ``skip`` it.
    :param argument: of the operator, that says what is sent.
    :param things: that it consists of.
    :param own_ids: whether the ids of the requests are made here, so that no other mailing can have used them.
    :param forgotten: whether earlier tries may have sent requests that the ledger knows nothing of.
    :raises MailConflictError: when the record of earlier tries is not understood.
    """

    def __init__(
        self,
        hook: MailHook,
        ledger: TaskState,
        on_ambiguous: str,
        *,
        argument: str = "messages",
        things: str = "messages",
        own_ids: bool = True,
        forgotten: bool = False,
    ) -> None:
        self._hook = hook
        self._ledger = ledger
        self._on_ambiguous = on_ambiguous
        self._argument = argument
        self._things = things
        self._own_ids = own_ids
        self._forgotten = forgotten
        self.sent = Sent.read(ledger.read())

    def send(self, chunks: Iterable[Chunk]) -> Sent:
        """Send what was not sent yet, in order; the chunks are gone through once.

        :raises MailConflictError: when what an earlier try sent is not what this one would have sent.
        :raises MailAmbiguousSendError: when the outcome of a request is unknown and that is not allowed.
        :raises MailError: when the service refuses a request; what was accepted before stays written down.
        """
        for chunk in self._behind_what_was_sent(chunks):
            self._send(chunk)
        self._write(under_way=None)
        return self.sent

    def _behind_what_was_sent(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """What is left, after making sure that earlier tries sent what this one would have sent."""
        coming, digest = iter(chunks), ""
        for _ in range(self.sent.done):
            chunk = next(coming, None)
            if chunk is None:
                raise self._conflict()
            digest = _digest(digest, chunk)
        first = next(coming, None)
        if digest != self.sent.digest:
            raise self._conflict()
        if self.sent.under_way is not None:
            if first is None or _digest(digest, first) != self.sent.under_way:
                raise self._conflict()
            if self._on_ambiguous != "resend":
                self._unknown(first, "was under way when an earlier try ended")
                first = next(coming, None)
        if first is not None:
            yield first
            yield from coming

    def _conflict(self) -> MailConflictError:
        return MailConflictError(
            f"{self._argument}: these are not what an earlier try began to send ({self.sent}): nothing more was sent. "
            f"Give every try the same {self._things} in the same order with the same settings, or start a new run, "
            "which sends everything"
        )

    def _send(self, chunk: Chunk) -> None:
        digest = _digest(self.sent.digest, chunk)
        in_doubt = self.sent.under_way == digest
        # This also writes down that the request before this one was accepted.
        self._write(under_way=digest)
        try:
            self._hook.send(chunk.request)
        except MailError as error:
            if error.may_have_taken_effect:
                self._unknown(chunk, "got no clear answer", error)
                return
            if not (in_doubt or self._forgotten) or not self._was_sent_before(chunk, error):
                # It provably was not carried out, so the next try may send it: unless an earlier one is in doubt still.
                self._write(under_way=digest if in_doubt else None)
                raise
            log.warning(
                "Request %s (%s recipients) was refused because its uniqueMsgID %s is known: an earlier try had it "
                "accepted. Continuing with the next request.",
                *(chunk.index, chunk.recipients, chunk.request.unique_msg_id),
            )
        self.sent.requests += 1
        self.sent.recipients += chunk.recipients
        self.sent.digest = digest

    def _was_sent_before(self, chunk: Chunk, error: MailError) -> bool:
        """Whether a refusal proves that the service has accepted this request of an earlier try: it knows the id."""
        if not self._own_ids or not isinstance(error, MailRejectedError):
            return False
        said, own_id = error.service_message or "", chunk.request.unique_msg_id or ""
        about_id = own_id in said or re.search(r"(?i)unique[ _-]?msg[ _-]?id", said) is not None
        return bool(own_id) and about_id and _USED_BEFORE.search(said.replace(own_id, "")) is not None

    def _unknown(self, chunk: Chunk, what: str, error: MailError | None = None) -> None:
        """Deal with a request that may have gone out, as the user wants it."""
        which = f"request {chunk.index} ({chunk.recipients} recipients, uniqueMsgID {chunk.request.unique_msg_id})"
        why = f" ({str(error).removesuffix(NOT_REPEATED)})" if error else ""
        told = f"{which} {what}{why} and may have gone out; apart from it {self.sent}."
        if self._on_ambiguous == "fail":
            raise MailAmbiguousSendError(
                f"{told} Ask the service; then clear the task with on_ambiguous='resend' to send that request again, "
                "or 'skip' to go on behind it",
                operation=chunk.request.path,
            )
        if self._on_ambiguous == "resend":
            again = "it" if self._ledger.durable else "everything"
            raise MailAnswerLostError(f"{told} The next try sends {again} again", operation=chunk.request.path)
        self.sent.unknown_requests += 1
        self.sent.unknown_recipients += chunk.recipients
        self.sent.digest = _digest(self.sent.digest, chunk)

    def _write(self, *, under_way: str | None) -> None:
        self.sent.under_way = under_way
        self._ledger.write(self.sent.model_dump())


def _digest(before: str, chunk: Chunk) -> str:
    """Of a row of requests, from the one of those before."""
    return hashlib.sha256(f"{before}{chunk.digest}".encode()).hexdigest()[:32]
