"""What becomes of people who left an audience: they are excluded from its campaigns, deleted, or forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.members import DOUBTFUL, LEAVING, LEFT, MEMBER
from airflow_provider_mail._audience.rows import Identity, decoded, lines_of
from airflow_provider_mail.api.contacts import DeleteContact
from airflow_provider_mail.api.flows.create_once import create, delete
from airflow_provider_mail.api.flows.import_contacts import Progress, import_contacts
from airflow_provider_mail.api.lists import AddList
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from airflow_provider_mail.warehouse.rows import batched

if TYPE_CHECKING:
    from airflow_provider_mail._audience.index import AudienceIndex
    from airflow_provider_mail._audience.state import AudienceState
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan
    from airflow_provider_mail.api.flows.validate_rows import Reject

GONE = ""
"""Where people are who are on no list any more."""

LISTED = (MEMBER, DOUBTFUL, LEAVING)
"""The memberships of people who may be on the list and not excluded."""


class Removal:
    """Removes people from an audience; the state says so before the service is asked to.

    :param progress: counts the requests.
    """

    def __init__(
        self, task: Any, state: AudienceState, index: AudienceIndex, plan: ImportPlan, progress: Progress
    ) -> None:
        self._task = task
        self._state = state
        self._index = index
        self._plan = plan
        self._progress = progress
        self._key = Identity(plan.properties).key
        self.deletes = task.changes_only.on_removed == "delete_contact"
        """Whether people who left are deleted."""
        if self.deletes and "email" not in plan.properties:
            raise AirflowFailException(
                "columns: on_removed='delete_contact' needs email, by which contacts are deleted"
            )

    def to_delete(self, *memberships: str) -> Iterator[tuple[str, bytes]]:
        """Yield key and line of those whose contacts are to be deleted; not people whose rows are left out.

        :param memberships: where they were before. Default: anywhere.
        """
        if self.deletes:
            yield from self._index.absent(*(memberships or (*LISTED, LEFT)), suppressed=False)

    def delete(self, *, noted: bool = False) -> None:
        """Delete contacts, as ``on_removed`` says.

        :param noted: whether the state has them among the leaving ones already.
        """
        self._index.remove(self.to_delete(), GONE)
        if not noted:
            # Before the first one is deleted: people who come back then are sent.
            self._state.add(self._index.ended_of("removed"), lines_of(LEAVING, self._index.removed(GONE)))
        email, deleted = self._plan.properties.index("email"), 0
        for _, line in self._index.removed(GONE):
            if address := decoded(line)[email]:
                delete(self._task.hook.get_conn(), DeleteContact(email=address))
                deleted += 1
        if deleted:
            self._task.log.info("%s contacts were deleted, as on_removed says.", f"{deleted:,}")

    def forget(self) -> None:
        """Forget those who left: campaigns still reach them."""
        self._index.remove(self._index.absent(*LISTED), GONE)

    def exclude(self, new_list: str) -> bool:
        """Exclude those who left; return whether a new list was made for them.

        :param new_list: the name of the list that is made if people came back, or if there is none yet.
        """
        index, state = self._index, self._state
        index.remove(index.absent(*LISTED), LEFT)
        index.remove(index.rejected(*LISTED), LEFT)
        current = state.header.repel_list_name
        returned = bool(current and index.has_returned())
        if not returned and not any(True for _ in index.removed(LEFT)):
            return False
        state.add(index.ended_of("removed"), lines_of(LEAVING, index.removed(LEFT)))
        if current and not returned:
            self._send((line for _, line in index.removed(LEFT)), current)
            return False
        self._send(self._all_excluded(), new_list)
        # Before the state says that they are back: the earlier list excludes them.
        state.update(repel_list_name=new_list)
        return True

    def _all_excluded(self) -> Iterator[bytes]:
        """Yield the rows of people who left before and did not come back, and of those who leave now."""
        for _, _, line in self._state.members.active(LEFT):
            key = self._key(decoded(line))
            if not self._index.was_accepted(key) and not self._index.is_removed(key):
                yield line
        yield from (line for _, line in self._index.removed(LEFT))

    def _send(self, lines: Iterable[bytes], list_name: str) -> None:
        """Add people to an exclusion list.

        :raises AirflowException: the service rejects one of them.
        """
        # With the name: an import without one would reset it.
        names = [name for name in ("email", "phoneNumber", "name") if name in self._plan.properties]
        places = list(map(self._plan.properties.index, names))
        plan = replace(self._plan, properties=tuple(names), list_name=list_name, list_description="Left the audience")
        rejected: list[Reject] = []
        progress = import_contacts(
            self._task.hook.get_conn(),
            batched(([row[place] for place in places] for row in map(decoded, lines)), plan.chunk_size),
            plan,
            on_reject=rejected.append,
            progress=Progress(),
            interrupt=self._task.new_interrupt(),
        )
        self._progress.requests += progress.requests
        if rejected:
            # Nobody trusts this state from now on.
            self._state.update(settings="")
            # Without the service's message, which may quote an address.
            reason = rejected[0].reason.partition(":")[0]
            raise AirflowException(
                f"{len(rejected)} people who left cannot be excluded: {reason}. The next try sends everybody, to a new "
                "list"
            )
        if not progress.accepted:
            create(self._task.hook.get_conn(), AddList(list_name=list_name))
        self._task.log.info("%s people were added to exclusion list %r.", f"{progress.accepted:,}", list_name)
