"""What a client does about every fault, for every effect: what is repeated, how often, and what the service holds.

What must happen is derived from what a fault does on the wire (the emulator's table), not from the client's own flags.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail import api
from mail_emulator import Emulator
from mail_emulator.faults import FAULT_KINDS, FaultKind
from tests.api.driving import KINDS, Driver
from tests.api.parts import Effect
from tests.api.wire import closed_port
from tests.support.clock import Clock
from tests.support.sampling import pairwise

ADA, KEPT, DOOMED = "ada@example.com", "kept@example.com", "doomed@example.com"
SEND = api.SendMail(subject="Hi", content="Hi", sender_mail="news@example.com", to=api.Recipient(email=ADA))
# An operation of each effect, and how often it was carried out.
CASES: dict[Effect, tuple[Any, Callable[[Emulator], int]]] = {
    Effect.READ: (api.GetContact(email=KEPT), lambda service: 0),
    Effect.REPEATABLE: (api.UpsertContact(email=ADA, name="Ada"), lambda service: int(bool(service.contact(ADA)))),
    Effect.CREATE: (api.AddList(list_name="customers"), lambda service: len(service.lists())),
    Effect.DELETE: (api.DeleteContact(email=DOOMED), lambda service: int(service.contact(DOOMED) is None)),
    Effect.SEND: (SEND, lambda service: len(service.messages())),
}
ERRORS = {"lost": api.MailAnswerLostError, "error": api.MailServerError, "unreadable": api.MailAnswerError}
NAMED = {"redirect": api.MailConfigError, "too_many_requests": api.MailRateLimitError}
HARMLESS = ("slow", "odd")
QUICKLY = {"delay": {"seconds": 0.02}, "delay_answer": {"seconds": 0.02}, "drip": {"bytes_per_second": 5000.0}}


def final_error(kind: FaultKind, effect: Effect) -> type[api.MailError] | None:
    """What the client raises when the fault stays; ``None`` where it does not matter to a client."""
    if kind.outcome in HARMLESS or kind.name in NAMED:
        return NAMED.get(kind.name)
    return api.MailAmbiguousSendError if effect is Effect.SEND else ERRORS[kind.outcome]


def fill(service: Emulator) -> Emulator:
    for address in (KEPT, DOOMED):
        service.add_contact(address)
    return service


@pairwise(
    effect=Effect, kind=[kind for kind in FAULT_KINDS.values() if kind.operations is None], count=[1, None],
    connect=KINDS, indirect=["connect"],
)  # fmt: skip
@pytest.mark.usefixtures("clock")
def test_a_fault_that_passes_or_stays(
    effect: Effect, kind: FaultKind, count: int | None, emulator: Emulator, connect: Callable[..., Driver]
) -> None:
    """Repeated exactly where it cannot do harm; the service holds the effect once, or what the error says."""
    (request, held), service = CASES[effect], fill(emulator)
    service.faults.add(kind.name, request.path, count=count, **QUICKLY.get(kind.name, {}))
    client = connect(service.base_url, retry=api.RetryRule(attempts=3))
    error = final_error(kind, effect)
    limited = error is api.MailRateLimitError
    repeated = limited or (error in ERRORS.values() and effect is not Effect.CREATE)
    changes, sent = effect is not Effect.READ, service.journal.count
    if error is None or (repeated and count):
        client.send(request)
        assert (held(service), sent(request.path)) == (changes, 2 if repeated else 1)
        return
    with pytest.raises(error) as raised:
        client.send(request)
    assert (type(raised.value), raised.value.operation) == (error, request.path)
    assert request.path in str(raised.value)
    # A deletion may have been carried out by the first of three.
    assert held(service) == (changes and kind.processed)
    assert raised.value.may_have_taken_effect or not kind.processed
    # A 429 is limited by time.
    assert 5 < sent(request.path) < 200 if limited else sent(request.path) == (3 if repeated else 1)


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_what_never_arrived_is_repeated(effect: Effect, clock: Clock, connect: Callable[..., Driver]) -> None:
    """Nothing listens at first; the service starts while the client is still trying."""
    request, held = CASES[effect]
    with closed_port() as port:
        late = fill(Emulator(port=port))
        late.add_sender("news@example.com")
    clock.after(20, late.start)
    try:
        connect(f"http://127.0.0.1:{port}", retry=api.RetryRule(attempts=1000)).send(request)
        assert held(late) == (effect is not Effect.READ)
        assert late.journal.count(request.path) == 1
    finally:
        late.stop()
