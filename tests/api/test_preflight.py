"""Everything that can be wrong with a campaign is found before it is created, and nothing changes.

A send time in the past is an error before anything is sent, unless it is allowed or the campaign exists.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import CreateCampaign
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailAuthError, MailValidationError
from airflow_provider_mail.api.flows.campaign_checks import TOLERANCE, lateness
from airflow_provider_mail.api.flows.create_campaign import create_campaign
from airflow_provider_mail.api.flows.preflight import PreflightRules, Report, preflight
from mail_emulator import Emulator

pytestmark = pytest.mark.usefixtures("clock")

GOOD: dict[str, Any] = {
    "mail_name": "news 2", "sender_mail": "news@shop.example.com", "subject": "Hello {{name}}",
    "content": "<p>News for {{ name }} { {e} }. <a href='{{link}}'>Unsubscribe</a></p>",
    "send_list_names": ["customers", "friends"], "repel_list_names": ["opted out"],
}  # fmt: skip


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    for name, count in (("customers", 30), ("friends", 12), ("empty", 0), ("opted out", 0)):
        emulator.add_list(name, count=count)
    for domain, kind in (("shop", 1), ("bills", 2), ("late", 1)):
        emulator.add_sender(f"{domain}.example.com", types=[kind], verified=domain != "late")
    emulator.add_list("few", PEOPLE)
    emulator.set_dns("late.example.com", spf=False, dmarc=False)
    for day, (name, sent) in enumerate([("news 0", 500), ("news 1", 20), ("other", 900), ("NEWS", 700)], 1):
        emulator.add_campaign(name, state="done", sent=sent, send_date=f"2026-01-0{day}T00:00:00Z")
    return emulator


def report(client: MailClient, *, rules: dict[str, Any] | None = None, **fields: Any) -> Report:
    return preflight(
        client, CreateCampaign(**GOOD | fields), PreflightRules(**{"known_tags": ["name", "link"]} | (rules or {}))
    )


def found(report: Report, level: str) -> list[tuple[str, str]]:
    return [(finding.check, finding.text) for finding in report.findings if finding.level == level]


def sender(domain: str) -> dict[str, str]:
    return {"sender_mail": f"news@{domain}.example.com"}


UNVERIFIED = "is not verified: check its DNS entries for SPF, DMARC"
NO_LIST = "there is no list"
NO_WORD = "no word for unsubscribing was found; if yours is another, set unsubscribe_pattern"
COUNT, NEWS = "42 contacts in the target lists", {"compare_with": "news"}
FILE = {"attachment": {"file_name": "a.txt", "file_data": "QUJDRA=="}}


def test_nothing_is_wrong(service: Emulator, client: MailClient) -> None:
    good = report(client, rules={"max_recipients": 42, "max_growth": 2.1, "compare_with": "news"})
    assert found(good, "error") == found(good, "warning") == []
    assert good.recipients == 42
    assert ("recipients", f"{COUNT}; max_recipients is 42") in found(good, "ok")
    assert service.campaigns("news 2") == []
    reads = {"verified_senders/get", "lists/get", "contacts/list/get", "campaign/mail/get", "campaign/mail/sends"}
    assert {entry["operation"] for entry in service.journal.processed()} <= {f"/v5/{path}" for path in reads}
    assert service.journal.entries("campaign/mail/sends")[0]["body"]["sandboxMode"] is True


@pytest.mark.parametrize(
    ("fields", "rules", "level", "check", "text"),
    [
        ({"sender_mail": "a@else.example"}, {}, "error", "sender", "a@else.example is not a sender of the account"),
        (sender("late"), {}, "error", "sender", f"news@late.example.com {UNVERIFIED}"),
        (sender("bills"), {}, "error", "sender", "news@bills.example.com may send transactional mail only"),
        ({"send_list_names": ["none"]}, {}, "error", "lists", f"{NO_LIST} 'none'"),
        ({"send_list_names": ["empty"]}, {}, "error", "lists", "'empty' is empty"),
        ({"repel_list_names": ["x"]}, {}, "error", "excluded lists", f"{NO_LIST} 'x': no contact would be excluded"),
        ({}, {"max_recipients": 41}, "error", "recipients", f"{COUNT}; max_recipients is 41"),
        ({}, NEWS | {"max_growth": 2}, "error", "growth", f"{COUNT}; 2 times the 20 of 'news 1'"),
        ({}, {"max_growth": 2, "compare_with": "x"}, "warning", "growth", "no campaign with 'x' in its name was sent"),
        ({"content": "<p>News</p>"}, {}, "error", "unsubscribe", NO_WORD),
        ({}, {"known_tags": ["name"]}, "error", "tags", "unknown tags: link"),
        ({}, {"known_tags": ["name"], "service_tags": ["Link"]}, "error", "tags", "unknown tags: link"),
        ({"content": None}, {}, "error", "content", "there is none"),
        ({"content": "<p>&nbsp;</p>"}, {}, "error", "content", "shows nothing"),
        ({"subject": None}, {}, "error", "subject", "there is none"),
        ({"subject": "\u200b "}, {}, "error", "subject", "is blank"),
        ({}, {"template_name": "none"}, "error", "template", "there is no template 'none'"),
        (FILE, {"max_attachment_bytes": 3}, "warning", "size", "the attachment has 4 bytes, more than 3"),
        ({"content": "x" * 100_012}, {}, "warning", "size", "the content has 100,012 bytes, more than 100,000"),
    ],
)  # fmt: skip
def test_a_finding(
    service: Emulator, client: MailClient, fields: Any, rules: Any, level: str, check: str, text: str
) -> None:
    assert (check, text) in found(report(client, rules=rules, **fields), level)


def test_unsubscribing_in_the_languages_of_the_service(service: Emulator, client: MailClient) -> None:
    for words in (
        "Opt out", "Newsletter ABBESTELLEN", "Se d&eacute;sabonner", "Darse de baja", "Descadastre-se",
        "Berhenti berlangganan", "Hủy đăng ký", "Язылудан баш тарту", "退订", "取消訂閱", "配信停止はこちら",
        "수신거부", "ยกเลิกการสมัคร", "إلغاء الاشتراك",
    ):  # fmt: skip
        good = report(client, content=f"<p>News for you</p><a href='https://example.com/x'>{words}</a>")
        assert ("unsubscribe", "the content has an unsubscribe link") in found(good, "ok"), words


def test_what_the_service_and_the_rules_say(service: Emulator, client: MailClient) -> None:
    service.faults.add("code_before", "campaign/mail/sends", code=403, message="no credits", http_status=200)
    assert found(report(client), "error") == [("service", "no credits")]
    service.faults.add("code_before", "campaign/mail/sends", code=401, message="no", http_status=401)
    with pytest.raises(MailAuthError):
        report(client)
    service.journal.clear()
    for rules, named in (({"max_growth": 1.5}, "compare_with"), ({"unsubscribe_pattern": "("}, "unsubscribe_pattern")):
        with pytest.raises(MailValidationError, match=named):
            report(client, rules=rules)
    assert service.journal.count() == 0


ADOPTED = " and is equal: it would be adopted, and not sent again"


@pytest.mark.parametrize(
    ("there", "ignore", "level", "text"),
    [
        ({}, (), "warning", f"1){ADOPTED}"),
        ({"subject": "Hi"}, (), "error", "1) and differs in subject: it would not be adopted"),
        ({"subject": "Hi"}, ("subject",), "warning", f"1){ADOPTED}"),
        ({"only_save": True}, (), "error", "-1) and differs in only_save: it would not be adopted"),
        ({"state": "failed"}, (), "error", "4): it failed and would not be sent again"),
    ],
)
def test_a_name_that_is_taken(
    service: Emulator, client: MailClient, there: Any, ignore: tuple[str, ...], level: str, text: str
) -> None:
    if "state" in there:
        service.add_campaign("news 2", **there)
    else:
        client.send(CreateCampaign(**GOOD | there))
    service.journal.clear()
    findings = preflight(client, CreateCampaign(**GOOD), ignore=ignore).findings
    (finding,) = [each for each in findings if each.check == "name"]
    assert (finding.level, finding.text) == (level, f"'news 2' exists (mailStatus {text}")
    assert service.journal.count("campaign/mail/sends") == 0


@pytest.mark.parametrize("older", [False, True])
def test_a_campaign_of_an_earlier_run(older: bool, service: Emulator, client: MailClient) -> None:
    client.send(CreateCampaign(**GOOD))
    service.clock.advance(7 * 86_400)
    run = datetime.now(UTC) - timedelta(days=0 if older else 14)
    findings = preflight(client, CreateCampaign(**GOOD), not_older_than=run).findings
    (name,) = [each for each in findings if each.check == "name"]
    older_text, own_text = (
        "was sent before this run: it would not be adopted",
        "only the task that created it would adopt",
    )
    assert (name.level, older_text in name.text) == ("error" if older else "warning", older)
    assert (own_text in name.text) != older


def test_a_list_whose_size_is_not_shown(service: Emulator, client: MailClient) -> None:
    service.faults.add("wrong_total", "contacts/list/get", by=None)
    unknown = report(client, rules={"max_recipients": 100})
    assert unknown.recipients is None
    assert found(unknown, "warning") == [("lists", "the service does not report how many contacts 'customers' has")]
    assert ("lists", "'friends' has 12 contacts") in found(unknown, "ok")
    assert found(unknown, "error") == [("recipients", "the number of contacts is unknown; max_recipients is 100")]


def test_the_table_has_the_worst_first_a_line_each(service: Emulator, client: MailClient) -> None:
    service.faults.add("code_before", "campaign/mail/sends", code=403, message="no\n| credits |", http_status=200)
    lines = report(client, send_list_names=["a|b", "customers"]).table().splitlines()
    assert lines[:4] == [
        "| level | check          | finding |",
        "| ----- | -------------- | --- |",
        "| error | lists          | there is no list 'a/b' |",
        "| error | service        | no / credits / |",
    ]


# The send time.

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
A_DAY, A_YEAR = timedelta(days=1), timedelta(days=365)

PEOPLE = [f"a{number}@example.com" for number in range(2)]


def dated(send_date: datetime | None, **fields: Any) -> CreateCampaign:
    return CreateCampaign(**GOOD | {"send_date": send_date, "send_list_names": ["few"]} | fields)


def create(client: MailClient, request: CreateCampaign, **options: Any) -> Any:
    return create_campaign(client, request, **options)


@given(st.timedeltas(timedelta(days=-400), timedelta(days=400)))
def test_what_is_late(late: timedelta) -> None:
    shown = lateness(NOW, NOW + late)
    assert (shown is not None) == (late > TOLERANCE)
    assert shown is None or timedelta() <= late - shown < timedelta(seconds=1)
    assert lateness(None, NOW + late) is None


@pytest.mark.parametrize("late", [timedelta(days=365), TOLERANCE + timedelta(seconds=30)])
def test_nothing_is_sent_too_late(late: timedelta, service: Emulator, client: MailClient) -> None:
    request = dated(datetime.now(UTC) - late)
    with pytest.raises(
        MailValidationError, match=r"send_date: .* in the past: .*Nothing was sent. .* allow_past_send_date=True"
    ):
        create(client, request)
    assert service.journal.count("campaign/mail/sends") == 0
    assert not create(client, request, allow_past_send_date=True).adopted
    assert service.campaign_recipients("news 2") == PEOPLE


@pytest.mark.parametrize("days", [-2, 2])
def test_the_service_s_time_counts(days: int, service: Emulator, client: MailClient) -> None:
    service.clock.advance(days * 86_400)
    request = dated(datetime.now(UTC) + timedelta(days=days / 2))
    if days > 0:
        with pytest.raises(MailValidationError, match=r"1 day, [0-9]+:"):
            create(client, request)
    else:
        create(client, request)
    assert [held["state"] for held in service.campaigns("news 2")] == ["scheduled"] * (days < 0)


@pytest.mark.parametrize(
    ("age", "fields", "allowed", "level", "text"),
    [
        (None, {}, False, None, ""),  # it is sent now
        (-A_DAY, {}, False, "ok", "does not lie in the past"),
        (A_YEAR, {}, False, "error", "lies 365 days, [0-9:]+ in the past: it would not be created"),
        (A_YEAR, {}, True, "warning", "in the past: it would be sent at once"),
        (A_YEAR, {"only_save": True}, False, "warning", "in the past; a draft is not sent"),
    ],
)
def test_preflight_sees_it(
    service: Emulator, client: MailClient, age: timedelta | None, fields: Any, allowed: bool, level: Any, text: str
) -> None:
    send_date = None if age is None else datetime.now(UTC) - age
    findings = preflight(client, dated(send_date, **fields), allow_past_send_date=allowed).findings
    found = [finding for finding in findings if finding.check == "send_date"]
    assert [finding.level for finding in found] == ([level] if level else [])
    assert all(re.search(text, finding.text) for finding in found)
    if fields:
        create(client, dated(send_date, **fields))
        assert service.campaigns("news 2")[0]["state"] == "draft"
