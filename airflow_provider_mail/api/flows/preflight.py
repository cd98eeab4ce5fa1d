"""Check a campaign before it is created. All requests only read; nothing is changed."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from html import unescape
from operator import itemgetter
from typing import Literal

from airflow_provider_mail.api._core.fields import address_key, is_blank, is_blank_html, tags_of
from airflow_provider_mail.api._core.pacing import ServiceClock
from airflow_provider_mail.api._core.pagination import all_records
from airflow_provider_mail.api._core.requests import Client
from airflow_provider_mail.api.campaigns import Campaign, CreateCampaign, GetCampaigns, MailStatus, find_campaign
from airflow_provider_mail.api.contacts import ContactsPage, GetListContacts
from airflow_provider_mail.api.errors import MailRejectedError, MailServerError, MailValidationError
from airflow_provider_mail.api.flows.campaign_checks import (
    CampaignCaps,
    differences,
    excess,
    is_older,
    lateness,
)
from airflow_provider_mail.api.lists import find_list
from airflow_provider_mail.api.senders import GetSenders, GetSendersResponse, checks_of, failed_checks
from airflow_provider_mail.api.templates import Template, find_template

MARKETING = 1

CONTACT_TAGS = ("email", "name", "phoneNumber")
"""The properties of contacts that the specification names."""

Level = Literal["ok", "warning", "error"]

LEVELS: tuple[Level, ...] = ("ok", "warning", "error")
"""From best to worst."""


AUTO = "auto"
UNSUBSCRIBE = re.compile(
    "unsubscri|opt[ -]?out"  # en
    "|abmeld|abbestell|austragen"  # de
    "|désabonn|désinscri"  # fr
    "|darse de baja|darme de baja|dar de baja|cancelar (?:la |mi )?suscripci|anular (?:la |mi )?suscripci"  # es
    "|descadastr|cancelar (?:a |minha )?(?:inscri|assinatura)"  # pt-br
    "|berhenti berlangganan"  # id
    "|h[ủu][ỷy] đăng ký"  # vi
    "|язылудан|отписаться|отказаться от рассылки"  # tt, and Russian, which is written beside it
    "|退订|取消订阅|退訂|取消訂閱"  # zh-cn, zh-tw
    "|配信停止|配信を停止|登録解除|購読解除|購読を解除"  # ja
    "|수신거부|수신 거부|구독취소|구독 취소|구독해지|구독 해지"  # ko
    "|ยกเลิกการสมัคร|ยกเลิกการรับ|เลิกติดตาม"  # th
    "|إلغاء الاشتراك|الغاء الاشتراك",  # ar
    re.IGNORECASE,
)
"""Words for unsubscribing, in the languages that the specification names for ``languageCode``."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    :param level: ``ok``, ``warning`` (should be reviewed) or ``error`` (the campaign should not be sent).
    """

    check: str
    level: Level
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightRules:
    """The rules to check in addition to the service's own.

    :param max_recipients: more contacts than this in the target lists are an error. Default: no limit.
    :param max_growth: more contacts than this many times the recipients of the previous campaign are an error. Default:
        no limit.
    :param compare_with: part of the name of the previous campaign; needed with ``max_growth``.
    :param known_tags: the tags that the service can fill in, or a mapping with these as keys; other tags are an error.
        ``None``: tags that are not known to be properties of contacts are a warning.
    :param service_tags: further tags that the service fills in. Default: none.
    :param template_name: a stored template to check as well. Default: none.
    :param allow_blank: whether a missing or blank subject or content is a warning. Default: false, an error.
    :param unsubscribe_pattern: regular expression for the unsubscribe link; content without a match is an error.
        ``auto``: the usual words for it in the service's languages.
        ``None``: not checked.
    :param max_content_bytes: larger content is a warning: common mail clients cut it off.
    :param max_attachment_bytes: a larger file is a warning: many mail servers reject it.
    :raises MailValidationError: naming the wrong field.
    """

    max_recipients: int | None = None
    max_growth: float | None = None
    compare_with: str | None = None
    known_tags: Collection[str] | None = None
    service_tags: Collection[str] = ()
    template_name: str | None = None
    allow_blank: bool = False
    unsubscribe_pattern: str | None = AUTO
    max_content_bytes: int = 100_000
    max_attachment_bytes: int = 10_000_000

    def __post_init__(self) -> None:
        if self.max_growth is not None and not self.compare_with:
            raise MailValidationError("compare_with: needed beside max_growth: part of the earlier campaigns' names")
        try:
            re.compile(self.unsubscribe_pattern or "")
        except re.error as error:
            raise MailValidationError(f"unsubscribe_pattern: {error}") from None


@dataclass(slots=True)
class Report:
    """The results of all checks.

    :param recipients: the sum of the contacts in the target lists, including excluded ones; contacts in two lists count
        twice. ``None`` if the service does not report it.
    """

    findings: list[Finding] = field(default_factory=list)
    recipients: int | None = 0

    def note(self, check: str, level: Level, text: str) -> None:
        self.findings.append(Finding(check, level, text))

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    def table(self) -> str:
        """Return the findings as a Markdown table, the worst first."""
        worst_first = sorted(self.findings, key=lambda finding: LEVELS.index(finding.level), reverse=True)
        cells = [("level", "check", "finding")]
        cells += [(finding.level, finding.check, finding.text) for finding in worst_first]
        # The service's message may contain anything; a row of the table is one line.
        rows = [[" ".join(cell.replace("|", "/").split()) for cell in row] for row in cells]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        rows.insert(1, ["-" * width for width in widths] + ["---"])
        return "\n".join(f"| {row[0]:{widths[0]}} | {row[1]:{widths[1]}} | {row[2]} |" for row in rows)


def preflight(
    client: Client,
    request: CreateCampaign,
    rules: PreflightRules | None = None,
    *,
    ignore: Collection[str] = (),
    allow_past_send_date: bool = False,
    not_older_than: datetime | None = None,
    caps: CampaignCaps | None = None,
    list_problem: Callable[[Client], str] = lambda client: "",
) -> Report:
    """Check a campaign as far as possible without creating it.

    :param rules: further rules. Default: the defaults of :class:`PreflightRules`.
    :param ignore: fields that may differ if a campaign of that name exists.
    :param allow_past_send_date: whether the campaign may be created although its send time has passed.
    :param not_older_than: a campaign of that name that was sent before this moment would not be adopted, and any other
        only by the task that created it. Default: any campaign would be adopted.
    :param caps: the limits of its day. Default: no limits.
    :param list_problem: returns what is wrong with the lists of an audience. Default: nothing.
    :raises MailError: a request failed; a rejection of the campaign is a finding.
    """
    rules = rules or PreflightRules()
    report = Report()
    report.findings.append(sender_finding(client, request.sender_mail))
    known = {*CONTACT_TAGS, *rules.service_tags}
    if problem := list_problem(client):
        report.note("lists", "error", problem)
    _lists(client, request, report, known)
    _growth(client, request, rules, report)
    report.findings.extend(_content(request, rules, known))
    if rules.template_name:
        report.findings.extend(_template(rules, find_template(client, rules.template_name), known))
    clock = client.service_clock
    existing: Campaign | None = find_campaign(client, request.mail_name)
    if existing is None:
        # The send time does not matter for an existing campaign.
        _send_date(request, allow_past_send_date, clock, report)
        for problem in excess(client, request, caps or CampaignCaps()):
            report.note("caps", "error", problem)
        _service(client, request, report)
    else:
        _existing(request, existing, ignore, clock, report, not_older_than)
    return report


def sender_finding(client: Client, sender_mail: str) -> Finding:
    """Check whether an address or its domain is a verified marketing sender."""
    response: GetSendersResponse = client.send(GetSenders())
    address = address_key(sender_mail)
    entries = [
        entry
        for entry in response.mail_from_domains or []
        if address_key(entry.from_domain) in (address, address.rpartition("@")[2])
    ]
    usable = [entry for entry in entries if entry.sender_type in (None, MARKETING)]
    if not entries:
        return Finding("sender", "error", f"{sender_mail} is not a sender of the account")
    if not usable:
        return Finding("sender", "error", f"{sender_mail} may send transactional mail only")
    if not any(entry.is_validate == 1 for entry in usable):
        failed = failed_checks(checks_of(usable[0]) or {})
        reason = f"check its DNS entries for {failed}" if failed else "the service gives no reason"
        return Finding("sender", "error", f"{sender_mail} is not verified: {reason}")
    return Finding("sender", "ok", f"{sender_mail} is verified")


def _lists(client: Client, request: CreateCampaign, report: Report, known_tags: set[str]) -> None:
    """Check the lists; add the properties of one contact of each list to ``known_tags``."""
    for name in request.send_list_names or []:
        if find_list(client, name) is None:
            report.note("lists", "error", f"there is no list {name!r}")
            continue
        page: ContactsPage = client.send(GetListContacts(list_name=name, page_size=1))
        known_tags.update(*(contact.properties or () for contact in page.records))
        total = page.total_records
        if total is None:
            report.recipients = None
            report.note("lists", "warning", f"the service does not report how many contacts {name!r} has")
            continue
        if report.recipients is not None:
            report.recipients += total
        if total:
            report.note("lists", "ok", f"{name!r} has {_contacts(total)}")
        else:
            report.note("lists", "error", f"{name!r} is empty")
    for name in request.repel_list_names or []:
        if find_list(client, name) is None:
            report.note("excluded lists", "error", f"there is no list {name!r}: no contact would be excluded")
        else:
            report.note("excluded lists", "ok", f"{name!r} exists")


def _growth(client: Client, request: CreateCampaign, rules: PreflightRules, report: Report) -> None:
    recipients = report.recipients
    if rules.max_recipients is not None:
        _bound(report, "recipients", recipients, rules.max_recipients, f"max_recipients is {rules.max_recipients:,}")
    if rules.max_growth is None:
        return
    last = _last_sent(client, rules.compare_with or "", request.mail_name)
    if last is None or last.mail_stats is None or not last.mail_stats.sent_count:
        report.note("growth", "warning", f"no campaign with {rules.compare_with!r} in its name was sent")
        return
    sent = last.mail_stats.sent_count
    limit = int(sent * rules.max_growth)
    _bound(report, "growth", recipients, limit, f"{rules.max_growth:g} times the {sent:,} of {last.mail_name!r}")


def _bound(report: Report, check: str, recipients: int | None, limit: int, rule: str) -> None:
    counted = (
        "the number of contacts is unknown" if recipients is None else f"{_contacts(recipients)} in the target lists"
    )
    report.note(check, "error" if recipients is None or recipients > limit else "ok", f"{counted}; {rule}")


def _contacts(count: int) -> str:
    return "1 contact" if count == 1 else f"{count:,} contacts"


def _last_sent(client: Client, part: str, excluded_name: str) -> Campaign | None:
    request = GetCampaigns(mail_name=part, mail_status=[MailStatus.COMPLETE], page_size=100)
    sent = [
        (campaign.send_by_date_time, campaign)
        for campaign in all_records(client, request)
        if campaign.mail_name != excluded_name and campaign.send_by_date_time and part in campaign.mail_name
    ]
    return max(sent, key=itemgetter(0))[1] if sent else None


def _content(request: CreateCampaign, rules: PreflightRules, known_tags: Collection[str]) -> Iterator[Finding]:
    content = request.content or ""
    if request.attachment is not None:
        size = len(base64.b64decode(request.attachment.file_data))
        yield _size("attachment", size, rules.max_attachment_bytes)
    blank: Level = "warning" if rules.allow_blank or request.only_save else "error"
    if is_blank(request.subject or ""):
        yield Finding("subject", blank, "is blank" if request.subject else "there is none")
    if is_blank_html(content):
        yield Finding("content", blank, "shows nothing" if content else "there is none")
    if not content:
        return
    yield _size("content", len(content.encode()), rules.max_content_bytes)
    if rules.unsubscribe_pattern is not None:
        auto = rules.unsubscribe_pattern == AUTO
        if re.search(UNSUBSCRIBE if auto else rules.unsubscribe_pattern, unescape(content)):
            yield Finding("unsubscribe", "ok", "the content has an unsubscribe link")
        elif auto:
            problem = "no word for unsubscribing was found; if yours is another, set unsubscribe_pattern"
            yield Finding("unsubscribe", "error", problem)
        else:
            yield Finding("unsubscribe", "error", f"nothing in the content matches {rules.unsubscribe_pattern!r}")
    yield from _tags("tags", rules, known_tags, request.subject, content)


def _template(rules: PreflightRules, template: Template | None, known_tags: Collection[str]) -> Iterator[Finding]:
    if template is None:
        yield Finding("template", "error", f"there is no template {rules.template_name!r}")
        return
    content = template.template_content
    if content is not None and is_blank_html(content):
        yield Finding("template", "warning" if rules.allow_blank else "error", "its content shows nothing")
    yield from _tags("template", rules, known_tags, template.template_subject, content)


def _tags(check: str, rules: PreflightRules, known_tags: Collection[str], *texts: str | None) -> Iterator[Finding]:
    tags = tags_of(*texts)
    known = known_tags if rules.known_tags is None else {*rules.known_tags, *rules.service_tags}
    unknown = ", ".join(tag for tag in tags if tag not in known)
    if not unknown:
        yield Finding(check, "ok", f"{len(tags)} tags, all known")
    elif rules.known_tags is not None:
        yield Finding(check, "error", f"unknown tags: {unknown}")
    else:
        yield Finding(check, "warning", f"tags that may have no value: {unknown}; known_tags names those that have one")


def _size(checked: str, size: int, limit: int) -> Finding:
    excess = f", more than {limit:,}" if size > limit else ""
    return Finding("size", "warning" if excess else "ok", f"the {checked} has {size:,} bytes{excess}")


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


def _service(client: Client, request: CreateCampaign, report: Report) -> None:
    try:
        client.send(request.model_copy(update={"sandbox_mode": True}))
    except (MailRejectedError, MailServerError) as error:
        if not isinstance(error, MailRejectedError) and error.code != 500:
            raise
        # In the specification, code 500 also means "task check failed".
        report.note("service", "error", error.service_message or f"code {error.code}")
    else:
        report.note("service", "ok", "the service would create it")


def _existing(
    request: CreateCampaign,
    existing: Campaign,
    ignore: Collection[str],
    clock: ServiceClock,
    report: Report,
    not_older_than: datetime | None,
) -> None:
    exists = f"{request.mail_name!r} exists (mailStatus {existing.mail_status})"
    different = [name for name in differences(request, existing, clock.latest()) if name not in ignore]
    if existing.mail_status == MailStatus.FAILED:
        report.note("name", "error", f"{exists}: it failed and would not be sent again")
    elif different:
        report.note("name", "error", f"{exists} and differs in {', '.join(different)}: it would not be adopted")
    elif not_older_than is not None and is_older(existing, not_older_than, clock):
        text = f"{exists}, is equal and was sent before this run: it would not be adopted, and nothing sent"
        report.note("name", "error", text)
    else:
        adopted_by = "it would be adopted" if not_older_than is None else "only the task that created it would adopt it"
        report.note("name", "warning", f"{exists} and is equal: {adopted_by}, and not sent again")
