"""The life of one request, step by step, without a network: pauses move the clock, and no number is random."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime, formatdate
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail import api
from airflow_provider_mail.api.client import MailClient
from mail_emulator import Emulator
from tests.api.driving import PauseAll, Paused, Rehearsal, Reserve, Time, Turns, exchange
from tests.api.parts import (
    MAX_MISSED,
    MAX_OFFSET,
    Call,
    HttpResponse,
    MailRequest,
    ServiceClock,
    Slot,
    Throttle,
    retry_after_seconds,
)
from tests.support.clock import Clock

GOOD = HttpResponse(200, {}, b'{"code": 200}')
LOST = api.MailResponseLostError("the response was lost", operation="/v5/x")
AWAY = api.MailConnectError("rejected")
READ = api.GetLists()
SEND = api.SendMail(subject="s", content="c", sender_mail="news@example.com", to=api.Recipient(email="ada@example.com"))
TOKEN = api.GetToken(client_id="id", client_secret="s3cret", code="c0de")
DELETION = api.DeleteContact(email="ada@example.com")


def respond(status: int = 200, **body: Any) -> HttpResponse:
    return HttpResponse(status, {}, json.dumps({"code": 200, **body}).encode())


def busy(retry_after: str | None = None, status: int = 429) -> HttpResponse:
    return HttpResponse(status, {} if retry_after is None else {"retry-after": retry_after}, b"")


def in_turn(*results: Any) -> Callable[[Any], Any]:
    left = list(results)
    return lambda step: left.pop(0)


def sending(request: MailRequest[Any], *results: Any, **settings: Any) -> tuple[Rehearsal, Any]:
    """Send a request whose attempts end in these results; the rehearsal, and the response or the error."""
    rehearsal = Rehearsal(in_turn(*results))
    try:
        return rehearsal, exchange(rehearsal, **settings).send(request)
    except api.MailError as error:
        return rehearsal, error


# Repetitions and their pauses.


def test_the_pauses_between_repetitions_double() -> None:
    rehearsal, response = sending(READ, LOST, LOST, LOST, LOST, GOOD)
    assert (response.code, rehearsal.pauses) == (200, [0.5, 1.0, 2.0, 4.0])
    rehearsal, _ = sending(READ, LOST, LOST, GOOD, requests_per_second=0.1, retry=api.RetrySettings(base_seconds=1))
    assert rehearsal.at == [1000.0, 1010.0, 1020.0], "they wait for a slot, too"
    _, error = sending(READ, LOST, LOST, HttpResponse(503, {}, b""), retry=api.RetrySettings(attempts=3))
    assert (type(error), error.__context__, error.__cause__) == (api.MailServerError, None, None)
    assert "HTTP 503" in str(error)
    rehearsal, error = sending(READ, busy("121"))
    assert (type(error), error.retry_after, rehearsal.pauses) == (api.MailRateLimitError, 121, [])


def test_total_time_does_not_count_the_wait_for_a_slot() -> None:
    rehearsal = Rehearsal(in_turn(api.MailConnectError("x"), GOOD))
    core = exchange(rehearsal, requests_per_second=0.01, retry=api.RetrySettings(total_seconds=50, base_seconds=1))
    core.throttle.reserve()
    core.send(READ)
    assert rehearsal.at == [1100.0, 1200.0]


def test_each_request_is_reported_with_its_throttled_time() -> None:
    reported: list[tuple[Any, ...]] = []
    settings = {"requests_per_second": 0.1, "draw": 0.5, "retry": api.RetrySettings(base_seconds=1)}
    sending(READ, busy("7"), LOST, GOOD, on_request=reported.append, **settings)
    # Seven seconds for the 429, then the rate. The backoff after the lost response, a second, does not count.
    assert reported == [(READ.path, False, 0.0), (READ.path, True, 10.0), (READ.path, True, 9.0)]


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_holds_all_requests_of_the_client(status: int) -> None:
    turns = Turns()
    core = exchange(turns, draw=0.0)
    first, other = turns.start(core, READ), turns.start(core, api.AddList(list_name="other"))
    assert isinstance(next(first), Call)
    first.send(busy("7", status))
    assert next(other) == Paused(7.0)
    turns.time.now += 7.0
    assert isinstance(next(other), Call)


def test_a_slot_from_before_a_429_is_given_up() -> None:
    """A request that already waits when the service says stop is not sent in the middle of the pause."""
    turns = Turns()
    time, core = turns.time, exchange(turns, requests_per_second=1.0, draw=0.0)
    first, second, third = (turns.start(core, READ) for _ in range(3))
    assert isinstance(next(first), Call)
    assert next(second).seconds == pytest.approx(1.0)
    assert next(third).seconds == pytest.approx(2.0)
    assert first.send(busy("10")).seconds == pytest.approx(10.0)
    for steps, passed in ((second, 1.0), (third, 1.0)):
        time.now += passed
        assert next(steps).seconds == pytest.approx(9.0), "the third behind the second, not beside it"
    for steps, passed in ((second, 8.0), (third, 1.0)):
        time.now += passed
        assert isinstance(next(steps), Call)


# Sends: never twice.


@pytest.mark.parametrize(
    "result",
    [LOST, HttpResponse(500, {}, b""), HttpResponse(200, {}, b"<html>"), HttpResponse(200, {}, b'{"code": 200}')],
)
def test_a_send_with_an_unknown_outcome_is_ambiguous(result: Any) -> None:
    """A task that retries would send it again."""
    rehearsal, error = sending(TOKEN, result)
    assert isinstance(error, api.MailAmbiguousSendError)
    assert "not sent again" in str(error)
    assert (error.may_have_taken_effect, error.temporary, len(rehearsal.asked)) == (True, False, 1)


@pytest.mark.parametrize("status", [400, 403, 404, 407, 422, 451])
def test_whether_a_page_of_a_proxy_came_instead_of_the_send(status: int) -> None:
    """Its form with sandboxMode shows it, which sends nothing."""
    page = HttpResponse(status, {}, b"<html>no</html>")
    same, other = (api.MailAmbiguousSendError("a page", status=number) for number in (status, 418))
    rejected = api.MailRejectedError("no credits", status=status, code=403)
    for answer in (SEND.response(), rejected, other, LOST, api.MailAuthError("no", status=401)):
        rehearsal, error = sending(SEND, page, answer)
        assert isinstance(error, api.MailAmbiguousSendError), "the service gets such requests"
        assert f"HTTP {status}" in str(error)
        assert [getattr(step, "sandbox_mode", None) for step in rehearsal.asked] == [None, True]
    rehearsal, error = sending(SEND, page, same)
    assert (type(error), error.temporary, error.may_have_taken_effect) == (api.MailConnectError, True, False)
    _, error = sending(SEND.model_copy(update={"sandbox_mode": True}), page)
    assert isinstance(error, api.MailAmbiguousSendError)
    _, error = sending(api.AddList(list_name="vip"), page)
    assert error.may_have_taken_effect, "the name is looked up"
    assert sending(READ, page, page, GOOD)[1].code == 200


def test_what_is_too_large_for_a_proxy_was_not_sent() -> None:
    rehearsal, error = sending(SEND, HttpResponse(413, {}, b"<html>no</html>"))
    assert (type(error), error.may_have_taken_effect, len(rehearsal.asked)) == (api.MailRejectedError, False, 1)


def test_a_401_without_a_code_is_checked_with_a_read() -> None:
    page, no = HttpResponse(401, {}, b"<html>Unauthorized</html>"), api.MailAuthError("no")
    for results, kind in [
        ([page, no], api.MailAuthError),
        ([page, api.GetLists.response()], api.MailAmbiguousSendError),
        ([page, LOST], api.MailAmbiguousSendError),
        ([respond(401, code=401)], api.MailAuthError),  # the service's own needs no check
    ]:
        rehearsal, error = sending(SEND, *results)
        assert (type(error), error.may_have_taken_effect) == (kind, kind is not api.MailAuthError)
        assert [step.path for step in rehearsal.asked] == [SEND.path, READ.path][: len(results)]


# Deletions: absent after a lost response is success.

REJECTED = respond(code=404, message="there is none")
ABSENT = api.MailRejectedError("no", operation="/v5/contacts/get", code=404)
CONTACT = api.GetContact.response.model_validate({"contact": {"email": "ada@example.com"}})
VIP = api.GetLists.response.model_validate({"lists": [{"ListName": "vip"}]})
OLD = api.GetSenders.response.model_validate({"mailFromDomains": [{"fromDomain": "old@Example.com"}]})
SPRING = api.GetCampaigns.response.model_validate({"mailList": [{"mailName": "news", "mailStatus": 2}]})


@pytest.mark.parametrize(
    ("deletion", "look", "gone"),
    [
        (DELETION, ABSENT, True),
        (DELETION, api.GetContact.response(), True),
        (DELETION, CONTACT, False),
        (api.DeleteList(list_name="vip"), api.GetLists.response(total_records=0), True),
        (api.DeleteList(list_name="vip"), VIP, False),
        (api.DeleteTemplate(template_name="welcome"), api.GetTemplates.response(total_records=0), True),
        (api.DeleteSender(sender_email="Old@example.com"), api.GetSenders.response(), True),
        (api.DeleteSender(sender_email="Old@example.com"), OLD, False),
        (api.DeleteCampaign(mail_name="news"), api.GetCampaigns.response(total_records=0), True),
        (api.DeleteCampaign(mail_name="news"), SPRING, False),
    ],
)
def test_a_deletion_rejected_after_a_lost_response_looks(deletion: MailRequest[Any], look: Any, gone: bool) -> None:
    rehearsal, result = sending(deletion, LOST, REJECTED, look)
    assert [step.path for step in rehearsal.asked[:2]] == [deletion.path] * 2
    assert len(rehearsal.asked) == 3
    if gone:
        assert result.code == 200
    else:  # it still exists: the deletion has done nothing
        assert (type(result), result.may_have_taken_effect) == (api.MailRejectedError, False)
        assert re.search("there is none", str(result))
        assert "earlier attempt" not in str(result)


EARLIER = "an earlier attempt was lost"


@pytest.mark.parametrize(
    ("request_", "results", "error", "text"),
    [
        # Rejected at once, or after attempts that never arrived: nothing is looked up.
        (DELETION, [REJECTED], api.MailRejectedError, "there is none"),
        (DELETION, [AWAY, busy(), REJECTED], api.MailRejectedError, "there is none"),
        # A lost response is remembered over other failures.
        (DELETION, [LOST, AWAY, busy(), REJECTED, ABSENT], None, ""),
        # A lookup that fails proves nothing: a key revoked in between must not read as "deleted".
        (DELETION, [LOST, REJECTED, api.MailAuthError("no")], api.MailAuthError, "may have been carried out"),
        (DELETION, [LOST, REJECTED, api.MailServerError("no")], api.MailServerError, "may have been carried out"),
        (DELETION, [LOST, respond(code=401)], api.MailAuthError, EARLIER),
        # A caller that counts what a rejected request left undone must know that the one before may have done it.
        (api.UpsertContact(email="ada@example.com"), [LOST, REJECTED], api.MailRejectedError, EARLIER),
        (api.UpsertContact(email="ada@example.com"), [LOST, respond(401, code=401)], api.MailAuthError, EARLIER),
    ],
)
def test_a_rejection_after_earlier_attempts(request_: MailRequest[Any], results: Any, error: Any, text: str) -> None:
    rehearsal, result = sending(request_, *results)
    assert len(rehearsal.asked) == len(results)
    if error is None:
        assert result.code == 200
    else:
        assert (type(result), result.may_have_taken_effect) == (error, text != "there is none")
        assert text in str(result)


REFUSED = respond(401, code=401)


@pytest.mark.parametrize(
    ("host", "request_", "results", "continues"),
    [
        ("service.example", READ, [REFUSED, GOOD], True),
        ("service.example", READ, [REFUSED, REFUSED], False),
        # Another service has other people.
        ("moved.example", READ, [REFUSED], False),
        # Its response was lost before: what may have been carried out is told.
        ("service.example", api.UpsertContact(email="ada@example.com"), [LOST, REFUSED], False),
    ],
)
def test_work_continues_with_new_credentials_of_the_same_service(
    host: str, request_: MailRequest[Any], results: Any, continues: bool
) -> None:
    renewed = api.ClientConfig(base_url=f"http://{host}", api_key="renewed")
    rehearsal, result = sending(request_, *results, renew=lambda: renewed)
    assert len(rehearsal.asked) == len(results)
    if continues:
        assert result.code == 200
        assert rehearsal.asked[-1].headers.items() >= renewed.credentials().items()
    else:
        assert (type(result), result.may_have_taken_effect) == (api.MailAuthError, LOST in results)


CANCEL = api.CancelCampaign(mail_name="news")


@pytest.mark.parametrize(
    ("status", "sent_in", "error"),
    [(-1, -5, api.MailPendingCampaignError), (1, 10**9, api.MailPendingCampaignError), (4, -5, api.MailRejectedError)],
)
def test_a_state_that_shows_nothing_is_no_cancellation(status: int, sent_in: int, error: type[api.MailError]) -> None:
    """Nor is a campaign that failed after its send time, which may have reached some."""
    sent = datetime.now(UTC) + timedelta(seconds=sent_in)
    campaign = {"mailName": "news", "mailStatus": status, "sendByDateTime": int(sent.timestamp() * 1000)}
    shown = api.GetCampaigns.response.model_validate({"mailList": [campaign]})
    results = chain([LOST, REJECTED], repeat(ABSENT))
    rehearsal = Rehearsal(lambda step: shown if isinstance(step, api.GetCampaigns) else next(results))
    with pytest.raises(error):
        exchange(rehearsal).send(CANCEL)


# One rate for all processes.

SHARED = {"requests_per_second": 1000, "rate_limit_url": "redis://limits"}
NOW = Slot(True, 0.0)


def test_a_request_waits_for_the_rate_of_all_processes() -> None:
    rehearsal, response = sending(READ, Slot(False, 2.0), Slot(False, 0.5), Slot(True, 0.25), GOOD, **SHARED)
    assert response.code == 200
    assert [type(step) for step in rehearsal.asked] == [Reserve, Reserve, Reserve, Call]
    assert rehearsal.pauses == [2.0, 0.5, 0.25]


@pytest.mark.parametrize(("late", "slots"), [(0.01, 1), (0.05, 1 + MAX_MISSED)])
def test_a_slot_that_is_missed_is_replaced_a_few_times(late: float, slots: int) -> None:
    """Whoever is late for a slot would meet those of the next ones; a machine that is always late sends."""
    rehearsal = Rehearsal(lambda step: Slot(True, 0.25) if isinstance(step, Reserve) else GOOD)
    rehearsal.late = late
    exchange(rehearsal, **SHARED).send(READ)
    assert [type(step) for step in rehearsal.asked] == [*[Reserve] * slots, Call]


def test_each_repetition_is_reserved_and_429_pauses_all() -> None:
    rehearsal, response = sending(READ, NOW, busy("7"), None, NOW, LOST, NOW, GOOD, **SHARED)
    assert response.code == 200
    assert rehearsal.asked[2] == PauseAll(7.0)
    assert [type(step) for step in rehearsal.asked] == [Reserve, Call, PauseAll, Reserve, Call, Reserve, Call]
    rehearsal, _ = sending(READ, busy("7"), GOOD, requests_per_second=1000)
    assert [type(step) for step in rehearsal.asked] == [Call, Call], "without Redis there are no such steps"
    with pytest.raises(api.MailConfigError, match="rate_limit_url: needs requests_per_second"):
        exchange(Rehearsal(None), rate_limit_url="redis://limits")


# The rule and its limits, Retry-After, the throttle.

RULE = api.RetrySettings(attempts=5, total_seconds=300, base_seconds=0.5, cap_seconds=30, retry_after_cap_seconds=120)
FINAL = [
    api.MailAuthError, api.MailConfigError, api.MailConflictError, api.MailIncompleteCampaignError,
    api.MailRejectedError, api.MailSandboxError, api.MailValidationError,
]  # fmt: skip
NEVER_ARRIVED = [api.MailConnectError, api.MailRateLimitError]
UNKNOWN = [api.MailResponseLostError, api.MailResponseError, api.MailServerError]


def pause(
    error: api.MailError, attempt: int = 1, elapsed: float = 0.0, draw: float = 1.0, rule: api.RetrySettings = RULE,
    *, repeatable: bool = True,
) -> float | None:  # fmt: skip
    return rule.pause_before_repeat(error, attempt, elapsed, repeatable=repeatable, draw=lambda: draw)


@pytest.mark.parametrize("repeatable", [True, False])
def test_what_is_repeated(repeatable: bool) -> None:
    expected = dict.fromkeys(FINAL, False) | dict.fromkeys(NEVER_ARRIVED, True) | dict.fromkeys(UNKNOWN, repeatable)
    assert {kind: pause(kind("x"), repeatable=repeatable) is not None for kind in expected} == expected


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_pause_is_full_jitter_below_a_doubling_bound(attempt: int, draw: float) -> None:
    rule = api.RetrySettings(attempts=20_000, base_seconds=0.5, cap_seconds=30)
    seconds = pause(api.MailConnectError("x"), attempt=attempt, draw=draw, rule=rule)
    assert seconds == pytest.approx(draw * min(30.0, 0.5 * 2 ** min(attempt - 1, 40)))


LIMITED, BUSY = api.MailRateLimitError("x"), api.MailServerError("x")


def retry_after(seconds: float) -> list[api.MailError]:
    return [kind("x", retry_after=seconds) for kind in (api.MailRateLimitError, api.MailServerError)]


@pytest.mark.parametrize(
    ("errors", "changes", "seconds"),
    [
        # The number of attempts, which a 429 does not count for; 1 repeats nothing.
        ([BUSY], {"attempt": 4, "draw": 0.0}, 0.0),
        ([BUSY, AWAY], {"attempt": 5}, None),
        ([LIMITED], {"attempt": 500, "draw": 0.0}, 0.0),
        ([LIMITED], {"rule": api.RetrySettings(attempts=1)}, None),
        # The total time, of every error.
        ([BUSY, AWAY, LIMITED], {"elapsed": 299.4}, 0.5),
        ([BUSY, AWAY, LIMITED], {"elapsed": 299.6}, None),
        ([LIMITED], {"elapsed": 300.1, "draw": 0.0}, None),
        # Retry-After, up to its limit, with jitter on top: clients with the same value must not return together.
        (retry_after(7), {"draw": 0.0}, 7.0),
        (retry_after(7), {"draw": 1.0}, 7.5),
        (retry_after(120), {"draw": 0.0}, 120.0),
        (retry_after(120.1), {"draw": 0.0}, None),
        (retry_after(100), {"elapsed": 250, "draw": 0.0}, None),
    ],
)
def test_the_limits_of_a_pause(errors: list[api.MailError], changes: dict[str, Any], seconds: float | None) -> None:
    assert {pause(error, **changes) for error in errors} == {seconds}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("7", 7), (" 7 ", 7), ("1.5", 1.5), ("0120", 120),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("Wed, 21 Oct 2015 07:28:00 -0000", 0),
        *((value, None) for value in (
            "", "soon", "-1", "nan", "inf", "-inf", "1e400", "9" * 400, "²", "Wed", "0 0 0 0 0 0", "1:2:3", "\x00",
            "Oct +999999999999999999999999 10000 99:99:99", "Wed, 99 Oct 2015 07:28:00 GMT",
        )),
    ],
)  # fmt: skip
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after_seconds({"retry-after": value}) == seconds


def test_retry_after_as_a_date_counts_from_now(clock: Clock) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    assert retry_after_seconds({"retry-after": until}) == pytest.approx(86_400, abs=60)
    clock.sleep(90_000)
    assert retry_after_seconds({"retry-after": until}) == 0
    assert retry_after_seconds({}) is None


def test_slots_are_spaced_evenly_and_behind_a_pause() -> None:
    now = Time()
    throttle, unlimited = Throttle(10.0, now), Throttle(None, now)
    assert [throttle.reserve() for _ in range(4)] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    now.now += 1.0
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([0.0, 0.1]), "unused time is not saved up"
    now.now += 0.5
    assert [unlimited.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    throttle.pause(5.0)
    throttle.pause(1.0)
    assert throttle.paused, "a pause is not shortened"
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([5.0, 5.1])
    now.now += 5.0
    assert not throttle.paused


# The service's clock.

SENT = 1_800_000_000.25
DAY = 86_400.0
OFFSETS, WAYS = st.floats(-MAX_OFFSET + DAY, MAX_OFFSET - DAY), st.floats(0, 60)


def header(moment: float) -> dict[str, str]:
    return {"date": formatdate(moment, usegmt=True)}


@given(OFFSETS | st.just(0.0), WAYS, WAYS, st.floats(-1_000_000, 1_000_000))
def test_the_offset_is_as_exact_as_the_header(offset: float, there: float, back: float, at: float) -> None:
    """And no request is dated later than the service dated it: of a slow response not much later than it was sent."""
    sent = SENT + at
    stamped, received = sent + there, sent + there + back
    clock = ServiceClock()
    clock.observe(header(stamped + offset), sent, received)
    assert abs(clock.offset - offset) <= max(1.0, there, back) + 1.0
    assert abs(clock.offset) <= abs(offset), "the smallest offset that explains the header"
    assert clock.asked_at is not None
    asked = clock.asked_at.timestamp() - offset
    if clock.offset:
        assert sent - 1.0 - back - 1e-3 <= asked <= min(stamped, sent + 2.0) + 1e-3
    else:
        assert clock.asked_at.timestamp() == pytest.approx(sent, abs=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        None, "", "tomorrow", "2027-01-15T08:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT",
        "Fri, 99 Dec 2027 23:59:59 GMT", "Fri, 31 Dec 2027 23:59:59 +9999999999",
    ],
)  # fmt: skip
def test_what_cannot_be_the_time_is_ignored(text: str | None) -> None:
    headers = {} if text is None else {"date": text}
    clock = ServiceClock()
    clock.observe(headers, SENT, SENT)
    assert (clock.offset, clock.asked_at) == (0.0, None)
    clock.observe(header(SENT + DAY), SENT, SENT)
    known = clock.offset
    clock.observe(headers, SENT, SENT)
    assert clock.offset == known > DAY - 2


def test_only_responses_of_the_service_count(emulator: Emulator, client: MailClient) -> None:
    """A failure may come from a proxy, which has a clock of its own; without a date it is the local time."""
    emulator.clock.advance(2 * DAY)
    emulator.faults.add("html_before", "lists/get", count=3)
    with pytest.raises(api.MailError):
        client.send(api.GetLists())
    emulator.settings.date_header = False
    client.send(api.GetLists())
    assert client.service_clock.offset == 0.0


def test_the_earliest_request_of_a_reading_dates_it() -> None:
    clock = ServiceClock()
    assert clock.asked_at is None
    for sent in (SENT + 5, SENT + 3, SENT + 9):
        clock.observe(header(sent), sent, sent)
    assert clock.asked_at == datetime.fromtimestamp(SENT + 3, UTC)
    clock.restart()
    clock.observe({}, SENT, SENT)
    assert clock.asked_at is None


# What is on the wire; `tests/document` compares every model with the specification.

ADA, NEWS, BLANK = "ada@example.com", "news@example.com", " \u200b\u00a0"
# Beside the examples of `tests/document`: blank names, what is absent, empty and false, and a time of another zone.
BODIES: list[tuple[MailRequest[Any], dict[str, Any]]] = [
    (
        api.SendMail(
            sender_mail=NEWS, sender_name=BLANK, to=api.Recipient(email=ADA, name=BLANK), subject="a", content="b"
        ),
        {"senderMail": NEWS, "to": {"email": ADA}, "subject": "a", "content": "b"},
    ),
    (api.UpsertContact(phone_number="+49 1", name=None), {"phoneNumber": "+49 1"}),
    (api.GetCampaigns(mail_status=[-1, 4], all_team=False), {"mailStatus": [-1, 4], "allTeam": False}),
    (
        api.CreateCampaign(
            mail_name="Grüße 新闻", sender_mail=NEWS, sender_name=BLANK, only_save=True, repel_list_names=[],
            send_date=datetime(2026, 1, 31, 9, 0, 0, 999_999, timezone(timedelta(hours=2))),
        ),
        {"mailName": "Grüße 新闻", "senderMail": NEWS, "onlySave": True, "sendDate": "2026-01-31T07:00:00Z",
         "repelListNames": []},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "body"), BODIES, ids=lambda request: type(request).__name__)
def test_the_service_receives_the_names_of_the_specification(
    request_: MailRequest[Any], body: dict[str, Any], emulator: Emulator, client: MailClient
) -> None:
    client.send(request_)
    (entry,) = emulator.journal.entries()
    assert (entry["body"], entry["operation"], entry["method"]) == (body, request_.path, "POST")


def test_the_token_exchange_is_sent_in_the_query(emulator: Emulator, client: MailClient) -> None:
    """Once a code `c%20` arrived as `c ` with the oldest httpx."""
    with pytest.raises(api.MailError, match="oauth/token"):
        client.send(api.GetToken(client_id="emulator-client", client_secret="a&b c+d", code="c%20"))
    (entry,) = emulator.journal.entries()
    query = {"grant_type": "authorization_code", "client_id": "emulator-client"}
    assert (entry["method"], entry["body"]) == ("GET", {**query, "client_secret": "a&b c+d", "code": "c%20"})
    assert not {"apikey", "oauth"} & entry["headers"].keys()


def test_a_mistake_names_every_field_and_shows_no_value() -> None:
    with pytest.raises(api.MailValidationError) as raised:
        api.CreateCampaign(mail_name="", sender_mail="secret", send_date=datetime(2026, 1, 1), contnet="x")
    text = str(raised.value)
    assert all(field in text for field in ("mail_name", "sender_mail", "send_date", "contnet"))
    assert ("secret" in text, raised.value.operation) == (False, "/v5/campaign/mail/sends")
    with pytest.raises(Exception, match="frozen"):
        api.UpsertContact(email=ADA).email = "else@example.com"  # type: ignore[misc]
