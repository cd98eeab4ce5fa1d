"""Reading: everything, exactly once each, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

from airflow_provider_mail.api._core.requests import MailRequest, PagedRequest
from airflow_provider_mail.api.campaigns import GetCampaigns, GetCampaignStats, find_campaign
from airflow_provider_mail.api.contacts import GetContact, GetListContacts
from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages
from airflow_provider_mail.api.flows.statistics import campaign_stats, transactional_stats
from airflow_provider_mail.api.lists import GetLists, find_list
from airflow_provider_mail.api.senders import GetSenders, VerifySender
from airflow_provider_mail.api.templates import GetTemplates, find_template
from airflow_provider_mail.api.transactional import GetTransactionalStats
from airflow_provider_mail.api.webhooks import GetWebhook
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver, SyncDriver, driver
from tests.faults.cases import Case
from tests.faults.flows import FlowWorkload, config_of
from tests.faults.workload import Finding, Said, Wrong

FIRST, LAST = date(2024, 3, 2), date(2024, 3, 6)
COUNTERS = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")


def fill(service: Emulator) -> None:
    """Some of everything that can be read."""
    service.clock.set("2024-03-09T00:00:00+00:00")
    service.clock.freeze()
    service.add_list("customers", [f"c{number}@example.com" for number in range(7)])
    for number in range(4):
        service.add_list(f"list {number}")
        service.add_template(f"template {number}", subject="Hi", content="<p>Hi</p>")
    service.add_campaigns(8, prefix="news", first_day=FIRST, per_day=2)
    for number in range(5):
        service.set_transactional_day(FIRST + timedelta(days=number), sentCount=10 + number, openCount=number)
    service.add_sender("other@example.com", types=[2])


class ReadAll(FlowWorkload):
    """A list, page by page to its end."""

    def __init__(self, what: str, request: PagedRequest[Any], truth: Callable[[Emulator], list[str]]) -> None:
        self.name = f"read all {what}"  # type: ignore[misc]
        self._request = request
        self._truth = truth

    def arrange(self, service: Emulator) -> None:
        fill(service)

    def act(self, client: Driver, service: Emulator) -> list[str]:
        records = [record for page in client.pages(self._request) for record in page]
        return [getattr(record, NAMES[self._request.path]) for record in records]

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and sorted(said.result) != sorted(self._truth(service)):
            yield Wrong.INCOMPLETE, f"there are {sorted(self._truth(service))}"


NAMES = {
    GetListContacts.path: "email",
    GetCampaigns.path: "mail_name",
    GetLists.path: "list_name",
    GetTemplates.path: "template_name",
}


class ReadAllAtOnce(ReadAll):
    """The same with several pages under way."""

    colours = ("sync",)

    def act(self, client: Driver, service: Emulator) -> list[str]:
        assert isinstance(client, SyncDriver)
        pages = concurrent_pages(client.client, self._request, at_once=2)
        return [getattr(record, NAMES[self._request.path]) for page in pages for record in page]


class Find(FlowWorkload):
    """Something of exactly this name, among others whose names contain it."""

    settings = {"max_page_size": 2, "newest_first": False}  # noqa: RUF012

    def __init__(self, what: str, name: str, flow: Callable[[str], Any], *, there: bool) -> None:
        self.name = f"find {what} that is {'there' if there else 'not there'}"  # type: ignore[misc]
        self._wanted = name
        self._flow = flow
        self._there = there

    def arrange(self, service: Emulator) -> None:
        for number in range(3):
            service.add_list(f"{number} {self._wanted}")
            service.add_template(f"{number} {self._wanted}", subject="Hi", content="<p>Hi</p>")
            service.add_campaign(f"{number} {self._wanted}")
        if self._there:
            service.add_list(self._wanted)
            service.add_template(self._wanted, subject="Hi", content="<p>Hi</p>")
            service.add_campaign(self._wanted)

    def act(self, client: Driver, service: Emulator) -> bool:
        return client.run(self._flow(self._wanted)) is not None

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and said.result is not self._there:
            yield Wrong.INCOMPLETE, "the look-up was wrong"


def known(value: Any, expected: Any) -> Any:
    """Return a value without the fields that the expected one lacks: records keep those that a fault adds."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return {name: known(value[name], expected[name]) for name in value if name in expected}
    if isinstance(value, list) and isinstance(expected, list) and len(value) == len(expected):
        return [known(*pair) for pair in zip(value, expected, strict=True)]
    return value


class ReadOne(FlowWorkload):
    """One request, one answer: the same as without faults."""

    def __init__(self, what: str, request: MailRequest[Any]) -> None:
        self.name = f"read {what}"  # type: ignore[misc]
        self._request = request
        self._expected: Any = None

    def arrange(self, service: Emulator) -> None:
        fill(service)
        undisturbed = driver("sync", config_of(service))
        self._expected = self.act(undisturbed, service)
        undisturbed.close()

    def act(self, client: Driver, service: Emulator) -> Any:
        return client.send(self._request).model_dump(mode="json")

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and known(said.result, self._expected) != self._expected:
            yield Wrong.INCOMPLETE, f"without a fault it was {self._expected}"


class ReadCampaignStats(FlowWorkload):
    """The statistics of a window."""

    name = "read campaign statistics"

    def arrange(self, service: Emulator) -> None:
        fill(service)

    def act(self, client: Driver, service: Emulator) -> list[tuple[Any, ...]]:
        records = client.run(campaign_stats(GetCampaignStats(start_date=FIRST, end_date=LAST)))
        wire = (record.model_dump(by_alias=True) for record in records)
        return sorted((record["mailName"], *(record[name] for name in COUNTERS)) for record in wire)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and said.result != true_stats(service):
            yield Wrong.INCOMPLETE, f"there are {len(true_stats(service))} records"


class ReadTransactionalStats(FlowWorkload):
    """Every day of a window."""

    name = "read transactional statistics"

    def arrange(self, service: Emulator) -> None:
        fill(service)

    def act(self, client: Driver, service: Emulator) -> list[tuple[date, int, int]]:
        days = client.run(transactional_stats(GetTransactionalStats(start_date=FIRST, end_date=LAST)))
        return [(day.stats_date, day.sent_count, day.open_count) for day in days]

    def undecidable(self, case: Case) -> bool:
        # Days without mail may be left out. One that is not there whenever it is asked for is taken for such a day.
        counts = [strike.count for strike in case.strikes if strike.variant.kind.name == "short_stats"]
        return counts not in ([], [1])

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and said.result != TRUE_DAYS:
            yield Wrong.INCOMPLETE, f"there are {len(TRUE_DAYS)} days"


TRUE_DAYS = [(FIRST + timedelta(days=number), 10 + number, number) for number in range(5)]


def true_stats(service: Emulator) -> list[tuple[Any, ...]]:
    """The counts of every campaign that has gone out, by name."""
    return sorted(
        (campaign["mailName"], *(campaign["mailStats"][name] for name in COUNTERS))
        for campaign in service.campaigns()
        if campaign["mailStats"]
    )


def _customers(service: Emulator) -> list[str]:
    return [contact["email"] for contact in service.contacts("customers")]


READS = (
    ReadAll("contacts of a list", GetListContacts(list_name="customers", page_size=3), _customers),
    ReadAllAtOnce("contacts, pages at once", GetListContacts(list_name="customers", page_size=3), _customers),
    ReadAll(
        "campaigns",
        GetCampaigns(mail_name="news", page_size=3),
        lambda service: [campaign["mailName"] for campaign in service.campaigns()],
    ),
    ReadAll("lists", GetLists(page_size=2), lambda service: [each["name"] for each in service.lists()]),
    ReadAll("templates", GetTemplates(page_size=3), lambda service: [each["name"] for each in service.templates()]),
    Find("a campaign", "weekly", find_campaign, there=True),
    Find("a campaign", "weekly", find_campaign, there=False),
    Find("a list", "weekly", find_list, there=True),
    Find("a template", "weekly", find_template, there=False),
    ReadOne("a contact", GetContact(email="c1@example.com")),
    ReadOne("senders", GetSenders()),
    ReadOne("a sender's checks", VerifySender(from_domain="example.com", selector="s1")),
    ReadOne("the webhook", GetWebhook()),
    ReadTransactionalStats(),
    ReadCampaignStats(),
)
