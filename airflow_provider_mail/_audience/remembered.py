"""Mailings whose record is the memory of who was mailed what."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, repeat
from logging import getLogger
from typing import Any, TypeAlias

import msgspec

from airflow_provider_mail._audience.memory import (
    IN_DOUBT,
    NOT_SENT,
    SENT,
    Cap,
    Change,
    Memory,
    Reserved,
    Verdict,
    may_go,
)
from airflow_provider_mail._task.at_most_once import Mailing
from airflow_provider_mail._task.state import TaskState
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api._core.pacing import infrequent_gc
from airflow_provider_mail.api.errors import MailAmbiguousSendError, MailError
from airflow_provider_mail.api.transactional import Chunk, unique_msg_id

log = getLogger(__name__)

_MAX_AHEAD = 200
"""So many requests are reserved at once: their people are found and stored in few statements."""

_MAX_AHEAD_RECIPIENTS, _MAX_AHEAD_BYTES = 20_000, 8_000_000

_AHEAD_SECONDS = 60
"""How long before its request a mail may have been reserved."""

_Wanted: TypeAlias = tuple[Chunk, list[tuple[str, str]]]
"""A request, and the address and the key of each of its mails."""


@dataclass
class _Sent:
    """A request that was begun.

    :param mails: that were not settled yet.
    :param doubtful: those that an earlier try may have sent, by a request of its own.
    """

    request: int
    mails: list[Reserved]
    doubtful: list[Reserved]


@dataclass
class RememberedMailing(Mailing):
    """A mailing whose record is the memory: who gets a mail is decided for each person, right before the request.

    :param task: who sends: the task and its run.
    :param once_per: the key under which a person gets one mail. Default: ``task``.
    :param by_content: whether one person may get several mails under one key, if their contents differ.
    """

    memory: Memory = field(kw_only=True)
    task: str = field(kw_only=True)
    once_per: str | None = None
    by_content: bool = False
    cap: Cap | None = None

    def __post_init__(self) -> None:
        self.task_state = TaskState(None, "")
        super().__post_init__()
        self.counts = {"already": 0, "capped": 0}
        self._sent: dict[int, _Sent] = {}
        self._own: set[int] = set()
        self._begun: set[int] = set()
        self._changes: list[Change] = []
        self.memory.check()

    def send(self, chunks: Iterable[Chunk]) -> Any:
        self.state = self.state.parse(None)
        self.counts.update(already=0, capped=0)
        self._sent.clear()
        self._own.clear()
        with self.memory.kept_open(), infrequent_gc():
            try:
                return super().send(chunks)
            finally:
                if any(self.counts.values()):
                    log.warning(
                        "Not mailed: %s recipients who have had this mail, and %s who have had as many as at_most "
                        "allows.",
                        *self.counts.values(),
                    )

    @property
    def durable(self) -> bool:
        return True

    def _remaining(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        source, most, index = iter(chunks), _MAX_AHEAD, 0
        goes = {"new", "doubt"} if self.on_ambiguous == "resend" else {"new"}
        rest: list[_Wanted] = []
        while block := rest or self._next(source):
            self.is_empty = False
            block, rest = block[:most], block[most:]
            end, reserved = time.monotonic() + _AHEAD_SECONDS, self._reserve(block)
            left = [number for number, verdicts in reserved if any(verdict in goes for verdict, _ in verdicts)]
            for place, ((chunk, _), (number, verdicts)) in enumerate(zip(block, reserved, strict=True)):
                self._check_doubt(chunk, verdicts)
                mails = [mail for verdict, mail in verdicts if verdict in goes]
                if mails and number not in self._begun and (time.monotonic() > end or not self._begin_some(left)):
                    # Others have mailed some of these people; or, by now, some would be judged otherwise.
                    rest, most = [*block[place:], *rest], max(1, most // 2)
                    break
                counts = Counter[str](verdict for verdict, _ in verdicts)
                self.state.recipients += counts["sent"]
                self.state.unknown_recipients += counts["doubt"] if self.on_ambiguous == "skip" else 0
                self.counts = {verdict: count + counts[verdict] for verdict, count in self.counts.items()}
                if mails:
                    left.remove(number)
                    self._begun.discard(number)
                    self._own.add(number)
                    doubtful = [mail for verdict, mail in verdicts if verdict == "doubt" and verdict in goes]
                    self._sent[index] = _Sent(number, mails, doubtful)
                    yield self._request(index, chunk, [verdict in goes for verdict, _ in verdicts])
                    index += 1
            else:
                most = min(2 * most, _MAX_AHEAD)

    def _next(self, source: Iterator[Chunk]) -> list[_Wanted]:
        """Return the next requests, with the address and the key of each mail."""
        block: list[_Wanted] = []
        recipients = size = 0
        while len(block) < _MAX_AHEAD and recipients < _MAX_AHEAD_RECIPIENTS and size < _MAX_AHEAD_BYTES:
            if (chunk := next(source, None)) is None:
                break
            keys = self._keys(chunk)
            wanted = [(address_key(one), key) for key, to in zip(keys, chunk.addresses(), strict=False) for one in to]
            block.append((chunk, wanted))
            recipients += len(wanted)
            size += len(getattr(chunk.request, "encoded", b""))
        return block

    @property
    def _room(self) -> int:
        """How many requests are begun now."""
        return max(1, self.max_in_flight - len(self._sent))

    def _reserve(self, block: Sequence[_Wanted]) -> list[tuple[int, list[tuple[Verdict, Reserved]]]]:
        send_date = block[0][0].request.send_date
        reserved = self.memory.reserve(
            [wanted for _, wanted in block],
            task=self.task,
            at=None if send_date is None else int(send_date.timestamp()),
            cap=self.cap,
            changes=self._changes,
            own=self._own,
            begun=self._room,
        )
        self._changes = []
        self._begun = set([number for number, verdicts in reserved if may_go(verdicts)][: self._room])
        return reserved

    def _begin_some(self, numbers: Sequence[int]) -> bool:
        begun = numbers[: self._room]
        is_begun = self.memory.begin(begun, self._changes)
        self._changes = []
        self._begun = {*begun} if is_begun else set()
        return is_begun

    def _check_doubt(self, chunk: Chunk, verdicts: Sequence[tuple[Verdict, Reserved]]) -> None:
        count = sum(verdict == "doubt" for verdict, _ in verdicts)
        if count and self.on_ambiguous == "fail":
            raise MailAmbiguousSendError(
                f"{count} recipients may have been sent this mail by an earlier try, which has not recorded the "
                f"outcome. Apart from them {self.state}. Check at the service; then clear the task with "
                "on_ambiguous='resend' to mail them again, or 'skip' to continue without them",
                operation=chunk.request.path,
            )

    def _request(self, index: int, chunk: Chunk, goes: Sequence[bool]) -> Chunk:
        """Return the request to those who may be mailed."""
        sent = self._sent[index]
        if not all(goes):
            messages = chunk.messages()
            people = (
                (place, person)
                for place, one in enumerate(messages)
                for person in msgspec.json.decode(one["to"], type=list[msgspec.Raw])
            )
            kept: dict[int, list[Any]] = {}
            for place, person in compress(people, goes):
                kept.setdefault(place, []).append(person)
            chunk = chunk.with_messages([{**messages[place], "to": to} for place, to in kept.items()])
        # By the people: their positions change with the messages.
        own_id = {"unique_msg_id": unique_msg_id(f"{self.task}/{sorted(sent.mails)}", 0)} if self.own_ids else {}
        result = replace(chunk, index=index, request=chunk.request.model_copy(update=own_id))
        if sent.doubtful:
            self.state.under_way[str(index)] = result.digest
        return result

    def _keys(self, chunk: Chunk) -> Iterable[str]:
        """Return the key of each message."""
        if self.once_per or not self.by_content:
            return repeat(self.once_per or self.task)
        shared = [getattr(chunk.request, name, None) for name in ("subject", "content", "template_name", "params")]
        contents = [
            [*shared, *(bytes(message.get(name, b"")) for name in ("subject", "content", "templateName", "params"))]
            for message in chunk.messages()
        ]
        return [f"{self.task}/{hashlib.sha256(repr(one).encode()).hexdigest()[:16]}" for one in contents]

    def _begin(self, workers: Any, left: Iterator[Chunk]) -> None:
        try:
            super()._begin(workers, left)
        except BaseException:
            in_flight = {chunk.index for chunk, _ in self._in_flight.values()}
            waiting = [sent.request for index, sent in self._sent.items() if index not in in_flight]
            self._changes += [(request, NOT_SENT, None) for request in (*waiting, *self._begun)]
            self._begun.clear()
            self.write()
            raise

    def write(self) -> None:
        if self._changes:
            self.memory.write(self._changes)
            self._changes = []

    def _split(self, chunk: Chunk) -> tuple[list[Reserved], list[Reserved]]:
        """Return the mails of the part of a request that is sent next, and those of the further parts."""
        mails, count = self._sent[chunk.index].mails, None
        if str(chunk.index) in self.state.halved:
            count = sum(map(len, self.state.part(chunk).addresses()))
        return mails[:count], [] if count is None else mails[count:]

    def _settled(self, chunk: Chunk, *, accepted: bool) -> None:
        sent = self._sent[chunk.index]
        mails, sent.mails = self._split(chunk)
        super()._settled(chunk, accepted=accepted)
        if accepted and sent.mails:
            self._changes.append((sent.request, SENT, mails))
        elif accepted:
            self._changes.append((sent.request, SENT, None))
            if sent.doubtful:
                self._changes.append((sent.request, SENT, sent.doubtful))
        if not sent.mails:
            del self._sent[chunk.index]

    def _not_sent(self, chunk: Chunk, *, in_doubt: bool) -> None:
        super()._not_sent(chunk, in_doubt=in_doubt)
        self._changes.append((self._sent.pop(chunk.index).request, NOT_SENT, None))

    def _handle_unknown(self, chunks: Sequence[Chunk], problem: str, error: MailError | None = None) -> None:
        for chunk in chunks:
            request = self._sent[chunk.index].request
            mails, further = self._split(chunk)
            self._changes.append((request, IN_DOUBT, mails if further else None))
            if further and self.on_ambiguous != "skip":
                self._changes.append((request, NOT_SENT, None))
        self.write()
        super()._handle_unknown(chunks, problem, error)
