"""What an import of contacts keeps beside its rows: what was accepted, the counts, and the spellings of addresses.

A digest of each accepted chunk is stored (task state store of Airflow 3.3). The next try reads and validates all rows
again, and skips a chunk only if it is identical, for the same list, with the same settings, on the same account. Every
other chunk is sent, which an import allows; so no contact is lost, whatever happens to the checkpoint or the rows.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError, field_validator

from airflow_provider_mail._config import setting
from airflow_provider_mail._metrics import ROWS_ACCEPTED, ROWS_READ, ROWS_REJECTED, emit, task_tags
from airflow_provider_mail._task.progress import ProgressLog, store_run
from airflow_provider_mail.api.flows.import_contacts import Progress
from airflow_provider_mail.version_compat import AirflowSkipException, StateStore, state_store

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.import_rows import RejectSpool
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.flows.import_contacts import ImportPlan
    from airflow_provider_mail.api.flows.validate_rows import CheckedRows

CHECKPOINT_KEY = "airflow_provider_mail.imported"

DIGEST_BYTES = 6
"""Length of the digest of a chunk. Digests are compared by index up to the first difference, so this is enough."""

MAX_CHUNKS = 4000
MAX_REJECTED = 1000
"""With both at their maximum the record has about 45,000 bytes; Airflow's limit is 65,535."""

MAX_AGE_SECONDS = 24 * 3600
"""Seconds after which an accepted chunk is sent again: it may have been changed at the service since then."""

WRITE_INTERVAL = 2.0
WRITE_SHARE = 20
"""Writing the record takes at most this fraction of the time, given as its denominator."""

MAX_REASONS = 50
"""Reasons of rejections that are stored with the counts of an import."""

_NONE = bytes(DIGEST_BYTES)


class AcceptedChunks(BaseModel):
    """The stored record.

    :param settings: a digest of everything but the rows that determines what an import does.
    :param digests: of the chunks by index, in Base64; zeros for chunks that are not known to be accepted.
    :param refused: numbers of the rows in these chunks that the service rejected.
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
    """Implements :class:`~airflow_provider_mail.api.flows.import_contacts.ImportCheckpoint` with the task state store.

    Errors of the store never end the import: they are logged, and at worst everything is sent again.
    """

    def __init__(self, store: StateStore, log: Any) -> None:
        self._store = store
        self._log = log
        self._settings = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._digests: dict[int, bytes] = {}
        self._rejected: set[int] = set()
        self._in_flight: dict[int, tuple[bytes, list[int]]] = {}
        self._without_digest: dict[int, tuple[int, CheckedRows]] = {}
        self._changed = False
        self._may_be_stored = True
        self._next_write = 0.0

    def load(self, plan: ImportPlan, config: ClientConfig, is_list_empty: Callable[[], bool]) -> None:
        """Read the record of earlier tries.

        :param is_list_empty: asks the service whether the list has nobody, who was accepted by the record.
        """
        # The key contains the credentials, so that a reader of the state store cannot test addresses on the digests.
        account = repr((config.base_url, sorted(config.credentials().items()))).encode()
        self._settings = hashlib.blake2b(digest_size=DIGEST_BYTES, key=hashlib.sha256(account).digest())
        self._settings.update(plan.template().payload())
        self._settings.update(f"{plan.chunk_size} {config.sandbox}".encode())
        self._next_write = time.monotonic() + WRITE_INTERVAL
        try:
            stored = self._store.get(CHECKPOINT_KEY)
            self._may_be_stored = stored is not None
            record = None if stored is None else AcceptedChunks.model_validate(stored)
        except ValidationError:
            reason = "the record of an earlier try was not written by this version of airflow-provider-mail"
        except Exception as error:
            reason = f"the task state could not be read: {error}"
        else:
            if record is None:
                return
            if record.settings != self._settings.hexdigest():
                reason = "an earlier try imported with other settings or to another account"
            elif time.time() - record.written > MAX_AGE_SECONDS:
                reason = "the record of an earlier try is older than a day"
            elif is_list_empty():
                reason = "the list is gone or empty, so what an earlier try imported was removed"
            else:
                self._digests, self._rejected = _unpacked(record.digests), set(record.refused)
                known = len(self._digests)
                self._log.info(
                    "%s chunks were accepted in earlier tries; those with unchanged rows are not sent again.", known
                )
                return
        self._log.warning("Everything is imported again: %s", reason)
        # Immediately, not with the next write: a third try may match the first one, but this one sends newer rows.
        self.clear()

    def lookup(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        if chunk >= MAX_CHUNKS:
            if chunk == MAX_CHUNKS:
                self._log.info("The checkpoint holds at most %s chunks: the next try sends all others again.", chunk)
            return None
        known = self._digests.get(chunk)
        if known is not None and known == self._digest(first_number, checked):
            # Most imports have none, and a chunk has thousands of rows.
            rejected = [number for number in checked.numbers if number in self._rejected] if self._rejected else []
            if rejected:
                self._in_flight[chunk] = known, rejected
            return rejected
        if known is not None:
            self._discard_from(chunk, first_number)
        if checked.numbers:
            self._without_digest[chunk] = first_number, checked
        return None

    def prepare(self, chunk: int) -> None:
        if (pending := self._without_digest.pop(chunk, None)) is not None:
            self._in_flight[chunk] = self._digest(*pending), []

    def accepted(self, chunk: int, rejected: Sequence[int]) -> None:
        self.prepare(chunk)
        if chunk not in self._in_flight:
            return
        digest, rejected_before = self._in_flight.pop(chunk)
        self._rejected = self._rejected.difference(rejected_before).union(rejected)
        if len(self._rejected) <= MAX_REJECTED:
            self._digests[chunk] = digest
        else:
            self._rejected.difference_update(rejected)
            self._digests.pop(chunk, None)
        self._changed = True
        if time.monotonic() >= self._next_write:
            self.save()

    def save(self, *, complete: bool = False) -> None:
        """Write the record, if it has changed.

        :param complete: all rows are accepted. A record is then written only if there is one: without one, the import
            was so short that sending everything again takes no longer than two requests to the store.
        """
        if not self._changed or (complete and not self._may_be_stored):
            return
        self._may_be_stored = True
        record = AcceptedChunks(
            version=1,
            written=int(time.time()),
            settings=self._settings.hexdigest(),
            digests=_packed(self._digests),
            refused=sorted(self._rejected),
        )
        started = time.monotonic()
        try:
            self._store.set(CHECKPOINT_KEY, record.model_dump(), retention=timedelta(seconds=MAX_AGE_SECONDS))
            self._changed = False
        except Exception as error:
            self._log.warning("The task state could not be written, so the next try may send more again: %s", error)
        now = time.monotonic()
        self._next_write = now + max(WRITE_INTERVAL, WRITE_SHARE * (now - started))

    def clear(self) -> None:
        """Delete the record, if there may be one: the next try imports everything."""
        if not self._may_be_stored:
            return
        try:
            self._store.delete(CHECKPOINT_KEY)
        except Exception as error:
            self._log.warning("The task state could not be deleted, so the next try may skip accepted rows: %s", error)

    def _digest(self, first_number: int, checked: CheckedRows) -> bytes:
        digest = self._settings.copy()
        rejected = [reject.row_number for reject in checked.rejects]
        digest.update(f"{first_number} {len(checked.numbers)} {rejected}".encode())
        digest.update(checked.encoded)
        return digest.digest()

    def _discard_from(self, chunk: int, first_number: int) -> None:
        self._log.warning(
            "Everything from row %s on is imported again: the rows differ from those accepted in an earlier try.",
            f"{first_number:,}",
        )
        self._digests = {index: digest for index, digest in self._digests.items() if index < chunk}
        self._rejected = {number for number in self._rejected if number < first_number}
        self._changed = True
        # Immediately: the next try may read the rows of the first one, which are then not the latest at the service.
        self.save()


def import_checkpoint(context: Context, log: Any) -> StoredImportCheckpoint | None:
    """Return the checkpoint of the task instance; ``None`` without a task state store (before Airflow 3.3)."""
    store = state_store(context)
    return None if store is None else StoredImportCheckpoint(store, log)


def _packed(digests: Mapping[int, bytes]) -> str:
    indexes = range(max(digests, default=-1) + 1)
    return base64.b64encode(b"".join(digests.get(index, _NONE) for index in indexes)).decode()


def _unpacked(text: str) -> dict[int, bytes]:
    raw = base64.b64decode(text)
    starts = range(0, len(raw), DIGEST_BYTES)
    digests = {start // DIGEST_BYTES: raw[start : start + DIGEST_BYTES] for start in starts}
    return {index: digest for index, digest in digests.items() if digest != _NONE}


class ImportProgress(Progress):
    """The counts of an import: it logs them, reports them to metrics every ten seconds, and records how it ended."""

    def __init__(self, task: Any, context: Context) -> None:
        super().__init__()
        self._task = task
        self._context = context
        self._log = ProgressLog(task.log, context)
        self._reported = dict.fromkeys((ROWS_READ, ROWS_ACCEPTED, ROWS_REJECTED), 0)

    def expect(self, total: int | None) -> None:
        self._log.expect(total)

    def show(self, _: Progress) -> None:
        """Log, store and report the counts, if that is due; called after each chunk."""
        if self._log.update(self.accepted + self.rejected, earlier=self.accepted_earlier, rejected=self.rejected):
            self._report()

    def close(self) -> None:
        self._report()
        self._log.close()

    def _report(self) -> None:
        # A row that an earlier try got accepted was reported then.
        new = self.accepted - self.accepted_earlier
        counts = {ROWS_READ: self.read, ROWS_ACCEPTED: new, ROWS_REJECTED: self.rejected}
        emit({metric: count - self._reported[metric] for metric, count in counts.items()}, task_tags(self._task))
        self._reported = counts

    def result(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(Progress) if field.name != "seconds"}

    @contextmanager
    def recorded(self, import_id: str, spool: RejectSpool, *, sandbox: bool) -> Iterator[None]:
        """Store the counts when the import ends, in place of those of an earlier try, if ``imports_conn_id`` is set."""
        state = "failed"
        try:
            yield
            state = "success"
        except AirflowSkipException:
            state = "skipped"
            raise
        finally:
            if conn_id := setting("imports_conn_id"):
                self._record(conn_id, import_id, spool, state=state, sandbox=sandbox)

    def _record(self, conn_id: str, import_id: str, spool: RejectSpool, **values: Any) -> None:
        from airflow_provider_mail.warehouse.database import configured_hook
        from airflow_provider_mail.warehouse.tables.imports import IMPORTS

        reasons = spool.reasons(MAX_REASONS)
        values |= {
            "import_id": import_id,
            "mail_conn_id": self._task.mail_conn_id,
            "list_name": self._task.list_name or None,
            **{name if name in IMPORTS.names else f"rows_{name}": count for name, count in self.result().items()},
            "reasons": [{"field": field, "reason": reason, "rows": rows} for field, reason, rows in reasons],
            "try_number": self._context["ti"].try_number,
            "seconds": self.seconds,
        }
        connect = partial(configured_hook, "imports_conn_id", conn_id)
        store_run(self._task.log, connect, IMPORTS, setting("imports_table"), values)
