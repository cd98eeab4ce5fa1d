"""The life of one request, step by step: no network, a clock that only pauses move, dice that always fall alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any

import pytest

from airflow_provider_mail.api._core.exchange import Call
from airflow_provider_mail.api._core.requests import Effect, MailRequest
from airflow_provider_mail.api._core.responses import HttpResponse
from airflow_provider_mail.api.campaigns import CancelCampaign, DeleteCampaign, GetCampaigns
from airflow_provider_mail.api.client import AsyncMailClient, MailClient
from airflow_provider_mail.api.config import ClientConfig, RetryRule
from airflow_provider_mail.api.contacts import DeleteContact, GetContact, UpsertContact
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAnswerLostError,
    MailAuthError,
    MailConnectError,
    MailError,
    MailPendingCampaignError,
    MailRateLimitError,
    MailRejectedError,
    MailServerError,
)
from airflow_provider_mail.api.lists import AddList, DeleteList, GetLists
from airflow_provider_mail.api.oauth import GetToken
from airflow_provider_mail.api.senders import DeleteSender, GetSenders
from airflow_provider_mail.api.templates import DeleteTemplate
from airflow_provider_mail.api.transactional import Recipient, SendMail
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import KINDS, Driver, Rehearsal, Time, exchange
from tests.support.sampling import pairwise

GOOD = HttpResponse(200, {}, b'{"code": 200}')
LOST = MailAnswerLostError("the response was lost", operation="/v5/x")
READ = GetLists()
SEND = SendMail(subject="s", content="c", sender_mail="news@example.com", to=Recipient(email="ada@example.com"))


def answer(status: int = 200, headers: dict[str, str] | None = None, **body: Any) -> HttpResponse:
    return HttpResponse(status, headers or {}, json.dumps({"code": 200, **body}).encode())


def in_turn(*answers: Any) -> Callable[[Any], Any]:
    left = list(answers)
    return lambda step: left.pop(0)


def busy(retry_after: str | None = None) -> HttpResponse:
    return HttpResponse(429, {} if retry_after is None else {"retry-after": retry_after}, b"")


def test_the_pauses_between_repetitions_double() -> None:
    time = Time()
    rehearsal = Rehearsal(in_turn(LOST, LOST, LOST, LOST, GOOD), time)
    rehearsal.run(exchange(time, draw=1.0).send(READ))
    assert rehearsal.pauses == [0.5, 1.0, 2.0, 4.0]


def test_the_last_error_is_raised_and_leads_nowhere_else() -> None:
    time = Time()
    with pytest.raises(MailServerError, match="HTTP 503") as raised:
        Rehearsal(in_turn(LOST, LOST, HttpResponse(503, {}, b"")), time).run(
            exchange(time, retry=RetryRule(attempts=3)).send(READ)
        )
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None


def test_total_time_counts_from_the_first_sending_and_not_from_standing_in_the_row() -> None:
    time = Time()
    core = exchange(time, requests_per_second=0.01, retry=RetryRule(total_seconds=50, base_seconds=1))
    core.throttle.reserve()
    rehearsal = Rehearsal(in_turn(MailConnectError("x"), GOOD), time)
    rehearsal.run(core.send(READ))
    assert rehearsal.at == [1100.0, 1200.0]


def test_repetitions_take_their_place_in_the_row_too() -> None:
    time = Time()
    core = exchange(time, requests_per_second=0.1, retry=RetryRule(base_seconds=1))
    rehearsal = Rehearsal(in_turn(LOST, LOST, GOOD), time)
    rehearsal.run(core.send(READ))
    assert rehearsal.at == [1000.0, 1010.0, 1020.0]


def test_each_request_is_told_with_the_time_that_it_was_held_back() -> None:
    time, told = Time(), list[tuple[Any, ...]]()
    core = exchange(time, requests_per_second=0.1, draw=0.5, retry=RetryRule(base_seconds=1), on_request=told.append)
    Rehearsal(in_turn(busy("7"), LOST, GOOD), time).run(core.send(READ))
    # Seven seconds for the 429, then the rate. The back-off after the lost response, a second, does not count.
    assert told == [(READ.path, False, 0.0), (READ.path, True, 10.0), (READ.path, True, 9.0)]


def test_429_holds_everything_that_the_client_sends() -> None:
    time = Time()
    core = exchange(time, draw=0.0)
    first = core.send(READ)
    assert isinstance(next(first), Call)
    first.send(busy("7"))
    other = Rehearsal(in_turn(GOOD), time)
    other.run(core.send(AddList(list_name="other")))
    assert other.at == [1007.0]


def test_a_503_that_asks_for_rest_holds_everything_too() -> None:
    time = Time()
    core = exchange(time, draw=0.0)
    first = core.send(READ)
    next(first)
    first.send(HttpResponse(503, {"retry-after": "7"}, b""))
    other = Rehearsal(in_turn(GOOD), time)
    other.run(core.send(READ))
    assert other.at == [1007.0]


def test_a_place_in_the_row_from_before_a_429_is_given_up() -> None:
    """Whoever already waits when the service says stop does not send in the middle of the rest."""
    time = Time()
    core = exchange(time, requests_per_second=1.0, draw=0.0)
    first, second, third = core.send(READ), core.send(READ), core.send(READ)
    assert isinstance(next(first), Call)
    assert next(second).seconds == pytest.approx(1.0)
    assert next(third).seconds == pytest.approx(2.0)
    assert first.send(busy("10")).seconds == pytest.approx(10.0)
    time.now += 1.0
    assert next(second).seconds == pytest.approx(9.0)
    time.now += 1.0
    assert next(third).seconds == pytest.approx(9.0), "behind the other, not beside it"
    time.now += 8.0
    assert isinstance(next(second), Call)
    time.now += 1.0
    assert isinstance(next(third), Call)


def test_retry_after_over_the_cap_gives_up_at_once_and_tells_the_caller() -> None:
    time = Time()
    rehearsal = Rehearsal(in_turn(busy("121")), time)
    with pytest.raises(MailRateLimitError) as raised:
        rehearsal.run(exchange(time).send(READ))
    assert raised.value.retry_after == 121
    assert rehearsal.pauses == []


def test_many_clients_of_one_limited_service_all_get_through() -> None:
    """Sixteen workers, ten requests a second allowed: nobody fails, and little is sent in vain."""
    time = Time()
    core = exchange(time)
    core._draw = iter((number * 0.618) % 1 for number in range(10**6)).__next__  # type: ignore[method-assign]
    served: list[float] = []
    refused = 0
    steps = [core.send(READ) for _ in range(16)]
    due = [(time.now, number) for number in range(16)]
    pending: dict[int, Any] = dict.fromkeys(range(16))
    left = 400
    while due:
        due.sort()
        moment, number = due.pop(0)
        time.now = max(time.now, moment)
        try:
            step = steps[number].send(pending[number])
        except StopIteration:
            left -= 1
            if left >= 16:
                steps[number], pending[number] = core.send(READ), None
                due.append((time.now, number))
            continue
        if isinstance(step, Call):
            if sum(1 for sent in served if sent > time.now - 1.0) < 10:
                served.append(time.now)
                pending[number] = GOOD
            else:
                refused += 1
                pending[number] = busy("1")
            due.append((time.now + 0.005, number))
        else:
            pending[number] = None
            due.append((time.now + step.seconds, number))
    assert len(served) == 400
    assert refused < 800
    assert time.now - 1000.0 < 60, "forty seconds is what the service allows"


def test_an_unknown_outcome_of_a_send_is_ambiguous() -> None:
    time = Time()
    request = GetToken(client_id="id", client_secret="s3cret", code="c0de")
    assert request.effect is Effect.SEND
    for result in (
        LOST,
        HttpResponse(500, {}, b""),
        HttpResponse(200, {}, b"<html>"),
        HttpResponse(200, {}, b'{"code": 200}'),
    ):
        rehearsal = Rehearsal(in_turn(result), time)
        with pytest.raises(MailAmbiguousSendError, match="not sent again") as raised:
            rehearsal.run(exchange(time).send(request))
        assert raised.value.may_have_taken_effect
        assert not raised.value.temporary, "a task that retries would send it again"
    assert len(rehearsal.asked) == 1


def test_a_send_that_never_arrived_is_not_ambiguous() -> None:
    time = Time()
    request = GetToken(client_id="id", client_secret="s3cret", code="c0de")
    rehearsal = Rehearsal(lambda call: MailConnectError("refused"), time)
    with pytest.raises(MailConnectError):
        rehearsal.run(exchange(time, retry=RetryRule(attempts=3)).send(request))
    assert len(rehearsal.asked) == 3


PAGES = [HttpResponse(status, {}, b"<html>no</html>") for status in (400, 403, 404, 407, 413, 422, 451)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.status))
def test_a_proxys_page_does_not_say_that_nothing_was_sent(page: HttpResponse) -> None:
    rehearsal = Rehearsal(in_turn(page), Time())
    with pytest.raises(MailAmbiguousSendError, match=f"HTTP {page.status}"):
        rehearsal.run(exchange(rehearsal.time).send(SEND))
    with pytest.raises(MailError) as raised:
        Rehearsal(lambda call: page).run(exchange(Time()).send(AddList(list_name="vip")))
    assert raised.value.may_have_taken_effect, "the name is looked up"
    if page.status != 413:
        rehearsal = Rehearsal(in_turn(page, page, GOOD))
        assert rehearsal.run(exchange(rehearsal.time).send(READ)).code == 200


def test_a_401_without_a_code_is_the_services_if_it_reads_nothing_either() -> None:
    page = HttpResponse(401, {}, b"<html>Unauthorized</html>")
    rehearsal = Rehearsal(in_turn(page, MailAuthError("no")))
    with pytest.raises(MailAuthError) as raised:
        rehearsal.run(exchange(rehearsal.time).send(SEND))
    assert not raised.value.may_have_taken_effect
    assert [step.path for step in rehearsal.asked] == [SEND.path, READ.path]
    for other in (GetLists.response(), MailAnswerLostError("lost")):
        with pytest.raises(MailAmbiguousSendError, match="HTTP 401"):
            Rehearsal(in_turn(page, other)).run(exchange(Time()).send(SEND))


def test_the_services_own_401_needs_no_question() -> None:
    rehearsal = Rehearsal(in_turn(answer(401, code=401)))
    with pytest.raises(MailAuthError):
        rehearsal.run(exchange(rehearsal.time).send(SEND))
    assert len(rehearsal.asked) == 1


def test_the_credentials_go_where_they_belong() -> None:
    time = Time()
    rehearsal = Rehearsal(lambda call: GOOD, time)
    rehearsal.run(exchange(time).send(READ))
    (call,) = rehearsal.asked
    assert call.headers["ApiKey"] == "key"
    assert call.headers["Content-Type"] == "application/json"
    assert (call.method, call.path, call.content, call.params) == ("POST", "/v5/lists/get", b"{}", None)
    rehearsal = Rehearsal(lambda call: answer(accessToken="t", expiresIn=-1), time)
    rehearsal.run(exchange(time).send(GetToken(client_id="id", client_secret="s", code="c")))
    (call,) = rehearsal.asked
    assert {"ApiKey", "OAuth"}.isdisjoint(call.headers)
    assert (call.method, call.content) == ("GET", None)
    assert call.params == {"grant_type": "authorization_code", "client_id": "id", "client_secret": "s", "code": "c"}


# Deletions: gone after a lost answer is success.

REFUSED = answer(code=404, message="there is none")


def campaign(status: int) -> Any:
    return GetCampaigns.response.model_validate({"mailList": [{"mailName": "news", "mailStatus": status}]})


NOTHING = MailRejectedError("no", operation="/v5/contacts/get", code=404)
CONTACT = GetContact.response.model_validate({"contact": {"email": "ada@example.com"}})
VIP = GetLists.response.model_validate({"lists": [{"ListName": "vip"}]})
OLD = GetSenders.response.model_validate({"mailFromDomains": [{"fromDomain": "old@Example.com"}]})
DELETIONS: list[tuple[MailRequest[Any], Any, bool]] = [
    (DeleteContact(email="ada@example.com"), NOTHING, True),
    (DeleteContact(email="ada@example.com"), GetContact.response(), True),
    (DeleteContact(email="ada@example.com"), CONTACT, False),
    (DeleteList(list_name="vip"), GetLists.response(total_records=0), True),
    (DeleteList(list_name="vip"), VIP, False),
    (DeleteSender(sender_email="Old@example.com"), GetSenders.response(), True),
    (DeleteSender(sender_email="Old@example.com"), OLD, False),
    (DeleteCampaign(mail_name="news"), GetCampaigns.response(total_records=0), True),
    (DeleteCampaign(mail_name="news"), campaign(2), False),
]


@pytest.mark.parametrize(("deletion", "look", "gone"), DELETIONS)
def test_a_deletion_refused_after_a_lost_answer_is_looked_into(
    deletion: MailRequest[Any], look: Any, gone: bool
) -> None:
    time = Time()
    rehearsal = Rehearsal(in_turn(LOST, REFUSED, look), time)
    steps = exchange(time).send(deletion)
    if gone:
        assert rehearsal.run(steps).code == 200
    else:
        with pytest.raises(MailRejectedError, match="there is none"):
            rehearsal.run(steps)
    assert [step.path for step in rehearsal.asked[:2]] == [deletion.path] * 2
    assert len(rehearsal.asked) == 3


def test_a_deletion_refused_at_once_is_refused() -> None:
    time = Time()
    rehearsal = Rehearsal(in_turn(REFUSED), time)
    with pytest.raises(MailRejectedError):
        rehearsal.run(exchange(time).send(DeleteContact(email="ada@example.com")))
    assert len(rehearsal.asked) == 1


def test_a_deletion_that_only_failed_to_arrive_before_is_refused() -> None:
    time = Time()
    rehearsal = Rehearsal(in_turn(MailConnectError("refused"), busy(), REFUSED), time)
    with pytest.raises(MailRejectedError):
        rehearsal.run(exchange(time).send(DeleteContact(email="ada@example.com")))
    assert len(rehearsal.asked) == 3


def test_a_lost_answer_is_remembered_over_other_failures() -> None:
    time = Time()
    rehearsal = Rehearsal(in_turn(LOST, MailConnectError("refused"), busy(), REFUSED, NOTHING), time)
    assert rehearsal.run(exchange(time).send(DeleteContact(email="ada@example.com"))).code == 200


@pytest.mark.parametrize("look", [MailAuthError("no"), MailServerError("no")])
def test_a_look_that_fails_proves_nothing(look: MailError) -> None:
    """A key revoked between the deletion and the look must not read as "deleted"."""
    time = Time()
    rehearsal = Rehearsal(in_turn(LOST, REFUSED, look), time)
    with pytest.raises(type(look)):
        rehearsal.run(exchange(time).send(DeleteContact(email="ada@example.com")))


def test_refused_credentials_after_a_lost_answer_are_refused_credentials() -> None:
    time = Time()
    rehearsal = Rehearsal(in_turn(LOST, answer(code=401)), time)
    with pytest.raises(MailAuthError):
        rehearsal.run(exchange(time).send(DeleteContact(email="ada@example.com")))
    assert len(rehearsal.asked) == 2


@pairwise(
    kind=["contact", "list", "template", "sender", "campaign", "cancel"],
    not_found=[404, 400, 200],
    lost=["close_before", "close_after"],
    connect=KINDS,
    indirect=["connect"],
)
def test_every_deletion_is_carried_out_whichever_side_of_it_the_answer_was_lost(
    kind: str, not_found: int, lost: str, emulator: Emulator, client: Driver
) -> None:
    emulator.settings.not_found_code = not_found
    emulator.add_contact("Ada@Example.com")
    emulator.add_list("vip")
    emulator.add_template("welcome", subject="s", content="c")
    emulator.add_sender("Old@Example.com", types=[1])
    emulator.add_campaign("news", state="scheduled", send_date="2999-01-01T00:00:00Z")
    request, left = {
        "contact": (DeleteContact(email="ada@example.com"), lambda: emulator.contact("ada@example.com")),
        "list": (DeleteList(list_name="vip"), emulator.lists),
        "template": (DeleteTemplate(template_name="welcome"), emulator.templates),
        "sender": (
            DeleteSender(sender_email="old@example.com"),
            lambda: [each for each in emulator.senders() if each["entry"] != "news@example.com"],
        ),
        "campaign": (DeleteCampaign(mail_name="news"), lambda: not emulator.campaigns("news")[0]["removed"]),
        "cancel": (CancelCampaign(mail_name="news"), lambda: emulator.campaigns("news")[0]["state"] == "scheduled"),
    }[kind]
    emulator.faults.add(lost, request.path)
    client.send(request)
    assert not left()
    sent = [entry for entry in emulator.journal.entries(request.path) if not entry["body"].get("sandboxMode")]
    assert len(sent) == 2


FAR = datetime(2999, 1, 1, tzinfo=UTC)
JUST_NOW = datetime.now(UTC) - timedelta(seconds=5)


@pytest.mark.parametrize("after", ["draft", "removed", "failed"])
@pytest.mark.parametrize("status", [-1, 1])
@pytest.mark.parametrize("lost", ["reset_after", "close_before"])
@pytest.mark.parametrize("hours", [-9, 0, 9])
def test_a_cancellation_with_a_lost_answer_is_true(
    hours: int, lost: str, status: Any, after: Any, emulator: Emulator, client: Driver
) -> None:
    """The first answer is lost, the second is a rejection that passes: green only if it is cancelled."""
    emulator.clock.advance(hours=hours)
    emulator.settings.state_after_cancel, emulator.settings.scheduled_status = after, status
    emulator.add_campaign("news", state="scheduled", send_date=emulator.clock.now() + timedelta(hours=1))
    emulator.faults.add(lost, "campaign/mail/cancel")
    emulator.faults.add("code_before", "campaign/mail/cancel", code=403, message="in progress")
    if lost == "close_before":
        with pytest.raises(MailRejectedError, match="in progress"):
            client.send(CancelCampaign(mail_name="news"))
    else:
        client.send(CancelCampaign(mail_name="news"))
    assert emulator.campaigns("news")[0]["cancelled"] == (lost == "reset_after")


@pytest.mark.parametrize(("status", "sent"), [(-1, JUST_NOW), (1, FAR)])
def test_a_state_that_does_not_tell_is_no_cancellation(status: int, sent: datetime) -> None:
    found = {"mailName": "news", "mailStatus": status, "sendByDateTime": int(sent.timestamp() * 1000)}
    shown = GetCampaigns.response.model_validate({"mailList": [found]})
    time = Time()
    answers = chain([LOST, REFUSED], repeat(NOTHING))
    rehearsal = Rehearsal(lambda step: shown if isinstance(step, GetCampaigns) else next(answers), time)
    with pytest.raises(MailPendingCampaignError, match="may have been carried out"):
        rehearsal.run(exchange(time).send(CancelCampaign(mail_name="news")))


@pytest.mark.parametrize("code", [401, 503])
def test_a_question_that_fails_is_no_cancellation(code: int, emulator: Emulator, client: Driver) -> None:
    emulator.settings.scheduled_status = -1
    emulator.add_campaign("news", state="scheduled", send_date=FAR)
    emulator.faults.add("close_before", "campaign/mail/cancel")
    emulator.faults.add("code_before", "campaign/mail/cancel", code=403)
    emulator.faults.add("code_before", "campaign/mail/cancel", code=code, count=None)
    with pytest.raises(MailError, match="may have been carried out"):
        client.send(CancelCampaign(mail_name="news"))


def test_a_cancellation_that_came_too_late_says_so_also_after_a_lost_answer(emulator: Emulator, client: Driver) -> None:
    emulator.add_campaign("news", state="done")
    emulator.faults.add("close_before", "campaign/mail/cancel")
    with pytest.raises(MailRejectedError, match="send time has passed"):
        client.send(CancelCampaign(mail_name="news"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_holds_across_threads_and_tasks(kind: str, emulator: Emulator) -> None:
    """As the service sees it: twenty at once, and the last arrives when the rate allows."""
    config = ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, requests_per_second=50)
    requests = [UpsertContact(email=f"c{number}@example.com") for number in range(20)]

    async def tasks() -> None:
        async with AsyncMailClient(config) as client:
            await asyncio.gather(*map(client.send, requests))

    if kind == "sync":
        with MailClient(config) as client, ThreadPoolExecutor(20) as pool:
            list(pool.map(client.send, requests))
    else:
        asyncio.run(tasks())
    arrivals = sorted(entry["real_ms"] for entry in emulator.journal.entries("contacts/upsert"))
    assert len(arrivals) == 20
    # Nineteen pauses of 20 ms; the first request also has to connect.
    assert arrivals[-1] - arrivals[0] >= 300


def test_a_rejection_after_a_lost_answer_does_not_say_that_nothing_was_done() -> None:
    """A caller that counts what a rejected request left undone must know that the attempt before may have done it."""
    for rejection in (REFUSED, answer(401, code=401)):
        with pytest.raises(MailError, match="an earlier attempt was lost") as raised:
            Rehearsal(in_turn(LOST, rejection)).run(exchange(Time()).send(UpsertContact(email="ada@example.com")))
        assert raised.value.may_have_taken_effect
    with pytest.raises(MailAuthError, match="an earlier attempt was lost"):
        Rehearsal(in_turn(LOST, answer(401, code=401))).run(exchange(Time()).send(DeleteList(list_name="vip")))


def test_a_deletion_rejected_of_what_is_still_there_has_done_nothing() -> None:
    with pytest.raises(MailRejectedError) as raised:
        Rehearsal(in_turn(LOST, REFUSED, VIP)).run(exchange(Time()).send(DeleteList(list_name="vip")))
    assert not raised.value.may_have_taken_effect
    assert "earlier attempt" not in str(raised.value)
