"""The state of an audience as one run reads and changes it; the run claims it, so that no other one does.

The state has a number for each person: a digest of the row that the service has accepted, or where else the person may
be. It is stored by bucket, as parts of which a later one counts more, so a run adds what it knows; a bucket with many
changes is written anew. The ledger has the numbers by which the service's lists are compared with it.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import compress, repeat
from secrets import token_hex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from airflow_provider_mail._audience.rows import BUCKETS, split
from airflow_provider_mail._audience.sealing import AudienceKey
from airflow_provider_mail._audience.store import Header, StateChangedError, StateStore, StoredPart
from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.version_compat import AirflowException

if TYPE_CHECKING:
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.flows.import_contacts import ImportPlan

VERSION = 7
"""Of the stored shapes. Everybody is sent if the state has another one."""

IN_DOUBT, GONE, EXCLUDED = -1, -2, -3
"""Who may be on the list, with unknown values; who is not in the state any more; who is on the first exclusion list,
and less by one for each further one. Others: digests, from 0."""

EXCLUSION_LISTS = 20
"""The most exclusion lists of an audience. The specification shows no limit for a campaign."""

CLAIM_SECONDS = 24 * 3600
"""Seconds after which a run that Airflow does not know any more has ended."""

HISTORY_SECONDS = 100 * 24 * 3600
"""How long those who are gone stay in the state: it shows other audiences who may have their values of this one."""

MAX_ADDED = 0.5
"""The share of added people from which a bucket is written anew; that of a bucket differs, so not all are at once."""
MAX_PARTS = 40
MAX_RUNS = 100
"""Runs of which the ledger has the time and the id."""


def is_member(value: int) -> bool:
    """Return whether a person is in the audience, or may be."""
    return value >= IN_DOUBT


@dataclass
class Ledger:
    """What the state knows of the audience as a whole; encrypted and authenticated, as the parts are.

    :param settings: what makes a state another one's, beside the mapping. Not the credentials, which are renewed: the
        lists show whether the account is the same.
    :param mail_conn_id: the connection to the service.
    :param mapping: the service, and what its contacts get of a row: see `mapping_of`.
    :param complete: whether the last run has stored all that it did.
    :param sure: the number of people whose rows the service has accepted.
    :param in_doubt: the number of people who may be on the list.
    :param repel_list_names: the exclusion lists; empty if there is none, or people are on it who must not be.
    :param excluded_on: the number of people who must be on each.
    :param versions: what the service says of each list after the last run: see `list_versions`.
    :param seen: generation and version of each other audience in the store before the last run.
    :param history_from: since when all who were sent are in the state, also those who are gone; in seconds since 1970.
    """

    version: int = VERSION
    settings: str = ""
    mail_conn_id: str = ""
    mapping: list[str | None] = field(default_factory=list)
    complete: bool = False
    send_list_name: str = ""
    sure: int = 0
    in_doubt: int = 0
    repel_list_names: list[str] = field(default_factory=lambda: [""] * EXCLUSION_LISTS)
    excluded_on: list[int] = field(default_factory=lambda: [0] * EXCLUSION_LISTS)
    parts: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    full_at: int = 0
    runs: list[tuple[int, str]] = field(default_factory=list)
    recent: list[int] = field(default_factory=list)
    seen: dict[str, tuple[str, int]] = field(default_factory=dict)
    history_from: int = 0

    def count(self, values: Sequence[int], by: int) -> None:
        """Count people with these values, or no longer."""
        # The usual case in a tenth of the time: all are digests.
        others = [] if min(values, default=0) >= 0 else [value for value in values if value < 0]
        self.sure += by * (len(values) - len(others))
        for value, count in Counter(others).items():
            if value == IN_DOUBT:
                self.in_doubt += by * count
            elif value <= EXCLUDED:
                self.excluded_on[EXCLUDED - value] += by * count

    @property
    def excluded(self) -> int:
        return sum(self.excluded_on)

    @property
    def size(self) -> int:
        return self.sure + self.in_doubt

    @property
    def list_names(self) -> list[str]:
        return [name for name in (self.send_list_name, *self.repel_list_names) if name]

    def expected(self) -> dict[str, tuple[int, int]]:
        """Return how many contacts each list has at least and at most."""
        on_list = self.sure + self.excluded
        ranges = {name: (on, on) for name, on in zip(self.repel_list_names, self.excluded_on, strict=True)}
        ranges[self.send_list_name] = (on_list, on_list + self.in_doubt)
        return {name: ranges[name] for name in self.list_names}


_Part: TypeAlias = tuple[bytes, "array[int]", "array[int]"]
"""People, a line each, their values, and since when they have them."""


class DamagedStateError(Exception):
    """The parts of a state are not those that were stored."""


class Bucket:
    """The people of a bucket, which are decrypted when they are needed.

    :param unseal: decrypts a part.
    """

    def __init__(
        self, parts: Iterable[StoredPart] = (), unseal: Callable[[StoredPart], bytes] = lambda part: b""
    ) -> None:
        self._stored, self._unseal = list(parts), unseal

    @cached_property
    def parts(self) -> list[_Part]:
        """People, values and times.

        :raises DamagedStateError: one cannot be decrypted.
        """
        return list(map(self._read, self._stored))

    def _read(self, part: StoredPart) -> _Part:
        try:
            return _unpacked(self._unseal(part))
        except (ValueError, struct.error) as error:
            raise DamagedStateError(str(error)) from None

    @property
    def lines(self) -> bytes:
        """The people of the first part, a line each."""
        return self.parts[0][0] if self.parts else b""

    def values_in_order(self, lines: bytes) -> array[int] | None:
        """Return the values of people if they are those of the first part, in its order, and all are members."""
        if lines != self.lines or not self.parts:
            return None
        values, changed = self.parts[0][1][:], dict[bytes, int]()
        for some, numbers, _ in self.parts[1:]:
            changed.update(zip(split(some), numbers, strict=True))
        if changed:
            keys = split(lines)
            for place in compress(range(len(keys)), map(changed.__contains__, keys)):
                values[place] = changed.pop(keys[place])
        return None if changed or min(values) < IN_DOUBT else values

    @cached_property
    def history(self) -> dict[bytes, int]:
        """The value of each person, by key, also of those who are gone."""
        values: dict[bytes, int] = {}
        for lines, some, _ in self.parts:
            values.update(zip(split(lines), some, strict=True))
        return values

    @cached_property
    def values(self) -> dict[bytes, int]:
        """The value of each person, by key."""
        values = self.history
        return {key: value for key, value in values.items() if value != GONE} if GONE in values.values() else values

    def since(self) -> dict[bytes, int]:
        """Return since when each person is where they are, in seconds since 1970."""
        since: dict[bytes, int] = {}
        for lines, _, times in self.parts:
            changed = zip(split(lines), times, strict=True)
            since.update(changed if not since else ((key, time_) for key, time_ in changed if time_))
        return since


NO_BUCKET = Bucket()


class Changes(NamedTuple):
    """New values of people of a bucket, in columns: an object for each person would take longer than all the rest.

    :param befores: the values in the state; ``GONE`` if they had none.
    """

    bucket: int
    keys: Sequence[bytes]
    befores: Sequence[int]
    values: Sequence[int]


def _packed(keys: Sequence[bytes], values: Iterable[int], times: Iterable[int]) -> bytes:
    numbers = array("q", values).tobytes() + array("I", times).tobytes()
    return struct.pack("<I", len(keys)) + numbers + b"\n".join(keys)


def _unpacked(content: bytes) -> _Part:
    (count,) = struct.unpack_from("<I", content)
    values, times = array("q", content[4 : 4 + 8 * count]), array("I", content[4 + 8 * count : 4 + 12 * count])
    return content[4 + 12 * count :], values, times


Tags = list[dict[int, tuple[str, int]]]
"""By bucket and number, the end of a part, which authenticates and so identifies it, and its length."""

TAG_LENGTH = 32


class AudienceState:
    """The state of an audience in a store.

    :param store: ``None`` for an audience that has no state.
    :param header: the row of the audience, if the store has none.
    :param claimant: the task instance, as JSON of its ids.
    :param writes: whether this run changes the state; if not, the methods that do have no effect.
    """

    def __init__(self, store: StateStore | None, header: Header, claimant: str = "", *, writes: bool = False) -> None:
        self._in_store = store
        self.header = header
        self.writes = writes
        self.ledger = Ledger()
        self.began_at = int(time.time())
        self.keeps_gone = True
        """Whether another audience may have to know who was in this one."""
        self._claimant = claimant
        self._tags: Tags = _no_tags()

    @property
    def store(self) -> StateStore:
        assert self._in_store is not None
        return self._in_store

    @cached_property
    def key(self) -> AudienceKey:
        return AudienceKey.of_deployment()

    def claim(self) -> None:
        """Read the row of the audience, and keep other runs from it.

        :raises AirflowException: when another run is importing the audience.
        """
        _, header = self.key, self.store.read(self.header.audience_id)
        if header is None:
            if not self.writes:
                return
            self.store.create(self.header)
            header = self.store.read(self.header.audience_id) or self.header
        if header.claimed_by != self._claimant and is_imported(header):
            dag_id, task_id, run_id, _ = json.loads(header.claimed_by)
            raise AirflowException(
                f"run {run_id!r} of task {dag_id}.{task_id} is importing this audience now: try again when it has ended"
            )
        self.header = replace(header, audience=self.header.audience)
        self._change(claimed_by=self._claimant)

    def release(self, log: Any) -> None:
        """Let other runs import the audience, unless one has taken it already."""
        if self.header.claimed_by == self._claimant:
            try:
                self._change(claimed_by="")
            except StateChangedError:
                log.warning("Another run has changed the state of this audience meanwhile.")

    def open(self) -> str:
        """Read the ledger; return why it cannot be trusted, or empty text."""
        if not self.header.generation:
            return "there is no state yet"
        try:
            content = json.loads(
                self.key.unseal(self.header.ledger, _place(self.header.generation, self.header.audience_id))
            )
            if content.get("version") != VERSION:
                raise ValueError("another version of this package has written it")
            self.ledger = Ledger(**content)
        except ValueError as error:
            return f"the state is damaged, or its key is another one: {error}"
        if self.ledger.runs:
            # So that a time names one run.
            self.began_at = max(self.began_at, self.ledger.runs[-1][0] + 1)
        return ""

    def check(self) -> None:
        """Check that the parts that were read last are all there are.

        :raises DamagedStateError: some are missing, or are not the last ones.
        """
        if self._digest() != self.ledger.parts:
            raise DamagedStateError("parts are missing, or older than the rest")

    def buckets(self, after: int = -1) -> Generator[Bucket]:
        """Yield all buckets, in order, out of one query.

        :param after: with the parts that were stored after this version of the header.
        """
        self._tags = _no_tags()
        if not self.header.generation:
            yield from repeat(NO_BUCKET, BUCKETS)
            return
        with closing(self.store.buckets(self.header.generation, after)) as stored:
            found = next(stored, None)
            for number in range(BUCKETS):
                parts: list[StoredPart] = []
                if found is not None and found[0] == number:
                    parts, found = found[1], next(stored, None)
                    for _, part, sealed in parts:
                        self._tags[number][part] = sealed[-TAG_LENGTH:], len(sealed)
                yield Bucket(parts, self._unsealed)

    def _unsealed(self, part: StoredPart) -> bytes:
        return self.key.unseal(part[2], _place(self.header.generation, *part[:2]))

    def write(self, changes: Iterable[Changes], ledger: Ledger | None = None, *, anew: bool = False) -> None:
        """Store values of people, and the ledger.

        :param changes: at most one for each bucket, after all were read.
        :param ledger: of a new state: all others are gone. Default: the others stay.
        :param anew: write the buckets anew, without those of these people who are gone.
        """
        if not self.writes:
            return
        replaced: list[int] = []
        # Other audiences see by the number which parts are new.
        part = self.header.version + 1
        generation, tags, is_new = self.header.generation, [*map(dict, self._tags)], ledger is not None
        before_ledger, is_whole = self.ledger, True
        if ledger is not None:
            generation, tags, self.ledger = token_hex(8), _no_tags(), ledger
            changes = _of_all_buckets(changes)
        oldest = self.began_at - HISTORY_SECONDS if self.keeps_gone else self.began_at
        with closing(Spool[StoredPart]()) as parts, closing(self.buckets()) as buckets:
            stored = enumerate(buckets)
            for number, keys, befores, values in changes:
                self.ledger.count([] if is_new else befores, -1)
                self.ledger.count(values, 1)
                were_known = befores.count(GONE) < len(befores)
                # Who is still a member has been one since the time in an earlier part.
                times = [self.began_at] * len(keys)
                if were_known:
                    times = [
                        0 if before >= IN_DOUBT <= value else self.began_at
                        for before, value in zip(befores, values, strict=True)
                    ]
                if not is_new and (anew or _is_due(number, tags)):
                    replaced.append(number)
                if number in replaced or is_new:
                    before = next(bucket for place, bucket in stored if place == number)
                    try:
                        history, since = before.history, before.since()
                    except DamagedStateError:
                        if not is_new:
                            raise
                        history, since, is_whole = {}, {}, False
                    if history or GONE in values:
                        since = since | {key: when for key, when in zip(keys, times, strict=True) if when}
                        after = (dict.fromkeys(history, GONE) if is_new else history) | dict(
                            zip(keys, values, strict=True)
                        )
                        gone = {*keys} if anew else ()
                        keys = [
                            key
                            for key, value in after.items()
                            if value != GONE or (key not in gone and since[key] > oldest)
                        ]
                        values, times = list(map(after.__getitem__, keys)), list(map(since.__getitem__, keys))
                    tags[number] = {}
                if keys:
                    sealed = self.key.seal(_packed(keys, values, times), _place(generation, number, part))
                    tags[number][part] = sealed[-TAG_LENGTH:], len(sealed)
                    parts.add((number, part, sealed))
            buckets.close()
            if is_new:
                is_whole = is_whole and self._digest() == before_ledger.parts
                self.ledger.history_from = before_ledger.history_from if is_whole else self.began_at
            self._tags = tags
            if is_new or replaced or parts.count:
                # Otherwise they may not have been read, or may be damaged.
                self.ledger.parts = self._digest()
            self._store(parts=parts, replaced=replaced, generation=generation)

    def save(self) -> None:
        """Store the ledger."""
        if self.writes:
            self._store()

    def _store(self, **changes: Any) -> None:
        ledger, generation = self.ledger, changes.get("generation", self.header.generation)
        sealed = self.key.seal(json.dumps(asdict(ledger)).encode(), _place(generation, self.header.audience_id))
        self._change(
            ledger=sealed,
            send_list_name=ledger.send_list_name,
            size=ledger.size,
            excluded=ledger.excluded,
            **changes,
        )

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for number, parts in enumerate(self._tags):
            for part, (tag, _) in parts.items():
                digest.update(f"{number, part}{tag}".encode())
        return digest.hexdigest()

    def _change(self, **changes: Any) -> None:
        """Change the row of the audience.

        :raises StateChangedError: another run, which believes that this one has ended, has taken the audience.
        """
        if self.writes:
            self.header = self.store.change(self.header, **changes)


def _no_tags() -> Tags:
    return [{} for _ in range(BUCKETS)]


def _of_all_buckets(changes: Iterable[Changes]) -> Iterable[Changes]:
    """Yield changes of each bucket, if only empty ones."""
    following = iter(changes)
    change = next(following, None)
    for number in range(BUCKETS):
        if change is not None and change.bucket == number:
            yield change
            change = next(following, None)
        else:
            yield Changes(number, (), (), ())


def _is_due(number: int, tags: Tags) -> bool:
    """Return whether a bucket is to be written anew rather than to be added to."""
    first, *added = [size for _, size in tags[number].values()] or [0]
    # Not all buckets at once.
    return sum(added) > first * MAX_ADDED * (0.6 + number % 8 / 10) or len(added) > MAX_PARTS + number % 8


def mapping_of(plan: ImportPlan, config: ClientConfig) -> list[str | None]:
    """Return the service, what it gets for a missing value, and the property of each value of a row."""
    return [config.base_url, plan.null_value, *plan.properties]


def _place(generation: str, *place: object) -> str:
    """Return what a part is encrypted with, so that none can be exchanged."""
    return "/".join(map(str, (generation, *place)))


def is_imported(header: Header) -> bool:
    """Return whether a run is importing an audience now."""
    return bool(header.claimed_by) and not has_ended(header)


def has_ended(header: Header) -> bool:
    """Return whether the task instance that imports an audience has ended without saying so."""
    from airflow_provider_mail._task.waiting import ENDED, task_instance_state

    dag_id, task_id, run_id, map_index = json.loads(header.claimed_by)
    try:
        state = task_instance_state(SimpleNamespace(dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index))
    except Exception:
        # Airflow cannot be asked, for example outside of a task.
        state = None
    # A run that Airflow does not know may still be going on while its claim is young.
    return state in ENDED or (state is None and time.time() - header.updated_at >= CLAIM_SECONDS)
