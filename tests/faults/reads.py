"""Reading: everything, exactly once each, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from typing import Any

from airflow_provider_mail.api._core.requests import PagedRequest
from airflow_provider_mail.api.campaigns import GetCampaigns, GetCampaignStats, find_campaign
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages
from airflow_provider_mail.api.flows.statistics import campaign_stats, transactional_stats
from airflow_provider_mail.api.lists import GetLists, find_list
from airflow_provider_mail.api.templates import GetTemplates, find_template
from airflow_provider_mail.api.transactional import GetTransactionalStats
from mail_emulator import Emulator
from tests.api.driving import Driver, SyncDriver, driver
from tests.faults.trying import Fault, Said, Workload

FIRST, LAST = date(2024, 3, 2), date(2024, 3, 6)
COUNTERS = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")
TRUE_DAYS = [(FIRST + timedelta(days=number), 10 + number, number) for number in range(5)]


def fill(service: Emulator) -> None:
    """Some of everything that can be read."""
    service.clock.set("2024-03-09T00:00:00+00:00")
    service.clock.freeze()
    service.add_list("customers", [f"c{number}@example.com" for number in range(7)])
    for number in range(4):
        service.add_list(f"list {number}")
        service.add_template(f"template {number}", subject="Hi", content="<p>Hi</p>")
    service.add_campaigns(8, prefix="news", first_day=FIRST, per_day=2)
    for day, sent, opened in TRUE_DAYS:
        service.set_transactional_day(day, sentCount=sent, openCount=opened)
    service.add_sender("other@example.com", types=[2])


def true_stats(service: Emulator) -> list[tuple[Any, ...]]:
    """The counts of every campaign that was sent, by name."""
    return sorted(
        (campaign["mailName"], *(campaign["mailStats"][name] for name in COUNTERS))
        for campaign in service.campaigns()
        if campaign["mailStats"]
    )


class Read(Workload):
    """Something that is read with a client, without Airflow, and what it must be."""

    def __init__(self, what: str, act: Callable[[Driver], Any], truth: Callable[[Emulator], Any]) -> None:
        self.name = f"read {what}"
        self._act, self._truth = act, truth

    def arrange(self, service: Emulator) -> None:
        fill(service)

    def run(self, service: Emulator, client: str) -> Said:
        opened = driver(client, ClientConfig(base_url=service.base_url, api_key=service.api_key))
        try:
            return Said(self._act(opened))
        except MailError as error:
            return Said(error=error)
        finally:
            opened.close()

    def undecidable(self, faults: Sequence[Fault]) -> bool:
        # Days without mail may be left out. One that never comes is taken for such a day.
        return any(fault.kind == "short_stats" and (fault.count != 1 or len(faults) > 1) for fault in faults)

    def check(self, service: Emulator, said: Said) -> None:
        assert not said.green or said.result == self._truth(service)


def read_all(request: PagedRequest[Any], key: str, *, at_once: bool = False) -> Callable[[Driver], list[str]]:
    """Return what reads a list page by page to its end, perhaps several pages at once."""

    def act(client: Driver) -> list[str]:
        is_concurrent = at_once and isinstance(client, SyncDriver)
        pages = concurrent_pages(client.client, request, at_once=2) if is_concurrent else client.pages(request)
        return sorted(getattr(record, key) for page in pages for record in page)

    return act


def read_campaign_stats(client: Driver) -> list[tuple[Any, ...]]:
    records = client.run(campaign_stats(GetCampaignStats(start_date=FIRST, end_date=LAST)))
    wire = (record.model_dump(by_alias=True) for record in records)
    return sorted((record["mailName"], *(record[name] for name in COUNTERS)) for record in wire)


def read_transactional_stats(client: Driver) -> list[tuple[date, int, int]]:
    days = client.run(transactional_stats(GetTransactionalStats(start_date=FIRST, end_date=LAST)))
    return [(day.stats_date, day.sent_count, day.open_count) for day in days]


class Find(Read):
    """Something of exactly this name, among others whose names contain it."""

    settings = {"max_page_size": 2, "newest_first": False}  # noqa: RUF012

    def __init__(self, flow: Callable[[str], Any], *, exists: bool) -> None:
        super().__init__("", lambda client: client.run(flow("weekly")) is not None, lambda service: exists)
        self.name = f"{flow.__name__}, which {'exists' if exists else 'does not exist'}"
        self._names = ["0 weekly", "1 weekly", "2 weekly", *(["weekly"] if exists else [])]

    def arrange(self, service: Emulator) -> None:
        for name in self._names:
            service.add_list(name)
            service.add_template(name, subject="Hi", content="<p>Hi</p>")
            service.add_campaign(name)


def names(things: Iterable[Any], key: str = "name") -> list[str]:
    return sorted(thing[key] for thing in things)


def customers(service: Emulator) -> list[str]:
    return names(service.contacts("customers"), "email")


CUSTOMERS = GetListContacts(list_name="customers", page_size=3)

READS = (
    Read("contacts", read_all(CUSTOMERS, "email"), customers),
    Read("contacts, pages at once", read_all(CUSTOMERS, "email", at_once=True), customers),
    Read(
        "campaigns",
        read_all(GetCampaigns(mail_name="news", page_size=3), "mail_name"),
        lambda service: names(service.campaigns(), "mailName"),
    ),
    Read("lists", read_all(GetLists(page_size=2), "list_name"), lambda service: names(service.lists())),
    Read("templates", read_all(GetTemplates(page_size=3), "template_name"), lambda service: names(service.templates())),
    Read("campaign statistics", read_campaign_stats, true_stats),
    Read("transactional statistics", read_transactional_stats, lambda service: TRUE_DAYS),
    Find(find_campaign, exists=True),
    Find(find_campaign, exists=False),
    Find(find_list, exists=True),
    Find(find_template, exists=False),
)
