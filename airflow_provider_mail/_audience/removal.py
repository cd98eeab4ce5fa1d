"""What becomes of people who left an audience: they are excluded from its campaigns, deleted, or forgotten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.comparison import Absent, Change, Comparison
from airflow_provider_mail._audience.people import members_of_others
from airflow_provider_mail._audience.rows import bucket_of
from airflow_provider_mail._audience.state import (
    GONE,
    NEW,
    AudienceState,
    Exclusion,
    Step,
    excluded_on,
    exclusion_of,
)
from airflow_provider_mail.api.contacts import DeleteContact, UpdateMode
from airflow_provider_mail.api.flows.create_once import delete
from airflow_provider_mail.api.flows.import_contacts import Progress, import_contacts
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from airflow_provider_mail.warehouse.rows import batched

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.validate_rows import Reject

EXCLUSION_LISTS = 8
"""Exclusion lists of an audience: if one person comes back, only the list with that person is made anew."""

Final = dict[int, list[Step]]
"""The last change of each person in this run, by bucket."""


def deletes_contacts(task: Any) -> bool:
    """Return whether the contacts of people who left are deleted."""
    return bool(task.changes_only and task.changes_only.on_removed == "delete_contact")


class Removal:
    """Removes people from an audience; the state says so before the service is asked to.

    :param audience: the run.
    """

    def __init__(self, audience: Any, state: AudienceState, comparison: Comparison) -> None:
        self._audience = audience
        self._task = audience.task
        self._state = state
        self._comparison = comparison
        self.deletes = deletes_contacts(self._task)
        self.made_list = False
        """Whether a new exclusion list was made."""
        if self.deletes and "email" not in audience._plan.properties:
            raise AirflowFailException(
                "columns: on_removed='delete_contact' needs email, by which contacts are deleted"
            )

    def absent_people(self) -> Iterator[bytes]:
        """Yield those whom the source did not return."""
        for _, absent in self._comparison.absent():
            yield from (person.key for person in absent)

    def remove(
        self,
        leaving: Mapping[int, list[Absent]],
        returned: Collection[Change],
        final: Final,
        accepted: Iterable[tuple[int, list[Step]]],
    ) -> None:
        """Remove people, and store where everybody is after this run.

        :param leaving: people who are not in the audience any more, by bucket, with their values in the state.
        :param returned: people who were excluded and have come back.
        :param final: other changes of this run; those of the people who leave are added.
        :param accepted: the changes of people whose rows the service has accepted, by bucket; read once.
        """
        state, now = self._state, self._state.began_at
        keys = [person.key for person in chain.from_iterable(leaving.values())]
        self._audience.note_left(keys)
        if self.deletes:
            kept = self.delete(keys, final, {person.key: person.before for p in leaving.values() for person in p})
            leaving = {
                number: [person for person in people if person.key in kept] for number, people in leaving.items()
            }
        if not self._audience._exact:
            for number, people in leaving.items():
                final.setdefault(number, []).extend((person.key, person.before, GONE, 0) for person in people)
            state.change(_joined(accepted, final))
            return
        self._exclude(leaving, returned, final, accepted, now)

    def delete_absent(self, keys: Collection[bytes]) -> None:
        """Delete contacts after everybody was sent; the state has these people as `NEW`."""
        final: Final = {}
        for key in self.delete(keys, final, dict.fromkeys(keys, NEW)):
            final.setdefault(bucket_of(key), []).append((key, NEW, GONE, 0))
        self._state.change(final.items())

    def delete(self, keys: Collection[bytes], final: Final, before: Mapping[bytes, int]) -> set[bytes]:
        """Delete contacts; return those who are not, since they are in other audiences.

        :param before: their values in the state.
        """
        task = self._task
        kept = members_of_others(self._state, keys)
        suppressed = self._audience.suppressed_keys
        if kept:
            task.log.warning("%s people who left are in other audiences: their contacts are not deleted.", len(kept))
        to_delete = [key for key in keys if key not in kept and key not in suppressed and not key.startswith(b"tel:")]
        # Before the first one is deleted: people who come back then are sent.
        doubts: Final = defaultdict(list)
        for key in to_delete:
            doubts[bucket_of(key)].append((key, before[key], NEW, 0))
            final.setdefault(bucket_of(key), []).append((key, NEW, GONE, 0))
        self._state.change(doubts.items())
        client = task.hook.get_conn()
        for key in to_delete:
            delete(client, DeleteContact(email=key.decode()))
        if to_delete:
            task.log.info("%s contacts were deleted, as on_removed says.", f"{len(to_delete):,}")
        return set(keys) - set(to_delete)

    def _exclude(
        self,
        leaving: Mapping[int, list[Absent]],
        returned: Collection[Change],
        final: Final,
        accepted: Iterable[tuple[int, list[Step]]],
        now: int,
    ) -> None:
        """Put people on an exclusion list, and make those lists anew that people came back from."""
        state, exclusions = self._state, self._state.ledger.exclusions
        came_back = {change.key for change in returned}
        # Also of those who may be on a list, and leave for certain now.
        anew = sorted({number for change in returned if (number := exclusion_of(change.before or 0)) is not None})
        doubtful = {person.key: person.before for people in leaving.values() for person in people}
        again = {key: number for key, value in doubtful.items() if (number := exclusion_of(value)) is not None}
        fresh = [key for key in doubtful if key not in again]
        target = self._target(anew) if fresh else None
        doubts: Final = {}
        for number, people in leaving.items():
            for person in people:
                on = again.get(person.key, target)
                assert on is not None
                if person.key not in again:
                    since = now
                    doubts.setdefault(number, []).append(
                        (person.key, person.before, excluded_on(on, doubtful=True), since)
                    )
                final.setdefault(number, []).append((person.key, excluded_on(on, doubtful=True), excluded_on(on), 0))
        if doubts:
            state.change(doubts.items())
        names: dict[int, str] = {}
        for number in anew:
            names[number] = self._audience.new_exclusion(number)
            stay = (key for key in self._comparison.away([number]) if key not in came_back)
            on_it = fresh if number == target else []
            self._send(chain(stay, on_it), names[number])
        for number in {*again.values(), *([] if target is None else [target])} - set(anew):
            added = [key for key, on in again.items() if on == number] + (fresh if number == target else [])
            self.made_list |= exclusions[number].sure == 0
            self._send(added, exclusions[number].name)
        for number, name in names.items():
            exclusions[number].name = name
            self.made_list = True
        state.change(_joined(accepted, final))
        emptied = [each for each in exclusions if each.name and not each.sure and not each.doubtful]
        for exclusion in emptied:
            exclusion.name = ""
        if emptied:
            state.save()

    def _target(self, anew: Collection[int]) -> int:
        """Return the number of the list that people who leave now are put on."""
        exclusions = self._state.ledger.exclusions
        if anew:
            return min(anew)
        unused = next((number for number, each in enumerate(exclusions) if not each.name), None)
        if unused is None and len(exclusions) < EXCLUSION_LISTS:
            unused = len(exclusions)
            exclusions.append(Exclusion(name=""))
        if unused is not None:
            exclusions[unused].name = self._audience.new_exclusion(unused)
            return unused
        return min(range(len(exclusions)), key=lambda number: exclusions[number].sure)

    def _send(self, people: Iterable[bytes], list_name: str) -> None:
        """Add people to an exclusion list: only those who are contacts, and with nothing but their address.

        :raises AirflowException: the service rejects one of them.
        """
        audience, task = self._audience, self._task
        rejected: list[Reject] = []
        is_there = False
        by_property: dict[str, list[str]] = {"email": [], "phoneNumber": []}
        for key in people:
            phone = key.startswith(b"tel:")
            by_property["phoneNumber" if phone else "email"].append(key.decode().removeprefix("tel:"))
        for name, values in by_property.items():
            if not values:
                continue
            plan = replace(
                audience._plan, properties=(name,), list_name=list_name, list_description="Left the audience",
                update_mode=UpdateMode.UPDATE_ONLY,
            )  # fmt: skip
            progress = import_contacts(
                task.hook.get_conn(),
                batched(([value] for value in values), plan.chunk_size),
                plan,
                on_reject=rejected.append,
                progress=Progress(),
                interrupt=task.new_interrupt(),
            )
            audience.progress.requests += progress.requests
            is_there |= bool(progress.accepted)
        existing = [reject for reject in rejected if self._exists(reject)]
        if existing:
            # Nobody trusts this state from now on.
            self._state.ledger.settings = ""
            self._state.save()
            # Without the service's message, which may quote an address.
            reason = existing[0].reason.partition(":")[0]
            raise AirflowException(
                f"{len(existing)} people who left cannot be excluded: {reason}. The next try sends everybody, to a new "
                "list"
            )
        if not is_there:
            audience._create(list_name)

    def _exists(self, reject: Reject) -> bool:
        """Ask whether a person who cannot be excluded is a contact: the specification does not show why not."""
        value = str(reject.row[0])
        return "@" not in value or DeleteContact(email=value).exists(self._task.hook.get_conn())


def _joined(accepted: Iterable[tuple[int, list[Step]]], final: Final) -> Iterator[tuple[int, list[Step]]]:
    """Yield the changes of both by bucket; those in ``final`` are taken out of it."""
    for number, steps in accepted:
        yield number, steps + final.pop(number, [])
    yield from list(final.items())
