"""The rows of an import, between its source and the checks: who said no, who has no address, which values are sent.

Rejected rows, also of a load, are kept on disk until they are stored in the table or file that the user chose.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import compress
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self
from unicodedata import normalize

from airflow_provider_mail._task.mixin import task_instance_name
from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.flows.import_contacts import Progress, SelectedRows
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.read_files import FileBatch, WrongWidth

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.validate_rows import Reject
    from airflow_provider_mail.arguments import Consent, Rejects
    from airflow_provider_mail.warehouse.database import LoadResult
    from airflow_provider_mail.warehouse.errors import UnstorableError
    from airflow_provider_mail.warehouse.rows import OnUnstorable
    from airflow_provider_mail.warehouse.table import Table, TableName


Batch = Sequence[Sequence[Any]]

_MEANS_NO = re.compile(
    r"unsub|opt(ed)?out|donot(email|mail|contact|send|disturb)|dontmail|blacklist|blocklist|suppressed|"
    r"^no(email|mail|marketing|newsletter)|^dn[cd]$|"
    r"abgemeldet|abmeld|abbestell|widerruf|wider(spr[ou]ch|sprochen)|^keine?(e?mail|newsletter|werbung)|"
    r"desabonn|desinscri|^nepas|dadodebaja|(cancel|anul)\w*suscri|^no(enviar|contactar)|disiscri|(annull|cancel)\w*iscri|"
    r"descadastr|cancel\w*inscri|uitgeschreven|uitschrijv|afgemeld|afmeld|^geene?mail|wypisa|отписа|"
    r"配信停止|購読解除|退订|退訂|取消订阅"
)
_MEANS_YES = re.compile(
    r"opt(ed)?in|consen[ts]|permission|subscribed(flag)?$|subscri(ber|ption)stat(us|e)|emailmarketing|"
    r"(accepts?|receives?|wants?)(e?mail|marketing)|(mail|marketing)subscription$|marketing(contact)?status|newsletter$|"
    r"gdpr|dsgvo|rgpd|einwillig|zustimm|angemeldet|abonniert|abonnee?$|inscrit[eo]?$|(accepte|acepta)\w*(mail|courriel|correo)|"
    r"suscri|iscritt[oi]$|toestemming|ingeschreven|aangemeld|zgoda|подпис|購読|订阅|訂閱"
)
_SAYS_WHEN_OR_HOW = re.compile(
    r"^(date|time|datum|fecha)|(time|timestamp|date|datum|ip|source|method|reason|reasonother|grund|title|campaignid|"
    r"(opt(ed)?(in|out)|(un)?subscribed|consented|confirmed)(at|on))$"
)
"""Parts of names of columns that describe a consent, and have no yes or no."""

_MAY_MEAN_YES = re.compile(r"(list|email|member|contact|lead)?(status|state)")
"""Names of columns that have a consent only if their values do."""

_YES = frozenset(
    (
        "1", "-1", "true", "t", "yes", "y", "on", "x", "subscribed", "opted in", "opted_in", "optin", "opt-in",
        "granted", "marketing contact", "ja", "oui", "si", "sí", "sim", "tak", "да", "はい", "是",
    )
)  # fmt: skip
_NO = frozenset(
    (
        "unsubscribed", "opted out", "opted_out", "opted-out", "optout", "opt out", "opt-out", "do not contact",
        "do not email", "do not mail", "abgemeldet", "désabonné", "désinscrit", "dado de baja", "disiscritto",
        "descadastrado", "uitgeschreven", "afgemeld", "wypisany", "отписан", "退订", "配信停止",
    )
)  # fmt: skip
"""Values that say no in a column of any name."""

_BOOLEANS = frozenset(("1", "-1", "true", "t", "yes", "y", "on", "x")), frozenset(("0", "false", "f", "no", "n", "off"))
"""What tools write for the same."""

_MAIL_WORDS = frozenset(("subscribed", "unsubscribed", "cleaned", "non-subscribed"))


class Source(NamedTuple):
    """Rows to import."""

    columns: Sequence[str]
    batches: Iterator[Batch]
    total: int | None
    all_columns: Sequence[str] = ()


def folded(value: Any) -> str:
    """Return a value as it is compared with those of `Consent`: text in small letters; empty for no value."""
    try:
        # pandas writes whole numbers as 1.0 where some are missing.
        return "" if value is None else re.sub(r"\A(-?\d+)\.0+\Z", r"\1", str(value).strip().casefold())
    except ValueError:  # Python does not format numbers with thousands of digits.
        return "a number"


class RowFilter:
    """Leaves out people who said no, and rows without an address; counts both, and all rows that are read.

    A person who said no in one row, and yes in another, said no: with a consent, all rows are read before the first is
    sent, and wait in a temporary file.

    :param mapping: the property of each column that is sent.
    :param opted_out: gets the hashes of the keys of people who said no.
    """

    def __init__(
        self,
        source: Source,
        mapping: Mapping[str, str],
        consents: Sequence[Consent],
        progress: Progress,
        limit: int | None,
        opted_out: set[int],
    ) -> None:
        columns = source.columns
        self._width = len(columns)
        self._progress = progress
        self._limit = limit
        places = {name: columns.index(column) for column, name in mapping.items()}
        self._email = places.get("email")
        self._identities = [places[name] for name in ("email", "phoneNumber") if name in places]
        self._opted_out = opted_out
        self._conditions = []
        for consent in consents:
            known = source.all_columns or columns
            if (times := list(known).count(consent.column)) != 1:
                problem = "more than one" if times else "no"
                raise AirflowFailException(
                    f"consent: the source has {problem} {consent.column!r}; it has {', '.join(known)}"
                )
            values = frozenset(map(folded, consent.yes or consent.no or ()))
            if consent.yes is None:
                values = values.union(*(spellings for spellings in _BOOLEANS if spellings & values))
            self._conditions.append((columns.index(consent.column), values, consent.yes is not None))

    def rows(self, batches: Iterable[Batch]) -> Iterator[SelectedRows]:
        """Yield the rows that are left, with their numbers in the source, up to the limit."""
        if not self._conditions:
            yield from self._selected(batches)
            return
        with closing(Spool[SelectedRows]()) as spool:
            for rows in self._selected(batches):
                spool.add(rows)
            for rows in spool:
                kept = [not self._said_no_elsewhere(row) for row in rows]
                yield rows if all(kept) else selected(rows, kept)

    def _selected(self, batches: Iterable[Batch]) -> Iterator[SelectedRows]:
        for rows in numbered(batches, self._progress, self._limit):
            kept = self._kept(rows)
            yield rows if kept is None else selected(rows, kept)

    def _kept(self, rows: Batch) -> list[bool] | None:
        """Return which rows are left; ``None`` for all."""
        if not self._conditions and (not self._identities or self._all_have(rows, self._identities[0])):
            return None
        return [len(row) != self._width or (self._agrees(row) and self._has_address(row)) for row in rows]

    @staticmethod
    def _all_have(rows: Batch, place: int) -> bool:
        # Nearly always so. Without a loop of Python, since this is the hot path of an import.
        try:
            return all(map(itemgetter(place), rows))
        except IndexError:
            return False

    def _agrees(self, row: Sequence[Any]) -> bool:
        agrees = all((folded(row[place]) in values) is means_yes for place, values, means_yes in self._conditions)
        if not agrees:
            self._progress.opted_out += 1
            if (key := self._key(row)) is not None:
                self._opted_out.add(key)
        return agrees

    def _said_no_elsewhere(self, row: Sequence[Any]) -> bool:
        said_no = bool(self._opted_out) and self._key(row) in self._opted_out
        self._progress.opted_out += said_no
        return said_no

    def _key(self, row: Sequence[Any]) -> int | None:
        """Return a hash that identifies the person of a row; ``None`` without an address."""
        if self._email is None or len(row) != self._width or not isinstance(address := row[self._email], str):
            return None
        return hash(address_key(address)) if address else None

    def _has_address(self, row: Sequence[Any]) -> bool:
        has = not self._identities or any(row[place] not in (None, "") for place in self._identities)
        self._progress.without_address += not has
        return has


def numbered(batches: Iterable[Batch], progress: Progress, limit: int | None) -> Iterator[SelectedRows]:
    """Yield the rows up to the limit, with their numbers in the source; those that have numbers were counted before."""
    for batch in batches:
        if isinstance(batch, SelectedRows):
            yield batch
            continue
        first, size = progress.read + 1, len(batch)
        if limit is not None:
            size = min(size, limit - progress.read)
        progress.read += size
        lines = getattr(batch, "lines", ())[:size]
        yield SelectedRows(batch if size == len(batch) else batch[:size], range(first, first + size), lines)
        if progress.read == limit:
            return


def selected(rows: SelectedRows, selectors: Sequence[Any]) -> SelectedRows:
    """Return the rows of which the selector is true."""
    numbers, lines = (list(compress(places, selectors)) for places in (rows.numbers, rows.lines))
    return SelectedRows(compress(rows, selectors), numbers, lines)


def unused_consent(source: Source, first: Batch) -> str | None:
    """Return the argument that uses a column which looks like a consent; ``None`` if there is no such column."""
    columns = source.columns
    for column in source.all_columns or columns:
        name = "".join(filter(str.isalpha, normalize("NFKD", column.casefold())))
        place = columns.index(column) if column in columns else None
        found = {folded(row[place]) for row in first if len(row) == len(columns)} if place is not None else set()
        yes, no = sorted(found & _YES), sorted(found & _NO)
        if _SAYS_WHEN_OR_HOW.search(name):
            if _MEANS_NO.search(name) and not name.endswith(("reason", "reasonother", "grund", "title")):
                return f"consent=Consent(column={column!r}, yes=[''])"
        elif _MEANS_NO.search(name):
            return f"consent=Consent(column={column!r}, no={sorted({*yes, *no}) or ['true']})"
        elif _MEANS_YES.search(name):
            return f"consent=Consent(column={column!r}, yes={yes or ['yes']})"
        elif _MAY_MEAN_YES.fullmatch(name) and found & _MAIL_WORDS:
            return f"consent=Consent(column={column!r}, yes={yes or ['subscribed']})"
        elif no:
            return f"consent=Consent(column={column!r}, no={no})"
    return None


def pick(batches: Iterable[Batch], positions: Sequence[int], width: int) -> Iterable[Batch]:
    """Return the mapped values of each row, in the mapping's order; if that changes nothing, the rows themselves."""
    if list(positions) == list(range(width)):
        return batches

    def picked(row: Sequence[Any]) -> Sequence[Any]:
        if len(row) == width:
            return [row[place] for place in positions]
        # The check rejects by width, so a row that happens to have as many values as are mapped gets one more.
        problem = getattr(row, "problem", f"has {len(row)} values instead of {width}")
        return WrongWidth.of(row if len(row) != len(positions) else [*row, None], problem)

    def batch_of(batch: Batch) -> Batch:
        rows, lines = [picked(row) for row in batch], getattr(batch, "lines", ())
        return SelectedRows(rows, batch.numbers, lines) if isinstance(batch, SelectedRows) else FileBatch(rows, lines)

    return map(batch_of, batches)


FIRST_ROWS, MOST_REASONS = 10, 5
"""Numbers of rows, or lines of a file, and reasons in the summary: enough to find the error in the source."""

MAX_LOAD_ID = 250
"""Length in bytes of ``import_id`` in the table of rejected rows."""


class RejectSpool(Spool["Reject"]):
    """Collects rejected rows.

    They cannot be stored immediately: the source is still being read, and SQLite has either one writer or readers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._first_rows: list[tuple[str, int]] = []
        self._place = "row"
        self.place_of: Callable[[int], tuple[str | None, int]] = lambda number: (None, number)
        """Returns the file of a row, if there are several, and its number there."""
        self.columns: Sequence[str] = ()
        """The names of the values of a row, where it has as many."""

    def add(self, reject: Reject) -> None:
        file, number = self.place_of(reject.row_number)
        reject = replace(reject, row=[_plain(value) for value in reject.row], file=file, row_number=number)
        super().add(reject)
        # The service's message may quote a row, so only the reasons of this package are logged.
        self._reasons[(reject.field, reject.reason) if reject.field else ("", reject.reason.partition(":")[0])] += 1
        # Rejects do not come in the order of the rows: those of the service come later than those of the checks.
        self._place = "row" if reject.line is None else "line"
        self._first_rows = sorted({*self._first_rows, (file or "", reject.place)})[:FIRST_ROWS]

    def reasons(self, limit: int) -> list[tuple[str, str, int]]:
        """Return the most frequent reasons, without values: field, reason and number of rows."""
        return [(field, reason, count) for (field, reason), count in self._reasons.most_common(limit)]

    def summary(self) -> str:
        """Summarize the most frequent reasons and the first row numbers, without values."""
        listed = [f"{' '.join(filter(None, reason))} ({count})" for *reason, count in self.reasons(MOST_REASONS)]
        reasons = ", ".join(listed) + (", ..." if len(self._reasons) > MOST_REASONS else "")
        places = (f"{file}:{number}" if file else str(number) for file, number in self._first_rows)
        rows = ", ".join(places) + (", ..." if self.count > len(self._first_rows) else "")
        return f"{reasons}; {self._place}{'s' if self.count > 1 else ''} {rows}" if self.count else ""

    def write(self, path: str) -> None:
        """Write all rows as JSON Lines; an existing file is replaced.

        A local file holds personal data and is readable only by its owner, regardless of the umask.
        """
        from airflow.sdk import ObjectStoragePath

        target = ObjectStoragePath(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _private(target.path) if target.protocol in ("", "file", "local") else target.open("wb") as file:
            for reject in self:
                names = self.columns if len(self.columns) == len(reject.row) else ()
                record = {
                    **({"file": reject.file} if reject.file else {}),
                    "row_number": reject.place,
                    "field": reject.field,
                    "reason": reject.reason,
                    "row": dict(zip(names, reject.row, strict=True)) if names else list(reject.row),
                }
                # A lone surrogate may be the reason for the rejection.
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))

    def keep(self, rejects: Rejects, import_id: str, hook: DbApiHook | None) -> None:
        """Store all rows in the file and the table that the user chose, replacing those of an earlier try.

        :param import_id: identifies the task instance, the same in every try.
        :param hook: of the database with the table.
        """
        from airflow_provider_mail._task.storage import current_task_run
        from airflow_provider_mail.warehouse.database import LoadRequest, Source, TableName, load
        from airflow_provider_mail.warehouse.tables.imports import REJECTS, reject_row

        if rejects.path:
            self.write(str(rejects.path))
        if not rejects.table or hook is None:
            return
        now = datetime.now(UTC)
        request = LoadRequest(
            REJECTS,
            TableName.parse(str(rejects.table)),
            Source(reject_row(reject, import_id=import_id, rejected_at=now) for reject in self),
            replace_where={"import_id": import_id},
            expire_before=None if rejects.keep_days is None else now - timedelta(days=rejects.keep_days),
            task_run=current_task_run(),
        )
        load(hook, request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _private(path: str) -> IO[bytes]:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with suppress(PermissionError):  # The file belongs to another user.
            os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "wb")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    try:
        text = str(value)
    except ValueError:  # Python does not format integers of thousands of digits, not even within a list.
        return f"a value of type {type(value).__name__} with a number of thousands of digits"
    return value if isinstance(value, int) else text


@dataclass
class UnstorableRecords:
    """Handles records that cannot be stored.

    :param hook: the hook of the database with the table of rejects, if there is one.
    :param rejects: where they are kept; ``None`` to let them fail the load.
    :param target: the hook of the database that is loaded; ``None`` for a load that writes files.
    :param consequence: the effect of rejected records on the stored rows, for the log.
    """

    hook: DbApiHook | None
    rejects: Any
    target: DbApiHook | None
    lock_timeout: float = 600
    consequence: str = ", so no row is deleted or marked as gone"
    _rejects: list[Reject] = field(default_factory=list)

    def load(
        self,
        table: Table,
        name: str | TableName,
        rows: Iterable[Sequence[Any]],
        *,
        now: datetime | None = None,
        **options: Any,
    ) -> LoadResult:
        """Load rows with :func:`airflow_provider_mail.warehouse.database.load`; collect rejected ones until `store`.

        :param now: the present time by the clock of ``observed_at``.
        :param options: further fields of :class:`~airflow_provider_mail.warehouse.request.LoadRequest`.
        """
        from airflow_provider_mail._task.storage import current_task_run
        from airflow_provider_mail.warehouse.database import Clock, LoadRequest, Source, TableName, load

        assert self.target
        options = {"lock_timeout": self.lock_timeout, "task_run": current_task_run(), **options}
        clock = Clock(now) if now else None
        source = Source(rows, self.begin())
        return load(self.target, LoadRequest(table, TableName.parse(name), source, clock=clock, **options))

    def begin(self) -> OnUnstorable | None:
        """Clear the rejects of an earlier load; return the receiver of the next load's; ``None`` fails the load."""
        self._rejects = []
        return None if self.rejects is None else self._add

    def store(self, context: Context, log: Any) -> dict[str, int]:
        """Store the rejects of the last load, replacing those of an earlier try; return the count for XCom."""
        rejects = self.rejects
        if rejects is None:
            return {}
        with RejectSpool() as spool:
            for reject in self._rejects:
                spool.add(reject)
            spool.keep(rejects, task_instance_name(context, MAX_LOAD_ID), self.hook)
            if spool.count:
                log.warning(
                    "%s records cannot be stored and were rejected%s: %s",
                    spool.count,
                    self.consequence,
                    spool.summary(),
                )
            return {"rejected": spool.count}

    def _add(self, row: Sequence[Any], error: UnstorableError) -> None:
        from airflow_provider_mail.api.flows.validate_rows import Reject

        self._rejects.append(Reject(row_number=error.row, field=error.column, reason=error.reason, row=list(row)))
