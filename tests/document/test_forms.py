"""Every form of the document: times, days, addresses, labels, URLs, Base64."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pendulum
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.transactional import SendBatch
from tests.document.asserting import FIELDS, assert_accepted, assert_refused, fields, quick
from tests.document.fact_types import Fact, Operation
from tests.document.models import REQUESTS, Steps, body_with, model_of, sent
from tests.document.strategies import aware_times, labels, not_labels, offsets


@fields(lambda fact: fact.format == "alphanumeric")
@quick
@given(data=st.data())
def test_labels_are_letters_and_digits(data: st.DataObject, operation: Operation, steps: Steps, fact: Fact):
    assert_accepted(operation, steps, data.draw(labels()))
    assert_refused(operation, steps, data.draw(not_labels()))


@fields(lambda fact: fact.format == "alphanumeric")
@pytest.mark.parametrize("wrong", ["", " ", "a b", "a-b", "a_b", "a.b", "a\n", "½", "²", "Ⅷ", "e\u0301", "📬"])
def test_what_is_no_label(operation: Operation, steps: Steps, fact: Fact, wrong: str):
    assert_refused(operation, steps, wrong)


NO_ADDRESSES = [
    "",
    " ",
    "ada",
    "ada@",
    "@example.com",
    "ada@example",
    "ada@@example.com",
    "ada@exam@ple.com",
    "ada @example.com",
    "ada@example.com ",
    " ada@example.com",
    "ada@example.com\n",
    "ada@exam ple.com",
    "ada@example..com",
    "ada@.example.com",
    "ada@example.com.",
    "Ada <ada@example.com>",
    "ada@example.com,bob@example.com",
    "ada@example.com;bob@example.com",
]


@fields(lambda fact: fact.format == "email")
@quick
@given(address=st.emails())
@example(address="ada+tag@mail.example.co.uk")
@example(address="zoë@exämple.example")
@example(address="o'hara@example.com")
def test_addresses(address: str, operation: Operation, steps: Steps, fact: Fact):
    assert_accepted(operation, steps, address)


@fields(lambda fact: fact.format == "email")
@pytest.mark.parametrize("wrong", NO_ADDRESSES)
def test_what_is_no_address(operation: Operation, steps: Steps, fact: Fact, wrong: str):
    assert_refused(operation, steps, wrong)


CHECKED_TOO = {
    ("contacts.upsert", "email"),
    ("campaigns.sends", "senderMail"),
    ("campaigns.sends", "replyTo"),
    ("transactional.sends_customised.single", "senderMail"),
    ("transactional.sends_customised.batch", "senderMail"),
    ("transactional.sends_customised.batch", "email"),
}
"""Addresses of which the document does not say that the service checks their form: we do, before anything is sent."""


@pytest.mark.parametrize("wrong", ["ada", "ada@example", "ada@example.com,bob@example.com"])
def test_addresses_are_checked_where_the_document_does_not_say_so(wrong: str):
    seen = set()
    for operation, steps, fact in FIELDS:
        if (operation.key, fact.wire) in CHECKED_TOO:
            assert_refused(operation, steps, wrong)
            seen.add((operation.key, fact.wire))
    assert seen == CHECKED_TOO


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"contactData": []}, "contact_data: "),
        ({"contactData": [["ada@example.com"], []]}, "contact_data[1]: "),
        (
            {"contactDataMapping": [{"columnNum": 1, "propertyName": "email"}]},
            "contact_data[0]: ",
        ),
        (
            {"contactDataMapping": [{"columnNum": 0, "propertyName": name} for name in ("email", "name")]},
            "contact_data_mapping: ",
        ),
        (
            {
                "contactData": [["a@example.com", "b@example.com"]],
                "contactDataMapping": [{"columnNum": number, "propertyName": "email"} for number in (0, 1)],
            },
            "contact_data_mapping: ",
        ),
        ({"contactDataMapping": []}, "contact_data_mapping: "),
        ({"listDescription": "no list"}, "list_description "),
    ],
)
def test_an_import_that_does_not_add_up_is_refused(changes: dict[str, Any], refusal: str):
    (operation,) = (operation for operation in REQUESTS if operation.key == "contacts.imports")
    with pytest.raises(MailValidationError) as refused:
        model_of(operation).model_validate({**operation.minimal, **changes})
    assert refusal in str(refused.value)


@fields(lambda fact: fact.format == "base64")
@quick
@given(content=st.binary(min_size=1))
def test_base64(content: bytes, operation: Operation, steps: Steps, fact: Fact):
    assert_accepted(operation, steps, base64.b64encode(content).decode())


@fields(lambda fact: fact.format == "base64")
@pytest.mark.parametrize("wrong", ["a", "hello", "####", "eA=", "eA==\n", "\u00e9A==", "eA==eA=="])
def test_what_is_not_base64(operation: Operation, steps: Steps, fact: Fact, wrong: str):
    with pytest.raises(MailValidationError, match=r"attachment.*file_data"):
        model_of(operation).model_validate(body_with(operation, steps, wrong))


@fields(lambda fact: fact.format.startswith("http_url"))
def test_callbacks_begin_with_http(operation: Operation, steps: Steps, fact: Fact):
    for url in ("http://hooks.example", "https://hooks.example/in?key=1#x", "https://127.0.0.1:8443/ü"):
        assert_accepted(operation, steps, url)
    for wrong in ("hooks.example", "ftp://hooks.example", "//hooks.example", "http:/hooks", "https://", " https://a.b"):
        assert_refused(operation, steps, wrong)
    if fact.format == "http_url_or_empty":
        assert_accepted(operation, steps, "")
    else:
        assert_refused(operation, steps, "")


@fields(lambda fact: fact.format == "not_a_top_level_domain")
def test_a_sender_is_not_a_top_level_domain(operation: Operation, steps: Steps, fact: Fact):
    for entry in ("shop.example", "mail.shop.example", "news@shop.example"):
        assert_accepted(operation, steps, entry)
    for wrong in ("", "com", ".com", "com.", "news@com", "news@.com", "news@com."):
        assert_refused(operation, steps, wrong)


# Times ---------------------------------------------------------------------------------------------------------------


@fields(lambda fact: fact.format == "utc")
@quick
@given(time=aware_times())
@example(time=datetime(1, 1, 2, tzinfo=UTC))
@example(time=datetime(2026, 1, 31, 9, 0, 0, 999_999, UTC))
def test_times_are_sent_in_utc(time: datetime, operation: Operation, steps: Steps, fact: Fact):
    expected = (time - time.utcoffset()).replace(tzinfo=None, microsecond=0).isoformat() + "Z"  # type: ignore[operator]
    assert_accepted(operation, steps, time, wire=expected)


@fields(lambda fact: fact.format == "utc")
@quick
@given(time=st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=offsets()))
def test_times_as_text_are_sent_in_utc(time: datetime, operation: Operation, steps: Steps, fact: Fact):
    expected = time.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat() + "Z"
    assert_accepted(operation, steps, time.isoformat(), wire=expected)
    assert_accepted(operation, steps, expected)


@fields(lambda fact: fact.format == "utc")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
def test_times_as_airflow_hands_them_out(operation: Operation, steps: Steps, fact: Fact, zone: str):
    time = pendulum.datetime(2026, 7, 1, 9, 30, tz="UTC").in_timezone(zone)
    assert_accepted(operation, steps, time, wire="2026-07-01T09:30:00Z")


@fields(lambda fact: fact.format == "utc")
@quick
@given(time=st.datetimes())
def test_times_without_a_zone_are_refused(time: datetime, operation: Operation, steps: Steps, fact: Fact):
    assert_refused(operation, steps, time)
    assert_refused(operation, steps, time.isoformat())


@fields(lambda fact: fact.format == "utc")
@pytest.mark.parametrize(
    "wrong",
    [
        *("", "now", "2026-01-31", "09:00:00Z", "2026-02-30T09:00:00Z", "2026-01-31T25:00:00Z", "31.01.2026T09:00:00Z"),
        *("1767258000", 1_767_258_000, 1_767_258_000_000, 1.5, True, date(2026, 1, 31), timedelta(1), ["x"], {}),
    ],
)
def test_what_is_no_time(operation: Operation, steps: Steps, fact: Fact, wrong: Any):
    assert_refused(operation, steps, wrong)


@fields(lambda fact: fact.format == "utc")
@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_times_outside_the_calendar_are_refused_and_not_a_crash(
    operation: Operation, steps: Steps, fact: Fact, text: str
):
    assert_refused(operation, steps, text)
    assert_refused(operation, steps, datetime.fromisoformat(text))


# Days ----------------------------------------------------------------------------------------------------------------

RANGES = [operation for operation in REQUESTS if any(fact.wire == "startDate" for fact in operation.request)]
each_range = pytest.mark.parametrize("operation", RANGES, ids=lambda operation: operation.key)


@each_range
@quick
@given(first=st.dates(), second=st.dates())
@example(first=date(2026, 1, 31), second=date(2026, 1, 31))
@example(first=date(1, 1, 1), second=date(9999, 12, 31))
def test_ranges_of_days(first: date, second: date, operation: Operation):
    start, end = sorted((first, second))
    texts = {"startDate": start.isoformat(), "endDate": end.isoformat()}
    assert sent(operation, texts) == texts
    assert sent(operation, {"startDate": start, "endDate": end}) == texts
    if start < end:
        with pytest.raises(MailValidationError, match="end_date: "):
            model_of(operation).model_validate({"startDate": end, "endDate": start})


@fields(lambda fact: fact.format == "date")
@pytest.mark.parametrize(
    "wrong",
    [
        *("", "today", "2026-1-31", "20260131", "2026-02-30", "31-01-2026", "2026-01-31T00:00:00Z", " 2026-01-31"),
        *("2026-01-31\n", "\u0662\u0660\u0662\u0666-01-31", 20260131, 1.0, True),
        *(datetime(2026, 1, 31), datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
def test_what_is_no_day(operation: Operation, steps: Steps, fact: Fact, wrong: Any):
    assert_refused(operation, steps, wrong)


SENDING = {
    *("campaigns.sends", "templates.add"),
    *("transactional.sends_customised.single", "transactional.sends_customised.batch"),
}
ONE_LINE = {"mailName", "subject", "templateSubject", "senderName", "name", "fileName"}
"""What becomes part of a header."""


@fields(lambda fact: fact.wire in ONE_LINE and fact.type == "string", of=SENDING)
@pytest.mark.parametrize(
    "wrong", ["\r\nBcc: eve@example.com", "\n", "\r", "\x00", "\t", "\x1b[2J", "\x7f", "\x85", "\u2028"]
)
def test_what_becomes_part_of_a_header_is_one_line(operation: Operation, steps: Steps, fact: Fact, wrong: str):
    message = assert_refused(operation, steps, f"before{wrong}after")
    assert "one line" in message
    assert_refused(operation, steps, f"after{wrong}")


@fields(lambda fact: fact.wire in ("email", "senderMail", "replyTo"), of={*SENDING, "contacts.upsert"})
@pytest.mark.parametrize(
    "wrong", ["a\x00da@example.com", "ada\r@example.com", "ada@exam\x7fple.com", "ada@example.com\n"]
)
def test_an_address_has_no_control_characters(operation: Operation, steps: Steps, fact: Fact, wrong: str):
    assert_refused(operation, steps, wrong)


@fields(lambda fact: fact.wire == "phoneNumber" and fact.type == "string")
@pytest.mark.parametrize(
    "number",
    [
        *("+44 (0)20 7946 0958", "(555) 123-4567", "555.123.4567 x89", "555-1234 ext. 12", "+49 89/123456", "112"),
        *("00491234", " 5551234   ", "(+49) 30 1", "+1\u00a0555\u2011123", "+ 1 555", "555#12"),
    ],
)
def test_phone_numbers_as_people_write_them(operation: Operation, steps: Steps, fact: Fact, number: str):
    assert_accepted(operation, steps, number)


@fields(lambda fact: fact.wire == "phoneNumber" and fact.type == "string")
@pytest.mark.parametrize("wrong", ["", "hello", "n/a", "+", "call 5", "555 1234, 555 5678", "555\n", "1e5y", "٣٤"])
def test_what_is_no_phone_number(operation: Operation, steps: Steps, fact: Fact, wrong: str):
    assert "phone number" in assert_refused(operation, steps, wrong)


@fields(lambda fact: fact.wire == "params")
@pytest.mark.parametrize(
    "wrong", [float("nan"), float("inf"), -float("inf"), [1, float("nan")], {"a": {"b": float("nan")}}]
)
def test_no_number_that_json_has_no_form_for(operation: Operation, steps: Steps, fact: Fact, wrong: Any):
    message = assert_refused(operation, steps, {"name": "Ada", "price": wrong})
    assert "'price' is NaN or infinite" in message


@fields(lambda fact: fact.wire in ("content", "templateContent"))
@pytest.mark.parametrize("wrong", ["newsletter.html", " mails/spring sale.HTM\n", "a.txt", "body.html.j2"])
def test_the_name_of_a_file_is_no_content(operation: Operation, steps: Steps, fact: Fact, wrong: str):
    assert "only the name of a file" in assert_refused(operation, steps, wrong)


@fields(lambda fact: fact.wire in ("content", "templateContent"))
@pytest.mark.parametrize(
    "content", ["<p>newsletter.html</p>", "Read it\nat a.html", "html", ".html", "a.html is here", "{{a}}.html"]
)
def test_what_is_more_than_the_name_of_a_file(operation: Operation, steps: Steps, fact: Fact, content: str):
    assert_accepted(operation, steps, content)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("wrong", ["Ada\r\nBcc: eve@example.com", "Ada\n"])
def test_what_a_subject_is_filled_with_is_one_line(own: bool, wrong: str):
    params: dict[str, Any] = {"name": wrong, "text": "two\nlines", "count": 2}
    version = {"to": [{"email": "ada@example.com"}], "params": params if own else {"text": "two\nlines"}}
    batch: dict[str, Any] = {
        "sender_mail": "shop@example.com",
        "content": "{{name}}, {{text}}",
        "params": params,
        "message_versions": [{"to": [{"email": "bob@example.com"}], "params": {"name": "Bob"}}, version],
    }
    SendBatch(**batch, subject="{{ count }} things")
    with pytest.raises(
        MailValidationError, match=r"message_versions\[1\].params: 'name' is in the subject and must be"
    ):
        SendBatch(**batch, subject="For {{ name }}")
