"""Compact statistics are those that the model reads, or end in the same error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import CampaignStats, GetCampaignStats
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAnswerError, MailAuthError, MailError, MailIncompleteError
from airflow_provider_mail.api.flows import statistics
from airflow_provider_mail.api.flows.statistics import campaign_stats
from tests.api.driving import QUICK
from tests.api.wire import Wire, http
from tests.document.fact_resources import RESOURCES
from tests.support.sampling import examples

DAY = date(2026, 1, 2)
NOON = int(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()) * 1000
COUNTS = tuple(
    fact.wire for fact in RESOURCES["Campaign statistics record"] if fact.wire not in ("mailName", "mailSendDate")
)
REQUEST = GetCampaignStats(start_date=DAY, end_date=DAY)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with Wire() as wire:
        yield wire


@pytest.fixture(scope="module")
def client(wire: Wire) -> Iterator[MailClient]:
    with MailClient(ClientConfig(base_url=wire.base_url, api_key="key", retry=QUICK)) as client:
        yield client


def record(name: str, **values: Any) -> dict[str, Any]:
    return {"mailName": name, "mailSendDate": NOON, **dict.fromkeys(COUNTS, 3), **values}


def answer(records: Any, **fields: Any) -> bytes:
    return json.dumps({"code": 200, "message": "", "mailStatsList": records, **fields}).encode()


def in_full(records: list[CampaignStats]) -> list[tuple[Any, ...]]:
    names = (*CampaignStats.model_fields, "other_fields")
    return [tuple(getattr(record, name) for name in names) for record in records]


def compact(client: MailClient) -> list[CampaignStats]:
    return client.run(campaign_stats(REQUEST, compact=True))


# What looks like the end of something, in texts and in names of fields.
TEXTS = st.text(st.sampled_from('{}[],:"\\ \n}{]né春\U0001f4e7ab') | st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("mailStatsList"), inner, max_size=3),
    max_leaves=8,
)
SPELLINGS = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.none() | st.integers(0, 2),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :\t"), ("\n,\r", ":")]),
    }
)

COUNT = st.integers(0, 10**6)
ODD_COUNT = st.sampled_from([-1, 2**53 + 1, 2**63, 10**30, "12", " 7 ", "x", 12.0, 1e3, 1.5, True, None, [], "", 1e300])
INSIDE = st.integers(NOON - 86_400_000, NOON + 86_400_000)
ODD_DATE = st.sampled_from([0, None, "", "0", str(NOON), float(NOON), NOON + 0.5, -5, 2**60, True, NOON // 1000, "x"])
NAMES = TEXTS | st.sampled_from(["same", "same too"]) | st.integers(0, 9).map(str)


@st.composite
def records_of_a_service(draw: Any) -> dict[str, Any]:
    made = {"mailName": draw(NAMES), "mailSendDate": draw(INSIDE), **{name: draw(COUNT) for name in COUNTS}}
    if draw(st.integers(0, 5)) == 0:  # something that is not as it should be
        name = draw(st.sampled_from(["mailSendDate", "mailName", *COUNTS]))
        what = draw(st.integers(0, 3))
        if what == 0:
            del made[name]
        elif what == 1:
            snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
            made[snake] = made.pop(name)
        else:
            made[name] = draw(ODD_DATE if name == "mailSendDate" else ODD_COUNT)
    made |= draw(st.dictionaries(TEXTS, VALUES, max_size=2))
    return dict(draw(st.permutations(list(made.items()))))


@given(
    st.lists(records_of_a_service(), max_size=8, unique_by=lambda made: str(made.get("mailName")))
    | st.lists(records_of_a_service(), max_size=8),
    st.integers(-1, 2) | st.none(),
    SPELLINGS,
    st.booleans(),
    st.none() | st.integers(0, 2000),
)
@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_compact_records_equal_those_of_the_model(
    client: MailClient, wire: Wire, records: Any, more: int | None, spelling: Any, first: bool, cut: Any
) -> None:
    total = {} if more is None else {"totalRecords": len(records) + more}
    fields = {"mailStatsList": records, **total} if first else {**total, "mailStatsList": records}
    wire.answer = http(json.dumps({"code": 200, "message": None, **fields}, **spelling).encode()[:cut])

    def outcome(ask: Any) -> Any:
        try:
            return ask()
        except MailError as error:
            return type(error), str(error)

    expected = outcome(lambda: in_full(client.run(campaign_stats(REQUEST))))
    assert outcome(lambda: in_full(compact(client))) == expected


def test_records_of_the_documented_form_are_compact(client: MailClient, wire: Wire) -> None:
    names = ["},{", '"}],"totalRecords":0}', "Frühling 春", *map(str, range(50))]
    wire.answer = http(answer([record(name) for name in names], totalRecords=len(names)))
    records = compact(client)
    assert [record.mail_name for record in records] == names
    assert {record.mail_send_date for record in records} == {datetime(2026, 1, 2, 12, tzinfo=UTC)}
    assert not any(isinstance(record, CampaignStats) for record in records)


def test_a_count_of_newer_responses_is_compact_too() -> None:
    class More(CampaignStats):
        complaint_count: int | None = None

    *required, (name, kind, default) = statistics._compact_counts(More)
    struct = msgspec.defstruct("More", [(name, kind, default)], rename="camel")
    assert (len(required), name) == (len(COUNTS), "complaint_count")
    assert [msgspec.json.decode(body, type=struct).complaint_count for body in ("{}", '{"complaintCount": 3}')] == [
        None,
        3,
    ]


def test_values_that_only_the_model_reads(client: MailClient, wire: Wire) -> None:
    odd: dict[str, Any] = {"sentCount": "12", "openCount": 3.0, "mailSendDate": ""}
    wire.answer = http(answer([record(str(number), **odd) for number in range(50)], totalRecords=50))
    records = compact(client)
    assert (len(records), in_full(records)[0][:4]) == (50, ("0", None, 12, 3))
    # A send date may be missing.
    records = [record("never", mailSendDate=None), record("zero", mailSendDate=0), record("sent")]
    wire.answer = http(answer(records, totalRecords=3))
    assert [found.mail_send_date for found in compact(client)] == [None, None, datetime(2026, 1, 2, 12, tzinfo=UTC)]
    assert in_full(compact(client)) == in_full(client.run(campaign_stats(REQUEST)))


@pytest.mark.parametrize(
    ("records", "fields"),
    [
        ([record(str(number)) for number in range(20)], {"totalRecords": 21}),
        ([record(str(number // 2)) for number in range(20)], {"totalRecords": 20}),
    ],
    ids=["short", "twice"],
)
def test_a_short_day_is_read_by_names(client: MailClient, wire: Wire, records: Any, fields: Any) -> None:
    """It has been asked; of a single day the names of its campaigns come next."""
    asked = len(wire.requests)
    wire.answer = http(answer(records, **fields))
    with pytest.raises(MailIncompleteError, match="records received, the service reports 2"):
        compact(client)
    paths = [request.split()[1] for request in wire.requests[asked:]]
    assert paths[:2] == [b"/v5/campaign/mail/stats/get", b"/v5/campaign/mail/get"]


@pytest.mark.parametrize(
    ("change", "error", "times"),
    [
        (lambda body: body[:-30], MailAnswerError, 3),
        (lambda body: body.replace(b'"code": 200', b'"code": 401'), MailAuthError, 1),
        (lambda body: body.replace(b'"mailName": "12"', b'"mailName": "12'), MailAnswerError, 3),
        (lambda body: body.replace(b'"mailName": "12"', b'"mailName": 12'), MailAnswerError, 3),
        (lambda body: body.replace(b'"mailName": "12"', b'"mailName": "\xff"'), MailAnswerError, 3),
    ],
    ids=["cut", "key", "quote", "type", "utf-8"],
)
def test_a_wrong_response_is_requested_again(
    client: MailClient, wire: Wire, change: Any, error: Any, times: int
) -> None:
    asked = len(wire.requests)
    wire.answer = http(change(answer([record(str(number)) for number in range(50)], totalRecords=50)))
    with pytest.raises(error):
        compact(client)
    assert len(wire.requests) - asked == times


def test_a_response_that_is_too_large(wire: Wire) -> None:
    config = ClientConfig(base_url=wire.base_url, api_key="key", retry=QUICK, max_answer_bytes=2000)
    wire.answer = http(answer([record(str(number)) for number in range(50)]))
    with MailClient(config) as client, pytest.raises(MailAnswerError, match="larger than 2000 bytes"):
        compact(client)
