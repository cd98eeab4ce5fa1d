"""One pushed event becomes one row, or a dead letter that says why not."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.events import MailEvent
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENTS
from airflow_provider_mail.webhook.events import (
    WIRE_NAMES,
    DeadLetter,
    Origin,
    Reason,
    UnreadableError,
    read_event,
    read_push,
    split_push,
)
from tests.webhook.hostile import ODD_EVENTS, PUSHES, VALUES, damaged
from tests.webhook.pushes import EARLIER, NOON, body, event

ORIGIN = Origin("mail_default", NOON, 7)


def read(push: bytes, origin: Origin = ORIGIN) -> tuple[list[dict[str, Any]], list[DeadLetter]]:
    letters: list[DeadLetter] = []
    rows = [dict(zip(EVENTS.names, row, strict=True)) for row in read_push(push, origin, letters.append)]
    return rows, letters


def one(event: Any) -> dict[str, Any]:
    rows, letters = read(body(event))
    assert not letters
    return rows[0]


def id_of(event: Any) -> str:
    return str(one(event)["event_id"])


def test_an_event_becomes_a_row() -> None:
    every = {wire: f"the {name}" for name, wire in WIRE_NAMES.items()}
    every |= {"TriggeredDateTimeV2": "2026-03-01T12:00:00.5Z", "SubmitDateTimeV2": "2026-03-01T13:00:00+02:00"}
    row = one({**every, "NewField": "new"})
    assert set(MailEvent.model_fields) <= set(EVENTS.names)
    assert {name: row[name] for name in WIRE_NAMES} == {
        **{name: f"the {name}" for name in WIRE_NAMES},
        "triggered_time": NOON + datetime.timedelta(seconds=0.5),
        "submit_time": EARLIER,
    }
    assert row["raw"] == {**every, "NewField": "new"}
    assert [row[name] for name in ("mail_conn_id", "received_at", "push_id", "push_index")] == [*ORIGIN, 0]


def test_fields_may_be_missing_or_of_any_type() -> None:
    row = one({"EventCode": "Unheard", "TriggeredDateTimeV2": "", "Email": None})
    assert (row["event_code"], row["triggered_time"], row["submit_time"], row["email"]) == ("Unheard", None, None, None)
    deep = json.loads('{"":' * 15 + "null" + "}" * 15)
    row = one(event(Guid=5, MailName=["a", 1.5], IP=True, Extra=deep, BrowserType={}))
    assert (row["guid"], row["mail_name"], row["ip"], row["browser_type"]) == ("5", '["a",1.5]', "true", "{}")
    assert row["raw"]["Extra"] == deep


@pytest.mark.parametrize("code", ["Dropped", "Bounced", "Delivered", "Unsubscribed", "SpamReport"])
def test_what_happens_once_is_identified_by_message_and_code(code: str) -> None:
    first = id_of(event(code=code))
    assert id_of(event(code=code, TriggeredDateTimeV2="2026-03-02T12:00:00Z", Platform="x")) == first
    others = [event(code="Opened"), event(code=code, UniqueMsgID="m2"), event(code=code, Email="other@example.com")]
    assert first not in map(id_of, others)
    spelled = [event(code=code, Email=email) for email in ("Ann@München.de", "ann@xn--mnchen-3ya.de")]
    assert len(set(map(id_of, spelled))) == 1


@pytest.mark.parametrize("code", ["Opened", "Clicked", "Forwarded"])
def test_what_may_happen_again_is_identified_by_time_too(code: str) -> None:
    first = id_of(event(code=code))
    assert id_of(event(code=code, Platform="x")) == first
    assert id_of(event(code=code, TriggeredDateTimeV2="2026-03-01T12:00:01Z")) != first


@pytest.mark.parametrize("fields", [{"code": "TaskStatus"}, {"UniqueMsgID": None}, {"UniqueMsgID": ""}])
def test_without_a_message_all_fields_identify_an_event(fields: dict[str, Any]) -> None:
    created = event(**fields, Status="Created")
    assert id_of(dict(reversed(created.items()))) == id_of(created)
    assert id_of({**created, "Status": "Completed"}) != id_of(created)
    assert id_of(event(UniqueMsgID="a", code="bc")) != id_of(event(UniqueMsgID="ab", code="c"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (1, Reason.NOT_AN_OBJECT),
        (None, Reason.NOT_AN_OBJECT),
        ([], Reason.NOT_AN_OBJECT),
        ({}, Reason.NO_CODE),
        ({"EventCode": ""}, Reason.NO_CODE),
        ({"EventCode": 5}, Reason.NO_CODE),
        (event(TriggeredDateTimeV2="yesterday"), Reason.TRIGGERED),
        (event(SubmitDateTimeV2=[1]), Reason.SUBMITTED),
        (event(SubmitDateTimeV2="0001-01-01T00:00:00+05:00"), Reason.SUBMITTED),
        (event(Extra="a\x00b"), Reason.TEXT),
        (event(**{"ada@example.com's": "a\x00b"}), Reason.TEXT),
        (event(**{"\x00": 1}), Reason.TEXT),
        (event(Extra="\ud800"), Reason.TEXT),
        (event(Extra=float("inf")), Reason.TEXT),
        (event(Extra=json.loads("[" * 16 + "]" * 16)), Reason.TOO_DEEP),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter_beside_the_others(given: Any, reason: Reason) -> None:
    rows, letters = read(body(event(1), given, event(2)))
    assert [row["push_index"] for row in rows] == [0, 2]
    assert [(letter.index, letter.reason) for letter in letters] == [(1, reason)]
    assert json.dumps(json.loads(letters[0].raw)) == json.dumps(given)
    assert len(letters[0].row()) == len(DEAD_LETTERS.columns)


@pytest.mark.parametrize(
    "push",
    [b"", b"{}", b"\xff", b"nonsense", b"[" * 9999, b"null\x00", b'["\x00]', b'[{"Email": "Op'],
)
def test_what_is_no_array_of_events_is_one_dead_letter(push: bytes) -> None:
    rows, (letter,) = read(push)
    assert (rows, letter.index) == ([], 0)
    letter.raw.encode()
    assert "\x00" not in letter.raw


@pytest.mark.parametrize("end", ["", ",", ", {", ', {"Note": "', "}]", "] x", "] [{}]", ", [[["])
def test_of_a_push_that_is_cut_off_what_arrived_is_read(end: str) -> None:
    push = f"[{json.dumps(event(1))}, {json.dumps(event(2))}"
    rows, letters = read(f"{push}{end}".encode())
    assert [row["raw"] for row in rows] == [event(1), event(2)]
    assert [letter.raw for letter in letters] == [text for text in [end.lstrip(", ")] if text]


def test_an_event_that_is_too_deep_to_be_parsed_is_a_dead_letter() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    rows, (letter,) = read(b"[%b,%b]" % (json.dumps(event(1)).encode(), deep))
    assert [row["push_index"] for row in rows] == [0]
    assert (letter.index, letter.reason) == (1, Reason.TOO_DEEP)


@pytest.mark.parametrize("odd", ODD_EVENTS, ids=lambda odd: str(odd)[:40])
@pytest.mark.parametrize("push", [b"[%b,%b]", b"\xef\xbb\xbf [%b , %b ]\n"])
def test_an_event_that_cannot_be_stored_spoils_no_other(push: bytes, odd: bytes) -> None:
    rows, (letter,) = read(push % (odd, json.dumps(event(1)).encode()))
    assert [row["push_index"] for row in rows] == [1]
    assert letter.index == 0
    with pytest.raises(UnreadableError) as again:
        read_event(letter.raw, ORIGIN, 0)
    assert again.value.reason == letter.reason


@given(PUSHES.map(lambda events: json.dumps(events).encode()) | damaged())
def test_a_push_is_split_as_parsers_split_it(push: bytes) -> None:
    try:
        events = json.loads(push.decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        return
    if isinstance(events, list):
        assert [json.loads(part) for part in split_push(push)] == events


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()) | PUSHES.map(lambda events: body(*events)))
def test_whatever_is_pushed_is_kept_as_a_row_or_a_letter(push: bytes) -> None:
    rows, letters = read(push)
    try:
        parsed = json.loads(push)
    except ValueError:
        parsed = None
    kept = sorted([row["push_index"] for row in rows] + [letter.index for letter in letters])
    if isinstance(parsed, list):
        assert kept == [*range(len(parsed))]
    else:
        assert kept == [*range(len(kept))]
        assert kept or push.strip().startswith(b"[")
    for letter in letters:
        letter.raw.encode()
        assert "\x00" not in letter.raw + letter.reason
