"""Everything that can be wrong with a campaign is found before it is created, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import CreateCampaign
from airflow_provider_mail.api.errors import MailAuthError, MailValidationError
from airflow_provider_mail.api.preflight import PreflightRules, Report, preflight
from airflow_provider_mail.api.tags import fill, tags_of
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver

GOOD: dict[str, Any] = {
    "mail_name": "news 2",
    "sender_mail": "news@shop.example.com",
    "subject": "Hello {{name}}",
    "content": "<p>News for {{ name }}. <a href='{{link}}'>Unsubscribe</a></p>",
    "send_list_names": ["customers", "friends"],
    "repel_list_names": ["opted out"],
}


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("customers", count=30)
    emulator.add_list("friends", count=12)
    emulator.add_list("empty")
    emulator.add_list("opted out")
    emulator.add_sender("shop.example.com", types=[1])
    return emulator


def report(client: Driver, *, rules: dict[str, Any] | None = None, **fields: Any) -> Report:
    return client.run(preflight(CreateCampaign(**GOOD | fields), PreflightRules(**rules or {})))


def found(report: Report, level: str) -> list[tuple[str, str]]:
    return [(finding.check, finding.text) for finding in report.findings if finding.level == level]


def test_nothing_is_wrong(service: Emulator, client: Driver) -> None:
    good = report(client, rules={"known_tags": ["name", "link"], "max_recipients": 42})
    assert found(good, "error") == found(good, "warning") == []
    assert good.recipients == 42
    assert ("recipients", "42 contacts in the target lists; max_recipients is 42") in found(good, "ok")
    assert service.campaigns() == []
    assert {entry["operation"] for entry in service.journal.processed()} <= {
        "/v5/verified_senders/get",
        "/v5/lists/get",
        "/v5/contacts/list/get",
        "/v5/campaign/mail/get",
        "/v5/campaign/mail/sends",
    }
    assert service.journal.entries("campaign/mail/sends")[0]["body"]["sandboxMode"] is True


@pytest.mark.parametrize(
    ("fields", "rules", "check", "text"),
    [
        ({"sender_mail": "a@else.example"}, {}, "sender", "a@else.example is no sender of the account"),
        ({"send_list_names": ["nobody"]}, {}, "lists", "there is no list 'nobody'"),
        ({"send_list_names": ["empty"]}, {}, "lists", "'empty' is empty"),
        (
            {"repel_list_names": ["custom"]},
            {},
            "excluded lists",
            "there is no list 'custom': nobody would be excluded",
        ),
        ({}, {"max_recipients": 41}, "recipients", "42 contacts in the target lists; max_recipients is 41"),
        ({"content": "<p>News</p>"}, {}, "unsubscribe", "nothing in the content matches '(?i)unsubscri'"),
        ({}, {"known_tags": ["name"]}, "tags", "nothing is known to fill in link"),
        ({"content": None}, {}, "content", "there is none"),
    ],
)
def test_an_error(
    service: Emulator,
    client: Driver,
    fields: dict[str, Any],
    rules: dict[str, Any],
    check: str,
    text: str,
) -> None:
    assert (check, text) in found(report(client, rules=rules, **fields), "error")


def test_a_sender_that_is_not_verified(service: Emulator, client: Driver) -> None:
    service.add_sender("late.example.com", types=[1], verified=False)
    service.set_dns("late.example.com", spf=False, dmarc=False)
    bad = found(report(client, sender_mail="news@late.example.com"), "error")
    assert ("sender", "news@late.example.com is not verified: look at its DNS entries for SPF, DMARC") in bad


def test_a_sender_of_the_other_kind(service: Emulator, client: Driver) -> None:
    service.add_sender("bills.example.com", types=[2])
    bad = found(report(client, sender_mail="news@bills.example.com"), "error")
    assert ("sender", "news@bills.example.com may send transactional mail only") in bad


def test_more_than_last_time(service: Emulator, client: Driver) -> None:
    rules = {"max_growth": 2, "compare_with": "news"}
    first = found(report(client, rules=rules), "warning")
    assert first == [("growth", "no campaign has gone out with 'news' in its name")]
    service.add_campaign("news 0", state="done", sent=500, send_date="2026-01-01T00:00:00Z")
    service.add_campaign("news 1", state="done", sent=20, send_date="2026-01-08T00:00:00Z")
    service.add_campaign("other", state="done", sent=900, send_date="2026-01-09T00:00:00Z")
    text = "42 contacts in the target lists; 2 times the 20 of 'news 1'"
    assert found(report(client, rules=rules), "error") == [("growth", text)]
    assert found(report(client, rules=rules | {"max_growth": 2.1}), "error") == []


def test_what_the_service_itself_says(service: Emulator, client: Driver) -> None:
    service.faults.add("code_before", "campaign/mail/sends", code=403, message="no credits", http_status=200)
    assert found(report(client), "error") == [("service's own check", "no credits")]
    service.faults.add("code_before", "campaign/mail/sends", code=401, message="no", http_status=401)
    with pytest.raises(MailAuthError):
        report(client)


def test_a_name_that_is_taken(service: Emulator, client: Driver) -> None:
    service.add_campaign("news 2", state="draft")
    taken = report(client)
    assert found(taken, "warning") == [("name", "'news 2' exists (mailStatus -1): it would be adopted")]
    assert service.journal.count("campaign/mail/sends") == 0


def test_large_content(service: Emulator, client: Driver) -> None:
    large = report(client, content=f"unsubscribe {'x' * 100_000}")
    assert found(large, "warning") == [("size", "the content has 100,012 bytes, more than 100,000")]


def test_the_table_has_the_worst_first(service: Emulator, client: Driver) -> None:
    lines = report(client, send_list_names=["a|b", "customers"]).table().splitlines()
    assert lines[:3] == ["|  | check | finding |", "| --- | --- | --- |", "| error | lists | there is no list 'a/b' |"]


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"max_recipients": 0}, "max_recipients"),
        ({"max_growth": -1, "compare_with": "a"}, "max_growth"),
        ({"max_growth": 1.5}, "compare_with"),
        ({"unsubscribe_pattern": "("}, "unsubscribe_pattern"),
    ],
)
def test_rules_that_are_none(rules: dict[str, Any], named: str) -> None:
    with pytest.raises(MailValidationError, match=named):
        PreflightRules(**rules)


def test_tags() -> None:
    assert tags_of("{{a}} {{ b }}", None, "{{a}}{{c d}}{ {e} }") == ["a", "b", "c d"]
    assert fill("{{a}} {{ b }} {{c}}", {"a": 1, "b": "{{a}}"}) == "1 {{a}} {{c}}"
