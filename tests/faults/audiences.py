"""Imports of audiences: a campaign to what they return reaches exactly the people of the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_mail.api.flows.audience import AudienceList
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from mail_emulator import Emulator
from tests.faults.loads import Database
from tests.faults.trying import Fault, Said, TaskWorkload
from tests.support.changes import post, snapshot
from tests.support.tries import Tries

TRACKED: dict[str, Any] = {"changes_only": True}
DELETING: dict[str, Any] = {"on_removed": "delete_contact", "max_removed_fraction": 1, **TRACKED}
LEFT_OUT = "max@example.com"
SUPPRESSING: dict[str, Any] = {"suppress_sql": f"SELECT '{LEFT_OUT}'"}


class AudienceImport(TaskWorkload):
    """An import after others, each of which returned some people.

    :param runs: the people of each run; those of the last one are imported while there are faults.
    """

    reads = False
    examples = 12

    def __init__(self, what: str, *runs: str, **arguments: Any) -> None:
        self.name = f"audience {what}"
        self._runs = [[f"{name}@example.com" for name in run.split()] for run in runs]
        self._arguments, self._has_state = arguments, "changes_only" in arguments
        self._database = Database(f"audience_{what.replace(' ', '_')}")
        self._service: Emulator | None = None
        self._restore: Callable[[], None]

    def connections(self) -> dict[str, Any]:
        return self._database.connection()

    def arrange(self, service: Emulator) -> None:
        if self._service is not service:
            self._begin(service)
        self._restore()
        self._database.restore()
        self._kept = {entry["name"] for entry in service.lists()} - self._outdated

    def _begin(self, service: Emulator) -> None:
        *earlier, people = self._runs
        service.add_list("others", ["other@example.com"])
        self._outdated = {self._add_list(service, f"run {days}", days) for days in (4, 5)}
        needed = self._add_list(service, "run 6", 6)
        post(
            service, "campaign/mail/sends", mailName="later", senderMail="news@example.com", subject="a", content="a",
            sendListNames=[needed], sendDate="2999-01-01T00:00:00Z",
        )  # fmt: skip
        self._database.restore()
        for number, self._people in enumerate(earlier):
            self.task = Tries(service)
            self.task.run_id = str(number)
            assert super().run(service, "").green, self.task
        self._people = people
        if earlier:
            self._database.keep()
        self.task = Tries(service)
        self._service, self._restore = service, snapshot(service)

    @staticmethod
    def _add_list(service: Emulator, run_id: str, days: int) -> str:
        """Add the list of an earlier run, as one without a state makes it."""
        begun_at = datetime.now(UTC) - timedelta(days=days)
        name = str(AudienceList.of("friends", task="dag/task", run_id=run_id, begun_at=begun_at))
        service.add_list(name, ["left@example.com"])
        return name

    def operator(self) -> BaseOperator:
        database = {"suppress_conn_id": self._database.conn_id} | (
            {"state_conn_id": self._database.conn_id} if self._has_state else {}
        )
        return MailImportContactsOperator(
            task_id="task",
            contacts=[{"email": email} for email in self._people],
            list_name="friends",
            audience="exact",
            keep_lists=1,
            chunk_size=2,
            **database,
            **self._arguments,
        )

    def undecidable(self, faults: Sequence[Fault]) -> bool:
        # The response for a contact that does not exist is not shown: a rejection may be that.
        return "on_removed" in self._arguments and any(fault.kind == "code_before" for fault in faults)

    def check(self, service: Emulator, said: Said) -> None:
        existing = {entry["name"] for entry in service.lists()}
        assert self._kept <= existing, "a list is gone that somebody needs"
        if not said.green:
            return
        sent, repelled = (
            {contact["email"] for name in said.result[key] for contact in service.contacts(name)}
            for key in ("send_list_names", "repel_list_names")
        )
        left_out = {LEFT_OUT} if "suppress_sql" in self._arguments else set()
        assert sent - repelled == set(self._people) - left_out, "a campaign reaches others"
        if "on_removed" in self._arguments:
            contacts = {contact["email"] for contact in service.contacts()}
            assert contacts.isdisjoint({email for run in self._runs for email in run} - {*self._people})


AUDIENCES = (
    AudienceImport("without a state", "ada bob cem eva"),
    AudienceImport("of which some left", "ada bob cem eva", "ada bob max", **TRACKED),
    AudienceImport("of which some came back", "ada bob cem eva", "ada bob", "ada cem max", **TRACKED),
    AudienceImport("of which some are deleted", "ada bob cem eva", "ada bob max", **DELETING),
    AudienceImport("of which some are left out", "ada bob", "ada bob cem max", **SUPPRESSING, **TRACKED),
)
