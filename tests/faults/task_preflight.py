"""The look at a campaign before it is sent: it only reads, and never passes over what it could not see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from tests.faults.cases import Case
from tests.faults.flow_changes import SENDER, names
from tests.faults.flow_reads import fill
from tests.faults.tasks import TaskWorkload
from tests.faults.workload import Finding, Said, Wrong


class Preflight(TaskWorkload):
    """A preflight whose findings are compared with those of one that nothing disturbed.

    :param passes: whether the campaign may go out.
    """

    share = 0.4
    # What the service is to check is asked again in the next try: it changes nothing.
    adopts = True

    def __init__(self, what: str, *, passes: bool, **arguments: Any) -> None:
        super().__init__()
        self.name = f"task: look at {what} before it is sent"  # type: ignore[misc]
        self._arguments = arguments
        self._passes = passes
        self._truth: dict[str, Any] = {}
        self._there: Any = None

    def arrange(self, service: Emulator) -> None:
        fill(service)
        service.add_list("empty")
        service.add_sender("unverified.example.org")
        service.set_dns("unverified.example.org", spf=False)
        if not self._truth:
            super().run(service, Case.none(), 0)
            self._truth = self.task.returned
            assert self._truth, self.task
            assert (not self._truth["errors"]) is self._passes, self._truth["table"]
        self._there = self._all(service)

    @staticmethod
    def _all(service: Emulator) -> Any:
        return sorted(names(service)), service.messages(), service.webhook(), service.journal.count("mail/cancel")

    def operator(self) -> BaseOperator:
        return MailPreflightOperator(task_id="task", mail_name="weekly", subject="News", **self._arguments)

    def must_end_well(self, case: Case) -> bool:
        # Code 500 is how the service says that the check of a campaign failed.
        return super().must_end_well(case) and not (
            case.effect is Effect.CREATE and case.variant.params.get("code") == 500
        )

    def undecidable(self, case: Case) -> bool:
        # The service is believed when it says how many contacts are in a list.
        return any(
            strike.variant.kind.name == "wrong_total" and strike.path == "/v5/contacts/list/get"
            for strike in case.strikes
        )

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if self._all(service) != self._there:
            yield Wrong.UNTRUE, "it was only to look, and changed something"
        if not said.green:
            return
        found, truth = _by_level(said.result), _by_level(self._truth)
        if missing := truth["error"] - found["error"]:
            yield Wrong.INCOMPLETE, f"it passes over {missing}"
        if invented := (found["ok"] | found["warning"]) - (truth["ok"] | truth["warning"]):
            yield Wrong.UNTRUE, f"it has not seen {invented}"
        if said.result["recipients"] != self._truth["recipients"]:
            yield Wrong.UNTRUE, f"{self._truth['recipients']} recipients, and it tells of {said.result['recipients']}"
        if said.result["errors"] != len(found["error"]):
            yield Wrong.UNTRUE, f"it counts {said.result['errors']} errors of {found['error']}"


def _by_level(result: dict[str, Any]) -> dict[str, set[tuple[str, str]]]:
    levels: dict[str, set[tuple[str, str]]] = {"ok": set(), "warning": set(), "error": set()}
    for finding in result["findings"]:
        # Why the service refuses it is in the service's words, whatever they are.
        text = "" if finding["check"] == "service" else finding["text"]
        levels[finding["level"]].add((finding["check"], text))
    return levels


PREFLIGHTS = (
    Preflight(
        "a good campaign",
        passes=True,
        sender_mail=SENDER,
        content="<p>News, {{name}}</p><a>unsubscribe</a>",
        send_list_names=["customers"],
        repel_list_names=["list 0"],
        max_recipients=10,
        max_growth=2,
        compare_with="news",
        known_tags=["name"],
    ),
    Preflight(
        "a bad campaign",
        passes=False,
        fail_on="never",
        sender_mail="news@unverified.example.org",
        content="<p>News, {{nome}}</p>",
        send_list_names=["customers", "empty"],
        repel_list_names=["nobody"],
        max_recipients=3,
        known_tags=["name"],
    ),
)
