"""Every limit of the specification at its edge, every form of its values; and our own rules for texts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pendulum
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_mail.api import SendBatch
from airflow_provider_mail.api.errors import MailValidationError
from tests.document.asserting import IN_A_LINE, assert_accepted, assert_rejected, choose, fields, quick, text_of_bytes
from tests.document.fact_types import Fact, Operation
from tests.document.models import REQUESTS, Steps, body_with, model_of, operation_of, sent, smallest

LETTERS_AND_DIGITS = st.characters(categories=["L", "Nd"])
OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# The first and last day of the calendar can lie outside it in UTC.
FIRST, LAST = datetime(1, 1, 2), datetime(9999, 12, 30)

URLS = ["http://hooks.example", "https://hooks.example/in?key=1#x", "https://127.0.0.1:8443/ü"]
NO_URLS = ["hooks.example", "ftp://hooks.example", "//hooks.example", "http:/hooks", "https://", " https://a.b"]
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "alphanumeric": (
        ["Spring1", "весна", "新闻7"],
        ["", " ", "a b", "a-b", "a_b", "a.b", "a\n", "½", "²", "Ⅷ", "e\u0301", "📬"],
    ),
    "email": (
        ["ada+tag@mail.example.co.uk", "zoë@exämple.example", "o'hara@example.com"],
        [
            "", " ", "ada", "ada@", "@example.com", "ada@example", "ada@@example.com", "ada@exam@ple.com",
            "ada @example.com", "ada@example.com ", " ada@example.com", "ada@example.com\n", "ada@exam ple.com",
            "ada@example..com", "ada@.example.com", "ada@example.com.", "Ada <ada@example.com>",
            "ada@example.com,bob@example.com", "ada@example.com;bob@example.com",
        ],
    ),
    "http_url": (URLS, ["", *NO_URLS]),
    "http_url_or_empty": (["", *URLS], NO_URLS),
    "not_a_top_level_domain": (
        ["shop.example", "mail.shop.example", "news@shop.example"],
        ["", "com", ".com", "com.", "news@com", "news@.com", "news@com."],
    ),
    "utc": (
        ["2026-01-31T09:00:00Z"],
        [
            "", "now", "2026-01-31", "09:00:00Z", "2026-02-30T09:00:00Z", "2026-01-31T25:00:00Z",
            "31.01.2026T09:00:00Z", "1767258000", 1_767_258_000, 1_767_258_000_000, 1.5, True, date(2026, 1, 31),
            timedelta(1), ["x"], {}, "2026-01-31T09:00:00", datetime(2026, 1, 31),  # without a zone
            # Outside the calendar in UTC: rejected, not a crash.
            "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00",
            datetime.fromisoformat("0001-01-01T00:00:00+14:00"), datetime.fromisoformat("9999-12-31T23:59:59-12:00"),
        ],
    ),
    "date": (
        [],  # the other day of the range would be before it: see the ranges
        [
            "", "today", "2026-1-31", "20260131", "2026-02-30", "31-01-2026", "2026-01-31T00:00:00Z", " 2026-01-31",
            "2026-01-31\n", "\u0662\u0660\u0662\u0666-01-31", 20260131, 1.0, True, datetime(2026, 1, 31),
            datetime(2026, 1, 31, tzinfo=UTC),
        ],
    ),
}  # fmt: skip


@fields(lambda fact: fact.format in VALUES)
def test_values_of_each_format(operation: Operation, steps: Steps, fact: Fact):
    accepted, rejected = VALUES[fact.format]
    for value in accepted:
        assert_accepted(operation, steps, value)
    assert_rejected(operation, steps, *rejected)


@fields(lambda fact: fact.format == "base64")
def test_only_base64_is_accepted(operation: Operation, steps: Steps, fact: Fact):
    for wrong in ("a", "hello", "####", "eA=", "eA==\n", "\u00e9A==", "eA==eA=="):
        with pytest.raises(MailValidationError, match=r"attachment.*file_data"):
            model_of(operation).model_validate(body_with(operation, steps, wrong))


@fields(lambda fact: fact.format == "utc")
@quick
@given(
    time=st.datetimes(FIRST, LAST, timezones=st.timezones() | OFFSETS),
    text=st.datetimes(FIRST, LAST, timezones=OFFSETS),
)
@example(time=datetime(1, 1, 2, tzinfo=UTC), text=datetime(2026, 1, 31, 9, 0, 0, 999_999, UTC))
@example(time=pendulum.datetime(2026, 7, 1, 9, 30, tz="Asia/Kolkata"), text=datetime(2026, 1, 31, 9, tzinfo=UTC))
@example(time=pendulum.datetime(2026, 7, 1, 9, 30, tz="America/St_Johns"), text=datetime(2026, 1, 31, 9, tzinfo=UTC))
def test_times_are_sent_in_utc(time: datetime, text: datetime, operation: Operation, steps: Steps, fact: Fact):
    """Also those of Airflow, and as text."""
    expected = (time - time.utcoffset()).replace(tzinfo=None, microsecond=0).isoformat() + "Z"  # type: ignore[operator]
    assert_accepted(operation, steps, time, wire=expected)
    expected = text.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat() + "Z"
    assert_accepted(operation, steps, text.isoformat(), wire=expected)


RANGES = [operation for operation in REQUESTS if any(fact.wire == "startDate" for fact in operation.request)]


@quick
@given(operation=st.sampled_from(RANGES), first=st.dates(), second=st.dates())
@example(operation=RANGES[0], first=date(2026, 1, 31), second=date(2026, 1, 31))
@example(operation=RANGES[1], first=date(1, 1, 1), second=date(9999, 12, 31))
def test_ranges_of_days(operation: Operation, first: date, second: date):
    start, end = sorted((first, second))
    texts = {"startDate": start.isoformat(), "endDate": end.isoformat()}
    assert sent(operation, texts) == texts
    assert sent(operation, {"startDate": start, "endDate": end}) == texts
    if start < end:
        with pytest.raises(MailValidationError, match="end_date: "):
            model_of(operation).model_validate({"startDate": end, "endDate": start})


# Limits.


@fields(lambda fact: fact.max_bytes)
@quick
@given(data=st.data())
def test_bytes(data: st.DataObject, operation: Operation, steps: Steps, fact: Fact):
    """Bytes count, not characters."""
    alphabet = LETTERS_AND_DIGITS if fact.format == "alphanumeric" else IN_A_LINE
    assert_accepted(operation, steps, data.draw(text_of_bytes(fact.max_bytes, alphabet)))
    message = assert_rejected(operation, steps, data.draw(text_of_bytes(fact.max_bytes + 1, alphabet)))
    assert str(fact.max_bytes) in message
    for character in ("é", "名", "\U0001d49c" if fact.format == "alphanumeric" else "📬"):
        most = character * (fact.max_bytes // len(character.encode()))
        assert_accepted(operation, steps, most)
        assert_rejected(operation, steps, most + character)


@fields(lambda fact: fact.max_length)
def test_length(operation: Operation, steps: Steps, fact: Fact):
    # "250 (bytes/characters)": which of the two is not said, so only text where they agree is an edge for certain.
    assert_accepted(operation, steps, "a" * fact.max_length)
    assert_rejected(operation, steps, "a" * (fact.max_length + 1), "é" * (fact.max_length + 1))


@fields(lambda fact: fact.type == "string" and not (fact.enum or fact.format or fact.max_bytes or fact.max_length))
def test_no_limit_is_invented(operation: Operation, steps: Steps, fact: Fact):
    long = smallest(fact) if "@" in smallest(fact) else ("1" if fact.wire == "phoneNumber" else "é") * 5_000
    if fact.limited_elsewhere:
        assert_rejected(operation, steps, long)
    elif fact.wire not in ("propertyName", "listDescription"):  # bound to other fields
        assert_accepted(operation, steps, long)


@fields(lambda fact: fact.max_items or fact.min_items)
def test_most_items(operation: Operation, steps: Steps, fact: Fact):
    """And the fewest."""
    (item,) = operation.minimal["messageVersions"] if fact.wire == "messageVersions" else smallest(fact)
    if fact.max_items:
        assert_accepted(operation, steps, [item] * fact.max_items)
        assert_rejected(operation, steps, [item] * (fact.max_items + 1))
    if fact.min_items:
        assert_rejected(operation, steps, [])


@fields(lambda fact: fact.maximum or fact.minimum is not None or fact.wire == "pageSize")
def test_numbers(operation: Operation, steps: Steps, fact: Fact):
    if fact.minimum is not None:
        assert_rejected(operation, steps, fact.minimum - 1)
        if fact.wire != "columnNum":  # its rows have to be as wide
            assert_accepted(operation, steps, fact.minimum)
    if fact.wire == "pageSize":  # those without a documented maximum have none
        assert_accepted(operation, steps, fact.maximum or 1_000_000)
    if fact.maximum is not None:
        assert_rejected(operation, steps, fact.maximum + 1)


@fields(lambda fact: fact.type in ("integer", "string") and not fact.enum)
def test_values_of_another_type(operation: Operation, steps: Steps, fact: Fact):
    """Also half a character, which has no form in UTF-8."""
    assert_rejected(operation, steps, *(["many", 1.5, [1], {}] if fact.type == "integer" else ["\ud83d", ["x"], {}]))


@fields(lambda fact: fact.wire == "attachment")
def test_one_file_and_not_a_list_of_them(operation: Operation, steps: Steps, fact: Fact):
    one = smallest(fact)
    assert_accepted(operation, steps, one)
    assert_rejected(operation, steps, [one], [one, one], [])


@fields(lambda fact: fact.enum)
@quick
@given(data=st.data())
def test_enumerations(data: st.DataObject, operation: Operation, steps: Steps, fact: Fact):
    others = st.integers() if isinstance(fact.enum[0], int) else st.text()
    wrong = [data.draw(others.filter(lambda value: value not in fact.enum))]
    if isinstance(fact.enum[0], str):  # they know upper and lower case
        wrong += [value.swapcase() for value in fact.enum if value.swapcase() != value]
    several = fact.type.startswith("array")
    for value in fact.enum:
        assert_accepted(operation, steps, [value] if several else value)
    assert_rejected(operation, steps, *([[value] for value in wrong] if several else wrong))


# Our own rules.

MAPPING = "contactDataMapping"


def test_an_import_that_does_not_add_up():
    operation = operation_of("contacts.imports")
    for changes, message in (
        ({"contactData": []}, "contact_data: "),
        ({"contactData": [["ada@example.com"], []]}, "contact_data[1]: "),
        ({MAPPING: [{"columnNum": 1, "propertyName": "email"}]}, "contact_data[0]: "),
        ({MAPPING: [{"columnNum": 0, "propertyName": name} for name in ("email", "name")]}, "contact_data_mapping: "),
        ({"contactData": [["a@b.cc", "c@d.ee"]], MAPPING: [{"columnNum": n, "propertyName": "email"} for n in (0, 1)]},
         "contact_data_mapping: "),
        ({MAPPING: []}, "contact_data_mapping: "),
        ({"listDescription": "no list"}, "list_description "),
    ):  # fmt: skip
        with pytest.raises(MailValidationError) as raised:
            model_of(operation).model_validate({**operation.minimal, **changes})
        assert message in str(raised.value)


SENDING = {
    "campaigns.sends", "templates.add", "transactional.sends_customised.single", "transactional.sends_customised.batch",
}  # fmt: skip
CHECKED_TOO = {
    ("contacts.upsert", "email"), ("campaigns.sends", "senderMail"), ("campaigns.sends", "replyTo"),
    ("transactional.sends_customised.single", "senderMail"), ("transactional.sends_customised.batch", "senderMail"),
    ("transactional.sends_customised.batch", "email"),
}  # fmt: skip
"""Addresses of which the specification does not say that the service checks their form."""
ADDRESSES = {wire for _, wire in CHECKED_TOO}
ONE_LINE = {"mailName", "subject", "templateSubject", "senderName", "name", "fileName"}
"""What becomes part of a header."""
BREAKS = ["\r\nBcc: eve@example.com", "\n", "\r", "\x00", "\t", "\x1b[2J", "\x7f", "\x85", "\u2028"]
PHONES = [
    "+44 (0)20 7946 0958", "(555) 123-4567", "555.123.4567 x89", "555-1234 ext. 12", "+49 89/123456", "112", "00491234",
    " 5551234   ", "(+49) 30 1", "+1\u00a0555\u2011123", "+ 1 555", "555#12",
]  # fmt: skip
NAN = float("nan")
RULES: dict[str, tuple[Callable[[Fact], Any], Collection[str] | None, list[Any], list[Any], str]] = {
    "addresses": (
        lambda fact: fact.wire in ADDRESSES, {*SENDING, "contacts.upsert"}, ["ada@example.com"],
        ["ada", "ada@example", "ada@example.com,bob@example.com", "a\x00da@example.com", "ada\r@example.com",
         "ada@exam\x7fple.com", "ada@example.com\n"], "",
    ),
    "headers": (
        lambda fact: fact.wire in ONE_LINE and fact.type == "string", SENDING, ["before and after"],
        [text for wrong in BREAKS for text in (f"after{wrong}", f"before{wrong}after")], "one line",
    ),
    "phone numbers": (
        lambda fact: fact.wire == "phoneNumber" and fact.type == "string", None, PHONES,
        ["", "hello", "n/a", "+", "call 5", "555 1234, 555 5678", "555\n", "1e5y", "٣٤"], "phone number",
    ),
    "numbers": (
        lambda fact: fact.wire == "params", None, [{"price": 1.5}],
        [{"a": 1, "price": wrong} for wrong in (NAN, float("inf"), -float("inf"), [1, NAN], {"a": {"b": NAN}})],
        "'price' is NaN or infinite",
    ),
    "contents": (
        lambda fact: fact.wire in ("content", "templateContent"), None,
        ["<p>newsletter.html</p>", "Read it\nat a.html", "html", ".html", "a.html is here", "{{a}}.html"],
        ["newsletter.html", " mails/spring sale.HTM\n", "a.txt", "body.html.j2"], "only the name of a file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_our_own_rules_for_texts(rule: str):
    chosen, of, accepted, rejected, message = RULES[rule]
    for operation, steps, _ in choose(chosen, of):
        for value in accepted:
            assert_accepted(operation, steps, value)
        for value in rejected:
            assert message in assert_rejected(operation, steps, value)
    assert rule != "addresses" or {(field[0].key, field[2].wire) for field in choose(chosen, of)} >= CHECKED_TOO


@pytest.mark.parametrize("own", [True, False])
def test_a_value_for_a_subject_is_one_line(own: bool):
    params: dict[str, Any] = {"name": "Ada\r\nBcc: eve@example.com", "text": "two\nlines", "count": 2}
    version = {"to": [{"email": "ada@example.com"}], "params": params if own else {"text": "two\nlines"}}
    batch: dict[str, Any] = {
        "sender_mail": "shop@example.com",
        "content": "{{name}}, {{text}}",
        "params": params,
        "message_versions": [{"to": [{"email": "bob@example.com"}], "params": {"name": "Bob"}}, version],
    }
    SendBatch(**batch, subject="{{ count }} things")
    words = r"message_versions\[1\].params: 'name' is in the subject and must be"
    with pytest.raises(MailValidationError, match=words):
        SendBatch(**batch, subject="For {{ name }}")
