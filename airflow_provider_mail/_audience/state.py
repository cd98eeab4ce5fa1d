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
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from secrets import token_hex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.sealing import AudienceKey, tag_of
from airflow_provider_mail._audience.store import Header, StateChangedError, StateStore, StoredPart
from airflow_provider_mail.version_compat import AirflowException

if TYPE_CHECKING:
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.flows.import_contacts import ImportPlan

VERSION = 2
"""Of the stored shapes. Everybody is sent if the state has another one."""

IN_DOUBT, GONE = -1, -2
"""Who may be on the list, with unknown values, and who is not in the state any more. Others: digests, from 0, and
`excluded_on`."""
_FIRST_EXCLUDED = -16

CLAIM_SECONDS = 24 * 3600
"""Seconds after which a run that Airflow does not know any more has ended."""

MAX_ADDED = 0.5
"""The share of added people from which a bucket is written anew; that of a bucket differs, so not all are at once."""
MAX_PARTS = 40
SMALL = 300
"""The number of people up to which a bucket is always written anew."""
MAX_RUNS = 100
"""Runs of which the ledger has the time and the id."""


def excluded_on(number: int) -> int:
    """Return the value of a person on an exclusion list, by its number."""
    return _FIRST_EXCLUDED - number


def exclusion_of(value: int | None) -> int | None:
    """Return the number of the exclusion list that a person is on; ``None`` if on none."""
    return None if value is None or value > _FIRST_EXCLUDED else _FIRST_EXCLUDED - value


def is_member(value: int | None) -> bool:
    """Return whether a person is in the audience, or may be."""
    return value is not None and value >= IN_DOUBT


@dataclass(slots=True)
class Exclusion:
    """An exclusion list.

    :param name: empty if people are on the list who must not be: it is made anew for the others.
    :param count: the number of people who must be on it.
    """

    name: str
    count: int = 0


@dataclass
class Ledger:
    """What the state knows of the audience as a whole; encrypted and authenticated, as the parts are.

    :param settings: what makes a state another one's: see `settings_of`.
    :param mapping: what makes the digests of two audiences comparable: see `mapping_of`.
    :param complete: whether the last run has stored all that it did.
    :param sure: the number of people whose rows the service has accepted.
    :param in_doubt: the number of people who may be on the list.
    :param modified: when the service says that each list was last changed, after the last run.
    :param suppressed: people whom the user's tables left out. Default: not known.
    """

    version: int = VERSION
    settings: str = ""
    mapping: str = ""
    complete: bool = False
    send_list_name: str = ""
    sure: int = 0
    in_doubt: int = 0
    exclusions: list[Exclusion] = field(default_factory=list)
    parts: str = ""
    modified: dict[str, str] = field(default_factory=dict)
    full_at: int = 0
    suppressed: int | None = None
    runs: list[tuple[int, str]] = field(default_factory=list)
    recent: list[int] = field(default_factory=list)

    def count(self, value: int | None, by: int) -> None:
        """Count a person with a value, or no longer."""
        if value is None or value == GONE:
            return
        if (number := exclusion_of(value)) is not None:
            self.exclusions[number].count += by
        elif value == IN_DOUBT:
            self.in_doubt += by
        else:
            self.sure += by

    @property
    def size(self) -> int:
        return self.sure + self.in_doubt

    @property
    def excluded(self) -> int:
        return sum(exclusion.count for exclusion in self.exclusions)

    def expected(self) -> dict[str, tuple[int, int]]:
        """Return how many contacts each list has at least and at most."""
        on_list = self.sure + self.excluded
        ranges = {self.send_list_name: (on_list, on_list + self.in_doubt)} if self.send_list_name else {}
        return ranges | {each.name: (each.count, each.count) for each in self.exclusions if each.name}

    @property
    def last_began(self) -> int:
        """When the last run began, in seconds since 1970."""
        return self.runs[-1][0] if self.runs else 0


class DamagedStateError(Exception):
    """The parts of a state are not those that were stored."""


class Bucket:
    """The people of a bucket.

    :param values: the value of each person, by key.
    """

    def __init__(self, contents: Iterable[bytes]) -> None:
        self._parts = [_unpacked(content) for content in contents]
        self.sizes = [len(keys) for keys, _, _ in self._parts]
        self.values: dict[bytes, int] = {}
        for keys, values, _ in self._parts:
            self.values.update(zip(keys, values, strict=True))
        if self._parts[1:]:
            self.values = {key: value for key, value in self.values.items() if value != GONE}

    def since(self) -> dict[bytes, int]:
        """Return since when each person is where they are, in seconds since 1970."""
        since: dict[bytes, int] = {}
        for keys, _, times in self._parts:
            changed = zip(keys, times, strict=True)
            since.update(changed if not since else ((key, time_) for key, time_ in changed if time_))
        return since


Columns = tuple[Sequence[bytes], Iterable[int], Iterable[int]]
"""Keys, values, and since when; 0 if that did not change."""


def _packed(columns: Columns) -> bytes:
    keys, values, times = columns
    numbers = array("q", values).tobytes() + array("I", times).tobytes()
    return struct.pack("<I", len(keys)) + numbers + zlib.compress(b"\n".join(keys), 1)


def _unpacked(content: bytes) -> tuple[list[bytes], array[int], array[int]]:
    (count,) = struct.unpack_from("<I", content)
    values, times = array("q", content[4 : 4 + 8 * count]), array("I", content[4 + 8 * count : 4 + 12 * count])
    return zlib.decompress(content[4 + 12 * count :]).split(b"\n"), values, times


Step = tuple[bytes, int | None, int, int]
"""Key, value before, new value, and since when (0: as before) of a person."""


class AudienceState:
    """The state of an audience in a store.

    :param header: the row of the audience, if the store has none.
    :param claimant: the task instance, as JSON of its ids.
    :param writes: whether this run changes the state; if not, the methods that do have no effect.
    """

    def __init__(self, store: StateStore, key: AudienceKey, header: Header, claimant: str, *, writes: bool) -> None:
        self.store = store
        self.key = key
        self.header = header
        self.writes = writes
        self.ledger = Ledger()
        self.began_at = int(time.time())
        self.known_size = 0
        """The size that the row shows, also when the state cannot be trusted."""
        self._claimant = claimant
        self._tags: dict[tuple[int, int], bytes] = {}
        self._sizes: dict[int, list[int]] = {}

    def claim(self) -> None:
        """Read the row of the audience, and keep other runs from it.

        :raises AirflowException: when another run is importing the audience.
        """
        header = self.store.read(self.header.audience_id)
        if header is None:
            if not self.writes:
                return
            self.store.create(self.header)
            header = self.store.read(self.header.audience_id) or self.header
        if header.claimed_by not in ("", self._claimant) and not has_ended(header):
            dag_id, task_id, run_id, _ = json.loads(header.claimed_by)
            raise AirflowException(
                f"run {run_id!r} of task {dag_id}.{task_id} is importing this audience now: try again when it has ended"
            )
        self.header = replace(header, audience=self.header.audience)
        self.known_size = header.size
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
            self.ledger = read_ledger(self.key, self.header)
        except ValueError as error:
            return f"the state is damaged, or its key is another one: {error}"
        if self.ledger.runs:
            # So that a time names one run.
            self.began_at = max(self.began_at, self.ledger.runs[-1][0] + 1)
        return ""

    def buckets(self) -> Iterator[tuple[int, Bucket]]:
        """Yield the buckets that have people.

        :raises DamagedStateError: a part is damaged; at the end: parts are missing, or are not the last ones.
        """
        self._tags.clear()
        for number, parts in self.store.buckets(self.header.generation):
            bucket = self._bucket(parts)
            self._sizes[number] = bucket.sizes
            for _, part, sealed in parts:
                self._tags[number, part] = tag_of(sealed)
            yield number, bucket
        if self._digest() != self.ledger.parts:
            raise DamagedStateError("parts are missing, or older than the rest")

    def bucket(self, number: int) -> Bucket:
        """Return one bucket."""
        for _, parts in self.store.buckets(self.header.generation, number):
            return self._bucket(parts)
        return Bucket(())

    def _bucket(self, parts: Iterable[StoredPart]) -> Bucket:
        generation = self.header.generation
        try:
            return Bucket([self.key.unseal(sealed, _place(generation, *place)) for *place, sealed in parts])
        except (ValueError, zlib.error, struct.error) as error:
            raise DamagedStateError(str(error)) from None

    def change(self, changes: Iterable[tuple[int, list[Step]]], *, anew: bool = False) -> None:
        """Store values of people, and the ledger.

        :param changes: by bucket, after all were read.
        :param anew: write the buckets anew, so that nobody is in an earlier part.
        """
        if not self.writes:
            return
        parts: list[StoredPart] = []
        replaced: list[int] = []
        for number, steps in changes:
            if not steps:
                continue
            for before, value in [step[1:3] for step in steps if step[1] is None or step[1] < 0 or step[2] < 0]:
                self.ledger.count(before, -1)
                self.ledger.count(value, 1)
            columns: Any = zip(*steps, strict=True)
            keys, _, values, times = columns
            if anew or self._is_due(number, len(keys)):
                replaced.append(number)
                bucket = self.bucket(number)
                since = bucket.since() | {key: when for key, when in zip(keys, times, strict=True) if when}
                after = bucket.values | {key: value for key, value in zip(keys, values, strict=True) if value != GONE}
                for key in compress(keys, map(GONE.__eq__, values)):
                    after.pop(key, None)
                keys, values, times = list(after), after.values(), map(since.__getitem__, after)
            part = 1 + max((part for stored, part in self._tags if stored == number), default=-1)
            if number in replaced:
                self._tags = {place: tag for place, tag in self._tags.items() if place[0] != number}
            if keys:
                parts.append(self._sealed(self.header.generation, number, part, (keys, values, times)))
        self._store(parts=parts, replaced=replaced)

    def _is_due(self, number: int, further: int) -> bool:
        """Return whether a bucket is to be written anew rather than to be added to."""
        first, *added = self._sizes.get(number) or [0]
        few = first * MAX_ADDED * (0.6 + number % 8 / 10)
        return first + further < SMALL or sum(added) + further > few or len(added) > MAX_PARTS + number % 8

    def replace(self, buckets: Iterable[tuple[int, Columns]], ledger: Ledger) -> None:
        """Store all people anew.

        :param buckets: by number; read while they are stored.
        """
        if not self.writes:
            return
        self._tags.clear()
        generation = token_hex(8)
        self.ledger = ledger
        parts = []
        for number, (keys, values, times) in buckets:
            numbers = array("q", values)
            doubtful = numbers.count(IN_DOUBT)
            ledger.in_doubt += doubtful
            ledger.sure += len(keys) - doubtful
            if keys:
                parts.append(self._sealed(generation, number, 0, (keys, numbers, times)))
        self._store(parts=parts, generation=generation)

    def save(self) -> None:
        """Store the ledger."""
        if self.writes:
            self._store()

    def _store(self, **changes: Any) -> None:
        ledger, generation = self.ledger, changes.get("generation", self.header.generation)
        ledger.parts = self._digest()
        sealed = self.key.seal(json.dumps(asdict(ledger)).encode(), _place(generation, self.header.audience_id))
        self._change(
            ledger=sealed,
            send_list_name=ledger.send_list_name,
            size=ledger.size,
            excluded=ledger.excluded,
            **changes,
        )

    def _sealed(self, generation: str, bucket: int, part: int, columns: Columns) -> StoredPart:
        sealed = self.key.seal(_packed(columns), _place(generation, bucket, part))
        self._tags[bucket, part] = tag_of(sealed)
        return bucket, part, sealed

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for place in sorted(self._tags):
            digest.update(struct.pack("<II", *place) + self._tags[place])
        return digest.hexdigest()

    def _change(self, **changes: Any) -> None:
        """Change the row of the audience.

        :raises StateChangedError: another run, which believes that this one has ended, has taken the audience.
        """
        if self.writes:
            self.header = self.store.change(self.header, **changes)


def read_ledger(key: AudienceKey, header: Header) -> Ledger:
    """Decrypt the ledger of an audience.

    :raises ValueError: when that fails.
    """
    content = json.loads(key.unseal(header.ledger, _place(header.generation, header.audience_id)))
    if content.get("version") != VERSION:
        raise ValueError("another version of this package has written it")
    content["exclusions"] = [Exclusion(**exclusion) for exclusion in content["exclusions"]]
    return Ledger(**content)


def settings_of(audience_id: str, plan: ImportPlan, config: ClientConfig, mode: str) -> str:
    """Return a digest of all that makes a state another one's: service, list, mapping, mode.

    Not the credentials, which are renewed: whether the account is the same is shown by its lists.

    :param mode: the arguments that decide who is on which list.
    """
    return _digest([audience_id, mode, plan.update_mode, mapping_of(plan, config)])


def mapping_of(plan: ImportPlan, config: ClientConfig) -> str:
    """Return a digest of the service and of what its contacts get of a row."""
    return _digest([config.base_url, config.sandbox, plan.properties, plan.null_value])


def _digest(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _place(generation: str, *place: object) -> str:
    """Return what a part is encrypted with, so that none can be exchanged."""
    return "/".join(map(str, (generation, *place)))


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
