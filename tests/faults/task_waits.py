"""Sensors that wait in a worker: green only when what they wait for is so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.sensors.senders import MailSenderSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from tests.faults.cases import Case
from tests.faults.flow_changes import CUSTOMERS, NAME, SENDER
from tests.faults.flow_reads import COUNTERS, FIRST, LAST, fill
from tests.faults.task_data import COUNTS
from tests.faults.tasks import TaskWorkload
from tests.faults.workload import Finding, Said, Wrong


class Wait(TaskWorkload):
    """A sensor.

    :param truth: what it returns when it is green; nothing when what it waits for never comes.
    """

    def __init__(
        self, what: str, make: Callable[..., BaseOperator], truth: Callable[[Emulator], Any], *, share: float = 1.0
    ) -> None:
        super().__init__()
        self.share = share
        self.name = f"task: wait for {what}"  # type: ignore[misc]
        self._make = make
        self._truth = truth

    def arrange(self, service: Emulator) -> None:
        fill(service)
        service.add_list("people", CUSTOMERS)
        service.add_campaign(f"other {NAME}")
        service.add_campaign(NAME, state="sending", sent=3)
        service.plan_campaign(NAME, looks=2)
        service.add_sender("unverified.example.org")
        service.set_dns("unverified.example.org", spf=False)

    def operator(self) -> BaseOperator:
        return self._make(task_id="task", poke_interval=60.0, timeout=150.0, deferrable=False)

    def must_end_well(self, case: Case) -> bool:
        return super().must_end_well(case) and self._truth is not never

    def gives_up(self, service: Emulator, error: BaseException | None) -> bool:
        return self._truth is never

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and (self._truth is never or not self._truth(service).items() <= said.result.items()):
            yield Wrong.UNTRUE, f"it is {self._truth(service)}"


def never(service: Emulator) -> None:
    """It never comes."""


def counts(service: Emulator, name: str) -> dict[str, Any]:
    """What the service holds of a campaign that has gone out."""
    (campaign,) = service.campaigns(name)
    stats = campaign["mailStats"] or {}
    return {ours: stats.get(theirs) for ours, theirs in zip(COUNTS, COUNTERS, strict=True)}


WAITS = (
    Wait(
        "a campaign",
        lambda **options: MailCampaignSensor(mail_name=NAME, **options),
        lambda service: (
            counts(service, NAME) | {"delivered_count": service.campaigns(NAME)[0]["mailStats"]["deliveredCount"]}
        ),
    ),
    Wait(
        "a sender",
        lambda **options: MailSenderSensor(sender_email=SENDER, **options),
        lambda service: dict.fromkeys(("mx", "spf", "dkim", "dmarc", "valid"), True),
    ),
    Wait(
        "a sender that never gets good",
        lambda **options: MailSenderSensor(sender_email="unverified.example.org", selector="s1", **options),
        never,
        share=0.15,
    ),
    Wait(
        "final statistics",
        lambda **options: MailStatsSettledSensor(
            mail_name="news-000001",
            stable_checks=2,
            min_interval=60,
            start_day=str(FIRST),
            end_day=str(LAST),
            **options,
        ),
        lambda service: counts(service, "news-000001"),
    ),
)
