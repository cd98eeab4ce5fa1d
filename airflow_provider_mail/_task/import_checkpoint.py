"""What a task remembers of an import, so that its next try need not send what was accepted (task state store of 3.3).

Of each chunk that the service has accepted a digest is kept. A later try reads and checks all rows again and leaves a
chunk out only if it is the very same, for the same list, with the same settings, on the same account. Whatever is not
known to have been accepted is sent, which an import allows; so nothing has to be read twice when rows have changed, and
whatever happens to the memory, no contact is lost.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError, field_validator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.flows.import_contacts import ImportPlan
    from airflow_provider_mail.api.flows.validate_rows import CheckedRows

KEY = "airflow_provider_mail.imported"

DIGEST_BYTES = 6
"""Of one chunk. They are compared place by place up to the first that differs, so this is plenty."""

MAX_CHUNKS = 4000
MAX_REJECTED = 1000
"""What is remembered at most: with both the record has some 45,000 bytes, and Airflow's limit is 65,535."""

MAX_AGE_SECONDS = 24 * 3600
"""Seconds. What was accepted longer ago may have been changed in the service since then."""

SECONDS_BETWEEN = 2.0
SHARE = 20
"""The record is written so seldom that it takes no more than one part in so many of the time."""

_NONE = bytes(DIGEST_BYTES)


class Accepted(BaseModel):
    """What is written down.

    :param version: of this form.
    :param written: when, in seconds since 1970.
    :param settings: a digest of everything but the rows that decides what an import does.
    :param digests: of the chunks by their place, in Base64; zeros for those that are not known to be accepted.
    :param refused: numbers of the rows in these chunks that the service does not want.
    """

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    version: Literal[1]
    written: NonNegativeInt
    settings: str
    digests: Annotated[str, Field(max_length=DIGEST_BYTES * MAX_CHUNKS * 4 // 3)]
    refused: Annotated[list[PositiveInt], Field(max_length=MAX_REJECTED)]

    @field_validator("digests")
    @classmethod
    def _whole(cls, text: str) -> str:
        if len(base64.b64decode(text, validate=True)) % DIGEST_BYTES:
            raise ValueError("cut short")
        return text


class StoredImportCheckpoint:
    """Remembers in the task state store which chunks of an import were accepted; a ``ImportCheckpoint`` of the import.

    No failure of the store ends the import: it is logged, and at worst everything is sent once more.

    :param store: ``context["task_state_store"]``.
    :param log: the task's logger.
    """

    def __init__(self, store: Any, log: Any) -> None:
        self._store = store
        self._log = log
        self._empty = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._digests: dict[int, bytes] = {}
        self._refused: set[int] = set()
        self._under_way: dict[int, tuple[bytes, list[int]]] = {}
        self._recalled = 0
        self._told = self._changed = False
        self._next_write = 0.0

    def begin(self, plan: ImportPlan, config: ClientConfig) -> None:
        """Look up what earlier tries had accepted.

        :param plan: what is imported, and how.
        :param config: where to.
        """
        # Part of the key is a secret, so that nobody who reads the state store can try addresses on the digests.
        account = repr((config.base_url, sorted(config.credentials().items()))).encode()
        self._empty = hashlib.blake2b(digest_size=DIGEST_BYTES, key=hashlib.sha256(account).digest())
        self._empty.update(plan.template().payload())
        self._empty.update(f"{plan.chunk_size} {config.sandbox}".encode())
        self._next_write = time.monotonic() + SECONDS_BETWEEN
        try:
            found = self._store.get(KEY, None)
            record = None if found is None else Accepted.model_validate(found)
        except ValidationError:
            reason = "what an earlier try wrote down was not written by this version of airflow-provider-mail"
        except Exception as error:
            reason = f"the task state could not be read: {error}"
        else:
            if record is None:
                return
            if record.settings != self._empty.hexdigest():
                reason = "an earlier try imported with other settings or to another account"
            elif time.time() - record.written > MAX_AGE_SECONDS:
                reason = "what an earlier try had accepted is older than a day"
            else:
                self._digests, self._refused = _unpacked(record.digests), set(record.refused)
                known = len(self._digests)
                self._log.info(
                    "Earlier tries had %s chunks accepted; where rows are the same, they are not sent.", known
                )
                return
        self._log.warning("Everything is imported again: %s", reason)
        # Now and not with the next write: a third try may be as the first was, but what this one sends is newer.
        self.forget()

    def recall(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        """The numbers of the rows to send of a chunk that was accepted; ``None`` when all are to be sent."""
        if chunk >= MAX_CHUNKS:
            self._tell_where(first_number)
            if chunk == MAX_CHUNKS:
                self._log.info("No more than %s chunks are remembered: a further try sends the others again.", chunk)
            return None
        digest, known = self._digest(first_number, checked), self._digests.get(chunk)
        if known == digest:
            refused = [number for number in checked.numbers if number in self._refused] if self._refused else []
            if refused:
                self._under_way[chunk] = digest, refused
            self._recalled += len(checked.numbers) - len(refused)
            return refused
        self._tell_where(first_number)
        if known is not None:
            self._forget_from(chunk, first_number)
        if checked.numbers:
            self._under_way[chunk] = digest, []
        return None

    def accepted(self, chunk: int, refused: Sequence[int]) -> None:
        """Note that the service has taken a chunk but for these rows; now and then it is written down."""
        if chunk not in self._under_way:
            return
        digest, refused_before = self._under_way.pop(chunk)
        self._refused = self._refused.difference(refused_before).union(refused)
        if len(self._refused) <= MAX_REJECTED:
            self._digests[chunk] = digest
        else:
            self._refused.difference_update(refused)
            self._digests.pop(chunk, None)
        self._changed = True
        if time.monotonic() >= self._next_write:
            self.save()

    def save(self) -> None:
        """Write down what is new since the last time."""
        if not self._changed:
            return
        record = Accepted(
            version=1,
            written=int(time.time()),
            settings=self._empty.hexdigest(),
            digests=_packed(self._digests),
            refused=sorted(self._refused),
        )
        started = time.monotonic()
        try:
            self._store.set(KEY, record.model_dump(), retention=timedelta(seconds=MAX_AGE_SECONDS))
            self._changed = False
        except Exception as error:
            self._log.warning("The task state could not be written, so a further try may send more again: %s", error)
        now = time.monotonic()
        self._next_write = now + max(SECONDS_BETWEEN, SHARE * (now - started))

    def forget(self) -> None:
        """Let the next try import everything."""
        try:
            self._store.delete(KEY)
        except Exception as error:
            self._log.warning(
                "The task state could not be removed, so a further try may leave out what was accepted: %s", error
            )

    def _digest(self, first_number: int, checked: CheckedRows) -> bytes:
        digest = self._empty.copy()
        rejected = [reject.row_number for reject in checked.rejects]
        digest.update(f"{first_number} {len(checked.numbers)} {rejected}".encode())
        digest.update(checked.encoded)
        return digest.digest()

    def _tell_where(self, first_number: int) -> None:
        """Say once where the import goes on."""
        if self._recalled and not self._told:
            self._told = True
            self._log.info(
                "Resumed: %s rows were accepted in earlier tries and are not sent; going on with row %s.",
                *(f"{self._recalled:,}", f"{first_number:,}"),
            )

    def _forget_from(self, chunk: int, first_number: int) -> None:
        self._log.warning(
            "From row %s on everything is imported again: the rows are not those that an earlier try had accepted.",
            f"{first_number:,}",
        )
        self._digests = {place: digest for place, digest in self._digests.items() if place < chunk}
        self._refused = {number for number in self._refused if number < first_number}
        self._changed = True
        # At once: if this try ends and the next one finds the rows of the first again, these are not the latest.
        self.save()


def import_memory(context: Context, log: Any) -> StoredImportCheckpoint | None:
    """The memory of the task instance's imports, where Airflow has a task state store (3.3)."""
    store = context.get("task_state_store")
    return None if store is None else StoredImportCheckpoint(store, log)


def _packed(digests: Mapping[int, bytes]) -> str:
    places = range(max(digests, default=-1) + 1)
    return base64.b64encode(b"".join(digests.get(place, _NONE) for place in places)).decode()


def _unpacked(text: str) -> dict[int, bytes]:
    raw = base64.b64decode(text)
    starts = range(0, len(raw), DIGEST_BYTES)
    digests = {start // DIGEST_BYTES: raw[start : start + DIGEST_BYTES] for start in starts}
    return {place: digest for place, digest in digests.items() if digest != _NONE}
