"""One person in the audiences of a store: whether they are in, and how they are forgotten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from airflow_provider_mail._audience.rows import bucket_of
from airflow_provider_mail._audience.state import (
    EXCLUDED,
    GONE,
    AudienceState,
    Changes,
    DamagedStateError,
    is_imported,
    is_member,
)
from airflow_provider_mail._audience.store import StateChangedError, StateStore
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.flows.audience import without_people

_NOT = "not forgotten"


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Where a person is in an audience.

    :param status: ``member``, ``excluded`` or ``unknown``, if the state cannot be read.
    :param run_id: the run that did it, if it is one of the last.
    :param list_name: the list of the audience, or the exclusion list.
    """

    audience: str
    status: str
    since: str | None = None
    run_id: str | None = None
    list_name: str | None = None


def states(store: StateStore, *, writes: bool) -> Iterator[tuple[AudienceState, str]]:
    """Yield the states of a store, each with why it cannot be read."""
    for header in store.all():
        state = AudienceState(store, header, writes=writes)
        yield state, state.open()


def memberships(store: StateStore, email: str) -> list[Membership]:
    """Return where a person is in the audiences of a store."""
    person = address_key(email).encode()
    found = []
    for state, problem in states(store, writes=False):
        audience, ledger = state.header.audience, state.ledger
        try:
            bucket = None if problem else next(islice(state.buckets(), bucket_of(person), None))
        except DamagedStateError:
            bucket = None
        if bucket is None:
            if state.header.generation:
                found.append(Membership(audience=audience, status="unknown"))
            continue
        if (value := bucket.values.get(person)) is None:
            continue
        since = bucket.since().get(person, 0)
        found.append(
            Membership(
                audience=audience,
                status="member" if is_member(value) else "excluded",
                since=datetime.fromtimestamp(since, UTC).isoformat() if since else None,
                run_id=next((run_id for at, run_id in ledger.runs if at == since), None),
                list_name=ledger.send_list_name if is_member(value) else ledger.repel_list_names[EXCLUDED - value],
            )
        )
    return found


def forget(store: StateStore, email: str) -> dict[str, str]:
    """Take a person out of all audiences of a store, as the contact is deleted at the service.

    :return: what was done, by audience: ``forgotten``, or why it was not; audiences without the person are left out.
    """
    person = address_key(email).encode()
    results: dict[str, str] = {}
    for state, problem in states(store, writes=True):
        audience = state.header.audience
        if not state.header.generation:
            continue
        if is_imported(state.header):
            results[audience] = f"{_NOT}: a run is importing it now; try again when it has ended"
            continue
        try:
            if problem:
                raise DamagedStateError(problem)
            # All buckets, so that the whole state is checked.
            value = [bucket.history.get(person) for bucket in state.buckets()][bucket_of(person)]
            state.check()
            if value is not None:
                state.ledger.versions = without_people(state.ledger.versions)
                # Not only a later part that says so: the bucket is written anew, without the address.
                state.write([Changes(bucket_of(person), [person], [value], [GONE])], anew=True)
                results[audience] = "forgotten"
        except DamagedStateError:
            # Whoever is in it: the next run sends everybody.
            store.delete(state.header)
            results[audience] = "forgotten: the state cannot be read and was deleted"
        except StateChangedError:
            results[audience] = f"{_NOT}: a run has changed it meanwhile; try again"
    return results


def not_forgotten(results: Mapping[str, str]) -> dict[str, str]:
    """Return the audiences that still have a person after :func:`forget`, each with the reason."""
    return {audience: result for audience, result in results.items() if result.startswith(_NOT)}


def leave_others(state: AudienceState, keys: Collection[bytes]) -> set[bytes]:
    """Take people, whose contacts are to be deleted, out of other audiences in the store that only exclude them.

    :return: whose contacts must stay: members of other audiences, or all if that is not known.
    """
    places: dict[int, set[bytes]] = defaultdict(set)
    for key in keys:
        places[bucket_of(key)].add(key)
    stay = set[bytes]()
    excluding: list[tuple[AudienceState, dict[int, dict[bytes, int]]]] = []
    for other, problem in states(state.store, writes=True) if keys else ():
        if other.header.audience_id == state.header.audience_id or not other.header.generation:
            continue
        if not problem and other.ledger.mapping[0] != state.ledger.mapping[0]:
            continue
        # Of another account only members count: whether it is another one is not known.
        same_account = other.ledger.mail_conn_id == state.ledger.mail_conn_id
        found: dict[int, dict[bytes, int]] = {}
        try:
            if problem:
                raise DamagedStateError(problem)
            for number, bucket in enumerate(other.buckets()):
                known = {key: bucket.values[key] for key in places[number] if key in bucket.values}
                stay |= {key for key, value in known.items() if is_member(value)}
                found[number] = known if same_account else {}
            if is_imported(other.header):
                stay = stay.union(*found.values())
            other.check()
        except DamagedStateError:
            return set(keys)
        excluding.append((other, found))
    for other, found in excluding:
        gone = {number: some for number, known in found.items() if (some := known.keys() - stay)}
        try:
            if gone:
                other.ledger.versions = without_people(other.ledger.versions)
                other.write(
                    Changes(number, [*some], [found[number][key] for key in some], [GONE] * len(some))
                    for number, some in gone.items()
                )
        except StateChangedError:
            stay = stay.union(*gone.values())
    return stay


def members(store: StateStore, audiences: Collection[str]) -> Iterator[str]:
    """Yield the people in some audiences.

    :param audiences: their names, as ``airflow mail audience status`` shows them.
    :raises ValueError: there is no such audience, or it is not known who is in it.
    """
    names = set(audiences)
    for state, problem in states(store, writes=False):
        if state.header.audience not in names:
            continue
        names.discard(state.header.audience)
        if not problem and (is_imported(state.header) or not state.ledger.complete):
            problem = "a run imports it now, or did not end: run this task after it"
        if problem:
            raise ValueError(f"audience {state.header.audience!r}: {problem}")
        try:
            for bucket in state.buckets():
                yield from (key.decode() for key, value in bucket.values.items() if is_member(value))
            state.check()
        except DamagedStateError as error:
            raise ValueError(f"audience {state.header.audience!r}: {error}") from None
    if names:
        raise ValueError(f"there is no audience {', '.join(sorted(names))}")
