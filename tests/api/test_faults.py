"""What a client does about every fault, for every effect: what is repeated, how often, and what the service holds.

What must happen is derived from what a fault does on the wire (the emulator's table), not from the client's own flags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api._core.requests import Effect, MailRequest
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS, FaultKind
from tests.api.driving import KINDS, Driver
from tests.api.wire import closed_port
from tests.support.clock import Clock
from tests.support.sampling import pairwise

ADA, KEPT, DOOMED = "ada@example.com", "kept@example.com", "doomed@example.com"


@dataclass(frozen=True)
class Case:
    """An operation of one effect, and how to see how often it was carried out."""

    request: MailRequest[Any]
    held: Callable[[Emulator], int]


CASES = {
    Effect.READ: Case(api.GetContact(email=KEPT), lambda service: 0),
    Effect.REPEATABLE: Case(api.UpsertContact(email=ADA, name="Ada"), lambda service: int(bool(service.contact(ADA)))),
    Effect.CREATE: Case(api.AddList(list_name="customers"), lambda service: len(service.lists())),
    Effect.DELETE: Case(api.DeleteContact(email=DOOMED), lambda service: int(service.contact(DOOMED) is None)),
    Effect.SEND: Case(
        api.SendMail(subject="Hi", content="<p>Hi</p>", sender_mail="news@example.com", to=api.Recipient(email=ADA)),
        lambda service: len(service.messages()),
    ),
}
QUICKLY = {
    "delay": {"seconds": 0.02},
    "delay_answer": {"seconds": 0.02},
    "drip": {"bytes_per_second": 5000.0},
    "too_many_requests": {"retry_after": 0},
}
EVERYWHERE = [kind for kind in FAULT_KINDS.values() if kind.operations is None]


def final_error(kind: FaultKind, effect: Effect) -> type[api.MailError] | None:
    """What the client raises when the fault stays; ``None`` where it does not matter to a client."""
    if kind.outcome in ("slow", "odd"):
        return None
    if kind.name in ("redirect", "too_many_requests"):
        return api.MailConfigError if kind.name == "redirect" else api.MailRateLimitError
    if effect is Effect.SEND:
        return api.MailAmbiguousSendError
    return {"lost": api.MailAnswerLostError, "error": api.MailServerError, "unreadable": api.MailAnswerError}[
        kind.outcome
    ]


def is_repeated(kind: FaultKind, effect: Effect) -> bool:
    error = final_error(kind, effect)
    if error in (None, api.MailConfigError):
        return False
    return error is api.MailRateLimitError or effect in (Effect.READ, Effect.REPEATABLE, Effect.DELETE)


def fill(service: Emulator) -> Emulator:
    for address in (KEPT, DOOMED):
        service.add_contact(address)
    return service


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    return fill(emulator)


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
@pytest.mark.usefixtures("clock")
def test_a_fault_that_stays(effect: Effect, kind: FaultKind, service: Emulator, connect: Callable[..., Driver]) -> None:
    """Bounded in attempts (a 429 in time), and then the one error that fits."""
    case = CASES[effect]
    service.faults.add(kind.name, case.request.path, count=None, **QUICKLY.get(kind.name, {}))
    error = final_error(kind, effect)
    assert error is not None
    with pytest.raises(error) as raised:
        connect(service.base_url, retry=api.RetryRule(attempts=3)).send(case.request)
    assert type(raised.value) is error
    sent = service.journal.count(case.request.path)
    if error is api.MailRateLimitError:
        assert 5 < sent < 200
        assert case.held(service) == 0
    else:
        assert sent == (3 if is_repeated(kind, effect) else 1)
        # A deletion may have been carried out by the first of three.
        assert case.held(service) == (effect is not Effect.READ and kind.processed)


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_what_never_arrived_is_repeated(effect: Effect, clock: Clock, connect: Callable[..., Driver]) -> None:
    """Nothing listens at first; the service starts while the client is still trying."""
    case = CASES[effect]
    with closed_port() as port:
        late = fill(Emulator(port=port))
        late.add_sender("news@example.com")
    clock.after(20, late.start)
    try:
        connect(f"http://127.0.0.1:{port}", retry=api.RetryRule(attempts=1000)).send(case.request)
        assert case.held(late) == (effect is not Effect.READ)
        assert late.journal.count(case.request.path) == 1
    finally:
        late.stop()


@pairwise(effect=Effect, code=[400, 401, 403, 404], connect=["sync"], indirect=["connect"])
def test_a_rejection_is_final(effect: Effect, code: int, service: Emulator, client: Driver) -> None:
    case = CASES[effect]
    service.faults.add("code_before", case.request.path, count=None, code=code, message="no")
    with pytest.raises(api.MailError) as raised:
        client.send(case.request)
    assert raised.value.code == code
    assert not raised.value.temporary
    assert not raised.value.may_have_taken_effect
    assert service.journal.count() == 1
