"""What becomes of people who left an audience: they are excluded from its campaigns, deleted, or forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.comparison import LEFT, RETURNED, Comparison
from airflow_provider_mail._audience.people import leave_others
from airflow_provider_mail._audience.rows import ACCEPTED, REJECTED, People
from airflow_provider_mail._audience.state import EXCLUDED, EXCLUSION_LISTS, GONE, IN_DOUBT, AudienceState, is_member
from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.api.contacts import DeleteContact, UpdateMode
from airflow_provider_mail.api.flows.create_once import delete
from airflow_provider_mail.api.flows.import_contacts import Progress, import_contacts
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from airflow_provider_mail.warehouse.rows import batched

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.validate_rows import Reject


def deletes_contacts(task: Any) -> bool:
    """Return whether the contacts of people who left are deleted."""
    return bool(task.changes_only and task.changes_only.on_removed == "delete_contact")


class Removal:
    """Removes people from an audience, once the rows were sent.

    :param audience: the run.
    :param excludes: whether people who left must be excluded: campaigns are sent to a list that they are on.
    """

    def __init__(
        self, audience: Any, state: AudienceState, people: People, comparison: Comparison, *, excludes: bool
    ) -> None:
        self._audience = audience
        self._task = audience.task
        self._state = state
        self._people = people
        self._comparison = comparison
        self._excludes = excludes
        self._deletes = deletes_contacts(self._task)
        self._deleted = set[bytes]()
        self._rejected = set[bytes]()
        self._target = 0
        """The number of the exclusion list for people who leave now."""
        self.is_done = False
        self.has_new_list = False
        if self._deletes and "email" not in audience._plan.properties:
            raise AirflowFailException(
                "columns: on_removed='delete_contact' needs email, by which contacts are deleted"
            )

    def run(self) -> None:
        if self._excludes and REJECTED in self._people.marks:
            # They were members, and the service does not have the row that the source has now.
            for each in self._comparison.changes():
                marks = map(self._people.marks.__getitem__, each.numbers)
                self._rejected.update(
                    key
                    for key, before, mark in zip(each.keys, each.befores, marks, strict=True)
                    if mark == REJECTED and is_member(before)
                )
        if self._deletes:
            self._delete()
        if self._excludes:
            self._exclude()
        self.is_done = True

    def value_of_left(self, key: bytes) -> int | None:
        """Return the value in the state of a person who left; ``None`` for the one before."""
        if not self.is_done:
            # Without exclusions, everybody may be stored anew.
            return IN_DOUBT if key in self._deleted or (self._deletes and not self._excludes) else None
        return GONE if not self._excludes or key in self._deleted else EXCLUDED - self._target

    def value_of(self, key: bytes, before: int, digest: int, mark: int) -> int | None:
        """Return the value in the state of a person whose row was to be sent; ``None`` for the one before."""
        if self._excludes and before <= EXCLUDED:
            # Until the exclusion list was made anew, the person is on it.
            return digest if self.is_done and mark == ACCEPTED else None
        if mark == REJECTED:
            if before == GONE and self._deletes:
                return GONE
            return self.value_of_left(key) if key in self._rejected else None
        return digest if mark == ACCEPTED else IN_DOUBT

    # --- contacts ---

    def _delete(self) -> None:
        """Delete contacts, but not of people in the source who were not sent, or who are in other audiences."""
        task, client = self._task, self._task.hook.get_conn()
        left = {key for each in self._comparison.changes() for key in each.left if not key.startswith(b"tel:")}
        left -= self._audience.suppressed_keys
        left = {key for key in left if hash(key.decode()) not in self._audience.not_sent}
        others = leave_others(self._state, left)
        if others:
            task.log.warning("%s people who left are in other audiences: their contacts are not deleted.", len(others))
        self._deleted = left - others
        for key in sorted(self._deleted):
            delete(client, DeleteContact(email=key.decode()))
        if self._deleted:
            task.log.info("%s contacts were deleted, as on_removed says.", f"{len(self._deleted):,}")

    # --- exclusion lists ---

    def _exclude(self) -> None:
        """Put people on an exclusion list, and make those anew from which people came back, for who stays on them.

        Who leaves in one run is on one list if possible: often they come back together, and the list is needed no more.
        """
        ledger, marks, counts = self._state.ledger, self._people.marks, self._comparison.counts
        names, sizes = ledger.repel_list_names.copy(), ledger.excluded_on
        returned = {
            key: EXCLUDED - before
            for each in (self._comparison.changes() if counts[RETURNED] else ())
            for key, before, number in zip(each.keys, each.befores, each.numbers, strict=True)
            if before <= EXCLUDED and marks[number] == ACCEPTED
        }
        anew = {number for number, size in enumerate(sizes) if size and not names[number]} | {*returned.values()}
        for number in anew:
            names[number] = ""
        self._target = min(range(EXCLUSION_LISTS), key=sizes.__getitem__)
        with ExitStack() as stack:
            piles = {number: stack.enter_context(closing(Spool[list[bytes]]())) for number in {*anew, self._target}}
            piles[self._target].add(list(self._rejected))
            for each in self._comparison.changes() if anew or counts[LEFT] else ():
                piles[self._target].add([key for key in each.left if key not in self._deleted])
                stay: dict[int, list[bytes]] = {EXCLUDED - number: [] for number in anew}
                for key, value in each.away.items():
                    if value in stay and key not in returned:
                        stay[value].append(key)
                for value, keys in stay.items():
                    piles[EXCLUDED - value].add(keys)
            self.has_new_list = bool(anew)
            for number, pile in piles.items():
                people = chain.from_iterable(pile)
                if (first := next(people, None)) is None:
                    if number in anew:
                        # No campaign needs it, but its name shows that the one before is not in use: see `last_size`.
                        self._audience.create_list(self._audience.new_exclusion(number))
                else:
                    self.has_new_list |= not names[number]
                    names[number] = names[number] or self._audience.new_exclusion(number)
                    # Until all are on it, an error leaves nobody who could tell who is.
                    ledger.repel_list_names[number] = ""
                    self._send(chain([first], people), names[number])
        ledger.repel_list_names = names

    def _send(self, people: Iterable[bytes], list_name: str) -> None:
        """Add people to an exclusion list: only those who are contacts, and with nothing but their address.

        :raises AirflowException: the service rejects one of them.
        """
        audience, task = self._audience, self._task
        rejected: list[Reject] = []
        is_there = False
        phones: list[str] = []

        def addresses() -> Iterator[list[str]]:
            for key in people:
                text = key.decode()
                if text.startswith("tel:"):
                    phones.append(text.removeprefix("tel:"))
                else:
                    yield [text]

        for name, values in (("email", addresses()), ("phoneNumber", ([phone] for phone in phones))):
            plan = replace(
                audience._plan, properties=(name,), list_name=list_name, list_description="Left the audience",
                update_mode=UpdateMode.UPDATE_ONLY,
            )  # fmt: skip
            progress = import_contacts(
                task.hook.get_conn(),
                batched(values, plan.chunk_size),
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
            # Without the service's message, which may quote an address.
            reason = existing[0].reason.partition(":")[0]
            raise AirflowException(
                f"{len(existing)} people who left cannot be excluded: {reason}. The next try sends everybody, to a new "
                "list"
            )
        if not is_there:
            audience.create_list(list_name)

    def _exists(self, reject: Reject) -> bool:
        """Ask whether a person who cannot be excluded is a contact: the specification does not show why not."""
        value = str(reject.row[0])
        return "@" not in value or DeleteContact(email=value).exists(self._task.hook.get_conn())
