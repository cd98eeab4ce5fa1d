"""What could be wrong with a campaign, found out before it is created. Everything here reads; nothing changes."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from airflow_provider_mail.api._core.clock import ServiceClock
from airflow_provider_mail.api._core.pagination import Pager, next_page
from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api._core.tags import tags_of
from airflow_provider_mail.api.campaigns import Campaign, CreateCampaign, GetCampaigns, MailStatus, find_campaign
from airflow_provider_mail.api.contacts import ContactsPage, GetListContacts
from airflow_provider_mail.api.errors import MailRejectedError, MailServerError, MailValidationError
from airflow_provider_mail.api.flows.adopt_campaign import COMPARED, differences, is_older, latest
from airflow_provider_mail.api.flows.send_date import lateness
from airflow_provider_mail.api.lists import find_list
from airflow_provider_mail.api.senders import GetSenders, GetSendersResponse, Sender

MARKETING = 1

Level = Literal["ok", "warning", "error"]

LEVELS: tuple[Level, ...] = ("ok", "warning", "error")
"""From good to bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    :param check: its name.
    :param level: ``ok``, ``warning`` (somebody should look) or ``error`` (it should not go out).
    :param text: for a person.
    """

    check: str
    level: Level
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightRules:
    """What is checked beyond what the service itself demands.

    :param max_recipients: more contacts in the target lists than this are an error.
    :param max_growth: more than so many times the contacts that the last campaign went to are an error.
    :param compare_with: part of the names of the campaigns of which the last one counts, for ``max_growth``.
    :param known_tags: the tags that the service can fill in, or a mapping with these as keys; others are an error.
        ``None``: tags are not checked.
    :param unsubscribe_pattern: regular expression that the content must match, else it is an error: there is no way
        out of the list. ``None``: not checked.
    :param max_content_bytes: a larger content is a warning: large mail programs cut off what is longer.
    :param max_attachment_bytes: a larger file is a warning: many mail servers refuse it.
    :raises MailValidationError: naming what is wrong.
    """

    max_recipients: int | None = None
    max_growth: float | None = None
    compare_with: str | None = None
    known_tags: Collection[str] | None = None
    unsubscribe_pattern: str | None = "(?i)unsubscri"
    max_content_bytes: int = 100_000
    max_attachment_bytes: int = 10_000_000

    def __post_init__(self) -> None:
        for name in ("max_recipients", "max_growth", "max_content_bytes", "max_attachment_bytes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise MailValidationError(f"{name}: must be more than 0")
        if isinstance(self.known_tags, str):
            raise MailValidationError("known_tags: a list of tags is needed, not text")
        if self.max_growth is not None and not self.compare_with:
            raise MailValidationError("compare_with: needed beside max_growth: part of the earlier campaigns' names")
        try:
            re.compile(self.unsubscribe_pattern or "")
        except re.error as error:
            raise MailValidationError(f"unsubscribe_pattern: {error}") from None


@dataclass(slots=True)
class Report:
    """What all checks found.

    :param findings: in the order of the checks.
    :param recipients: contacts in the target lists together; who is in two of them counts twice, who is excluded too.
        ``None`` where the service does not say.
    """

    findings: list[Finding] = field(default_factory=list)
    recipients: int | None = 0

    def note(self, check: str, level: Level, text: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(check, level, text))

    def count(self, level: Level) -> int:
        """How many findings have that level."""
        return sum(finding.level == level for finding in self.findings)

    def table(self) -> str:
        """The findings as a Markdown table, the worst first."""
        worst_first = sorted(self.findings, key=lambda finding: LEVELS.index(finding.level), reverse=True)
        cells = [("level", "check", "finding"), *((each.level, each.check, each.text) for each in worst_first)]
        # What the service says may hold anything; a row of the table is one line.
        rows = [[" ".join(cell.replace("|", "/").split()) for cell in row] for row in cells]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        rows.insert(1, ["-" * width for width in widths] + ["---"])
        return "\n".join(f"| {row[0]:{widths[0]}} | {row[1]:{widths[1]}} | {row[2]} |" for row in rows)


def preflight(
    request: CreateCampaign,
    rules: PreflightRules | None = None,
    *,
    ignore: Collection[str] = (),
    allow_past_send_date: bool = False,
    not_older_than: datetime | None = None,
    clock: ServiceClock | None = None,
) -> Flow[Report]:
    """Check a campaign as far as that can be done without creating it.

    :param request: the campaign.
    :param rules: further rules.
    :param ignore: fields that need not agree when a campaign of that name exists.
    :param allow_past_send_date: whether the campaign may be created although its send time lies in the past.
    :param not_older_than: a campaign of that name that went out before this moment would not be adopted.
    :param clock: the service's clock, such as ``client.service_clock``. Default: the local one.
    :raises MailError: when the service cannot be asked; a refusal of the campaign is a finding.
    :raises MailValidationError: when ``ignore`` names a field that is never compared.
    """
    if unknown := sorted(set(ignore) - COMPARED):
        raise MailValidationError(f"ignore: {', '.join(unknown)}: not among {', '.join(sorted(COMPARED))}")
    rules = rules or PreflightRules()
    report = Report()
    report.findings.append((yield from sender_finding(request.sender_mail)))
    yield from _lists(request, report)
    yield from _growth(request, rules, report)
    for finding in _content(request, rules):
        report.findings.append(finding)
    clock = ServiceClock() if clock is None else clock
    existing: Campaign | None = yield from find_campaign(request.mail_name)
    if existing is None:
        # What exists already is adopted or not, however late it is.
        _send_date(request, allow_past_send_date, clock, report)
        yield from _service(request, report)
    else:
        older = not_older_than is not None and is_older(existing, not_older_than, clock)
        _existing(request, existing, ignore, clock, report, older=older)
    return report


def sender_finding(sender_mail: str) -> Flow[Finding]:
    """Whether campaigns can be sent from an address: it or its domain is a verified marketing sender."""
    answer: GetSendersResponse = yield GetSenders()
    address = sender_mail.casefold()
    entries = [
        each
        for each in answer.mail_from_domains or []
        if each.from_domain.casefold() in (address, address.rpartition("@")[2])
    ]
    usable = [each for each in entries if each.sender_type in (None, MARKETING)]
    if not entries:
        return Finding("sender", "error", f"{sender_mail} is no sender of the account")
    if not usable:
        return Finding("sender", "error", f"{sender_mail} may send transactional mail only")
    if not any(each.is_validate == 1 for each in usable):
        return Finding("sender", "error", f"{sender_mail} is not verified: {_bad_checks(usable[0])}")
    return Finding("sender", "ok", f"{sender_mail} is verified")


def _bad_checks(sender: Sender) -> str:
    checks = {
        "MX": sender.mx_status,
        "SPF": sender.spf_status,
        "DKIM": sender.dkim_status,
        "DMARC": sender.dmarc_status,
    }
    bad = [name for name, status in checks.items() if status != 1]
    return f"look at its DNS entries for {', '.join(bad)}" if bad else "the service does not say why"


def _lists(request: CreateCampaign, report: Report) -> Flow[None]:
    for name in request.send_list_names or []:
        if (yield from find_list(name)) is None:
            report.note("lists", "error", f"there is no list {name!r}")
            continue
        page: ContactsPage = yield GetListContacts(list_name=name, page_size=1)
        total = page.total_records
        if total is None:
            report.recipients = None
            report.note("lists", "warning", f"the service does not say how many contacts {name!r} has")
            continue
        if report.recipients is not None:
            report.recipients += total
        if total:
            report.note("lists", "ok", f"{name!r} has {_contacts(total)}")
        else:
            report.note("lists", "error", f"{name!r} is empty")
    for name in request.repel_list_names or []:
        exists = (yield from find_list(name)) is not None
        report.note(
            "excluded lists",
            "ok" if exists else "error",
            f"{name!r} exists" if exists else f"there is no list {name!r}: nobody would be excluded",
        )


def _growth(request: CreateCampaign, rules: PreflightRules, report: Report) -> Flow[None]:
    recipients = report.recipients
    if rules.max_recipients is not None:
        _bound(report, "recipients", recipients, rules.max_recipients, f"max_recipients is {rules.max_recipients:,}")
    if rules.max_growth is None:
        return
    last = yield from _last_sent(rules.compare_with or "", request.mail_name)
    if last is None or last.mail_stats is None or not last.mail_stats.sent_count:
        report.note("growth", "warning", f"no campaign has gone out with {rules.compare_with!r} in its name")
        return
    sent = last.mail_stats.sent_count
    most = int(sent * rules.max_growth)
    _bound(report, "growth", recipients, most, f"{rules.max_growth:g} times the {sent:,} of {last.mail_name!r}")


def _bound(report: Report, check: str, recipients: int | None, most: int, words: str) -> None:
    if recipients is None:
        report.note(check, "error", f"the number of contacts is not known; {words}")
    else:
        over = recipients > most
        report.note(check, "error" if over else "ok", f"{_contacts(recipients)} in the target lists; {words}")


def _contacts(count: int) -> str:
    return "1 contact" if count == 1 else f"{count:,} contacts"


def _last_sent(part: str, but: str) -> Flow[Campaign | None]:
    pager: Pager[Campaign] = Pager(GetCampaigns(mail_name=part, mail_status=[MailStatus.COMPLETE], page_size=100))
    last: Campaign | None = None
    while pager.next_request is not None:
        page: Sequence[Campaign] = yield from next_page(pager)
        for each in page:
            sent_at = each.send_by_date_time
            if each.mail_name == but or sent_at is None or part not in each.mail_name:
                continue
            if last is None or last.send_by_date_time is None or sent_at > last.send_by_date_time:
                last = each
    return last


def _content(request: CreateCampaign, rules: PreflightRules) -> Iterator[Finding]:
    content = request.content or ""
    if request.attachment is not None:
        size = len(base64.b64decode(request.attachment.file_data))
        yield _size("attachment", size, rules.max_attachment_bytes)
    if not request.subject:
        yield Finding("subject", "warning", "there is none")
    if not content:
        yield Finding("content", "error", "there is none")
        return
    yield _size("content", len(content.encode()), rules.max_content_bytes)
    if rules.unsubscribe_pattern is not None:
        found = re.search(rules.unsubscribe_pattern, content) is not None
        yield Finding(
            "unsubscribe",
            "ok" if found else "error",
            "the content has a way out" if found else f"nothing in the content matches {rules.unsubscribe_pattern!r}",
        )
    if rules.known_tags is not None:
        tags = tags_of(request.subject, content)
        unknown = [tag for tag in tags if tag not in rules.known_tags]
        yield Finding(
            "tags",
            "error" if unknown else "ok",
            f"nothing is known to fill in {', '.join(unknown)}" if unknown else f"{len(tags)} tags, all known",
        )


def _size(what: str, size: int, most: int) -> Finding:
    more = f", more than {most:,}" if size > most else ""
    return Finding("size", "warning" if more else "ok", f"the {what} has {size:,} bytes{more}")


def _send_date(request: CreateCampaign, allow_past: bool, clock: ServiceClock, report: Report) -> None:
    if request.send_date is None:
        return
    moment = f"{request.send_date:%Y-%m-%dT%H:%M:%SZ}"
    late = lateness(request.send_date, clock.now())
    if late is None:
        report.note("send_date", "ok", f"{moment} does not lie in the past")
    elif request.only_save:
        report.note("send_date", "warning", f"{moment} lies {late} in the past; a draft is not sent")
    elif allow_past:
        report.note("send_date", "warning", f"{moment} lies {late} in the past: it would be sent at once")
    else:
        report.note("send_date", "error", f"{moment} lies {late} in the past: it would not be created")


def _service(request: CreateCampaign, report: Report) -> Flow[None]:
    try:
        yield request.model_copy(update={"sandbox_mode": True})
    except (MailRejectedError, MailServerError) as refusal:
        if not isinstance(refusal, MailRejectedError) and refusal.code != 500:
            raise
        # Code 500 is the document's "task check failed", too.
        said = refusal.service_message or f"code {refusal.code}"
        report.note("service", "error", said)
    else:
        report.note("service", "ok", "the service would create it")


def _existing(
    request: CreateCampaign,
    existing: Campaign,
    ignore: Collection[str],
    clock: ServiceClock,
    report: Report,
    *,
    older: bool,
) -> None:
    """The service would refuse the name; whether the campaign would be adopted is another question."""
    there = f"{request.mail_name!r} exists (mailStatus {existing.mail_status})"
    different = [name for name in differences(request, existing, latest(clock)) if name not in ignore]
    if existing.mail_status == MailStatus.FAILED:
        report.note("name", "error", f"{there}: it failed, and would not be sent again")
    elif different:
        report.note("name", "error", f"{there} and differs in {', '.join(different)}: it would not be adopted")
    elif older:
        text = f"{there}, is equal and went out before this run: it would not be adopted, and nobody mailed"
        report.note("name", "error", text)
    else:
        report.note("name", "warning", f"{there} and is equal: it would be adopted, and nobody mailed again")
