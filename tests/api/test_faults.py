"""What a client does about every fault, for every effect: what is repeated, how often, and what the service holds.

What must happen is derived from what a fault does on the wire (the emulator's table), not from the client's own flags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Timer
from typing import Any

import pytest

from airflow_provider_mail.api._core.requests import Effect, MailRequest
from airflow_provider_mail.api.config import RetryRule
from airflow_provider_mail.api.contacts import DeleteContact, GetContact, UpsertContact
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAnswerError,
    MailAnswerLostError,
    MailConfigError,
    MailConnectError,
    MailError,
    MailRateLimitError,
    MailServerError,
)
from airflow_provider_mail.api.lists import AddList
from airflow_provider_mail.api.transactional import Recipient, SendMail
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS, FaultKind
from tests.api.driving import KINDS, QUICK, Driver
from tests.support.processes import free_port, wait_until
from tests.support.sampling import pairwise


@dataclass(frozen=True)
class Case:
    """An operation of one effect, and how to see how often it was carried out."""

    request: MailRequest[Any]
    held: Callable[[Emulator], int]


ADA = "ada@example.com"

CASES = {
    Effect.READ: Case(GetContact(email="kept@example.com"), lambda emulator: 0),
    Effect.REPEATABLE: Case(
        UpsertContact(email=ADA, name="Ada"), lambda emulator: int(emulator.contact(ADA) is not None)
    ),
    Effect.CREATE: Case(AddList(list_name="customers"), lambda emulator: len(emulator.lists())),
    Effect.DELETE: Case(
        DeleteContact(email="doomed@example.com"), lambda emulator: int(emulator.contact("doomed@example.com") is None)
    ),
    Effect.SEND: Case(
        SendMail(subject="Hi", content="<p>Hi</p>", sender_mail="news@example.com", to=Recipient(email=ADA)),
        lambda emulator: len(emulator.messages()),
    ),
}

QUICKLY = {
    "delay": {"seconds": 0.02},
    "delay_answer": {"seconds": 0.02},
    "drip": {"bytes_per_second": 5000.0},
    "too_many_requests": {"retry_after": 0},
}

EVERYWHERE = [kind for kind in FAULT_KINDS.values() if kind.operations is None]
REPEATED = (Effect.READ, Effect.REPEATABLE, Effect.DELETE)


def final_error(kind: FaultKind, effect: Effect) -> type[MailError] | None:
    """What the client says when the fault does not go away; None when it is none to a client."""
    if kind.outcome in ("slow", "odd"):
        return None
    if kind.name == "redirect":
        return MailConfigError
    if kind.name == "too_many_requests":
        return MailRateLimitError
    if effect is Effect.SEND:
        return MailAmbiguousSendError
    return {"lost": MailAnswerLostError, "error": MailServerError, "unreadable": MailAnswerError}[kind.outcome]


def is_repeated(kind: FaultKind, effect: Effect) -> bool:
    error = final_error(kind, effect)
    if error in (None, MailConfigError):
        return False
    return error is MailRateLimitError or effect in REPEATED


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_contact("kept@example.com")
    emulator.add_contact("doomed@example.com")
    return emulator


@pairwise(effect=Effect, kind=EVERYWHERE, connect=KINDS, indirect=["connect"])
def test_a_fault_that_passes(effect: Effect, kind: FaultKind, service: Emulator, client: Driver) -> None:
    """Repeated exactly where it cannot do harm; the service holds the effect once, or what the error says."""
    case = CASES[effect]
    service.faults.add(kind.name, case.request.path, **QUICKLY.get(kind.name, {}))
    error = final_error(kind, effect)
    if error is None or is_repeated(kind, effect):
        client.send(case.request)
        assert case.held(service) == (effect is not Effect.READ)
    else:
        with pytest.raises(error) as raised:
            client.send(case.request)
        assert type(raised.value) is error
        assert raised.value.operation == case.request.path
        assert case.request.path in str(raised.value)
        assert case.held(service) == (effect is not Effect.READ and kind.processed)
        if kind.processed:
            assert raised.value.may_have_taken_effect, "the service has done it"
    assert service.journal.count(case.request.path) == (2 if is_repeated(kind, effect) else 1)


@pairwise(
    effect=Effect,
    kind=[kind for kind in EVERYWHERE if kind.outcome not in ("slow", "odd")],
    connect=KINDS,
    indirect=["connect"],
)
def test_a_fault_that_stays(effect: Effect, kind: FaultKind, service: Emulator, connect: Callable[..., Driver]) -> None:
    """Bounded in attempts (a 429 in time), and then the one error that fits."""
    case = CASES[effect]
    service.faults.add(kind.name, case.request.path, count=None, **QUICKLY.get(kind.name, {}))
    error = final_error(kind, effect)
    assert error is not None
    rule = QUICK
    if error is MailRateLimitError:
        rule = RetryRule(attempts=2, total_seconds=0.5, base_seconds=0.02, cap_seconds=0.1)
    with pytest.raises(error) as raised:
        connect(service.base_url, retry=rule).send(case.request)
    assert type(raised.value) is error
    asked = service.journal.count(case.request.path)
    if error is MailRateLimitError:
        assert 2 < asked < 100
        assert case.held(service) == 0
    else:
        assert asked == (3 if is_repeated(kind, effect) else 1)
        # A deletion may have been carried out by the first of three.
        assert case.held(service) == (effect is not Effect.READ and kind.processed)


@pytest.mark.both_clients
@pytest.mark.parametrize("fault", ["delay", "delay_answer"])
@pytest.mark.parametrize("effect", [Effect.CREATE, Effect.SEND], ids=lambda effect: effect.value)
@pytest.mark.usefixtures("patient_connecting")
def test_an_answer_after_the_time_out_is_lost(
    effect: Effect, fault: str, service: Emulator, connect: Callable[..., Driver]
) -> None:
    case = CASES[effect]
    service.faults.add(fault, case.request.path, seconds=0.4)
    error = MailAmbiguousSendError if effect is Effect.SEND else MailAnswerLostError
    with pytest.raises(error) as raised:
        connect(service.base_url, timeout=0.15).send(case.request)
    assert raised.value.may_have_taken_effect
    wait_until(lambda: service.journal.count(case.request.path), what="the request", interval=0.01)
    assert service.journal.count(case.request.path) == 1


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_what_never_arrived_is_repeated_whatever_it_is(effect: Effect, connect: Callable[..., Driver]) -> None:
    """Nobody listens at first; the service comes up while the client is still trying."""
    case = CASES[effect]
    port = free_port()
    late = Emulator(port=port)
    for address in ("kept@example.com", "doomed@example.com"):
        late.add_contact(address)
    late.add_sender("news@example.com")
    rule = RetryRule(attempts=5000, total_seconds=60, base_seconds=0.02, cap_seconds=0.05)
    client = connect(f"http://127.0.0.1:{port}", retry=rule)
    coming = Timer(0.1, late.start)
    coming.start()
    try:
        client.send(case.request)
        assert case.held(late) == (effect is not Effect.READ)
        assert late.journal.count(case.request.path) == 1
    finally:
        coming.join()
        late.stop()


@pairwise(effect=Effect, connect=KINDS, indirect=["connect"])
def test_nobody_there(effect: Effect, connect: Callable[..., Driver]) -> None:
    with pytest.raises(MailConnectError, match=r"cannot be reached.*host") as raised:
        connect("http://127.0.0.1:9", retry=QUICK).send(CASES[effect].request)
    assert raised.value.temporary
    assert not raised.value.may_have_taken_effect


@pytest.mark.both_clients
def test_a_name_that_does_not_resolve(connect: Callable[..., Driver], no_such_host: str) -> None:
    with pytest.raises(MailConnectError, match="cannot be reached"):
        connect(f"http://{no_such_host}", retry=QUICK).send(CASES[Effect.SEND].request)


@pytest.mark.parametrize("code", [400, 401, 403, 404])
@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_a_refusal_is_final(effect: Effect, code: int, service: Emulator, client: Driver) -> None:
    case = CASES[effect]
    service.faults.add("code_before", case.request.path, count=None, code=code, message="no")
    with pytest.raises(MailError) as raised:
        client.send(case.request)
    assert raised.value.code == code
    assert not raised.value.temporary
    assert not raised.value.may_have_taken_effect
    assert service.journal.count() == 1
