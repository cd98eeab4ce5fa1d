"""Sandbox on the client makes every write harmless: checked and not carried out, or not sent at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.api.campaigns import CreateCampaign
from airflow_provider_mail.api.contacts import UpsertContact
from airflow_provider_mail.api.errors import MailRejectedError, MailSandboxError
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver
from tests.document.examples import EXAMPLES, Example, snapshot
from tests.document.fact_types import READ
from tests.document.facts import OPERATIONS

ADA = "ada@example.com"
# As the document lists them under "Operations that list a sandboxMode parameter".
_KINDS = {operation.key: (operation.takes_sandbox_mode, operation.effect == READ) for operation in OPERATIONS}
CHECKED = {key: example for key, example in EXAMPLES.items() if _KINDS[key] == (True, False)}
REFUSED = {key: example for key, example in EXAMPLES.items() if _KINDS[key] == (False, False)}
READS = {key: example for key, example in EXAMPLES.items() if _KINDS[key] == (False, True)}


def each(examples: dict[str, Example]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", examples.values(), ids=list(examples))


def arranged(example: Example, emulator: Emulator) -> dict[str, Any]:
    """What the service holds when all is in place that the example needs."""
    emulator.clock.freeze()  # so that nothing changes by itself between two looks
    example.arrange(emulator)
    return snapshot(emulator)


@pytest.fixture
def client(connect: Callable[..., Driver], emulator: Emulator) -> Driver:
    return connect(emulator.base_url, sandbox=True)


@each(CHECKED)
def test_what_takes_sandbox_mode_is_checked_and_changes_nothing(
    example: Example, emulator: Emulator, client: Driver
) -> None:
    before = arranged(example, emulator)
    client.send(example.request)
    assert snapshot(emulator) == before
    (entry,) = emulator.journal.entries()
    assert entry["body"]["sandboxMode"] is True
    assert not entry["processed"]


@each(REFUSED)
def test_a_write_without_sandbox_mode_is_not_sent(example: Example, emulator: Emulator, client: Driver) -> None:
    arranged(example, emulator)
    with pytest.raises(MailSandboxError, match=r"has no sandboxMode .* nothing was sent") as raised:
        client.send(example.request)
    assert example.request.path in str(raised.value)
    assert raised.value.operation == example.request.path
    assert not raised.value.temporary
    assert emulator.journal.count() == 0


@each(READS)
def test_reads_go_through_as_ever(example: Example, emulator: Emulator, client: Driver) -> None:
    arranged(example, emulator)
    client.send(example.request)
    (entry,) = emulator.journal.entries()
    assert "sandboxMode" not in entry["body"]


@pytest.mark.parametrize(
    "body", [b"{}", b'{"sandboxMode": false}', b'{"email": {"sandboxMode": true}}', b"[true]", b"no JSON"]
)
def test_what_cannot_be_marked_is_not_sent(body: bytes, emulator: Emulator, client: Driver) -> None:
    """A request that says that it takes the sandbox, and whose body is made in its own way."""

    class Encoded(UpsertContact):
        def payload(self) -> bytes:
            return body

    with pytest.raises(MailSandboxError, match="nothing was sent") as raised:
        client.send(Encoded(email=ADA))
    assert raised.value.operation == Encoded.path
    assert emulator.journal.count() == 0


def test_every_request_is_in_one_of_the_three() -> None:
    assert {*CHECKED, *REFUSED, *READS} == EXAMPLES.keys()
    assert len(CHECKED) >= 12
    assert len(REFUSED) >= 3
    assert len(READS) >= 10
    for example in CHECKED.values():
        assert example.request.takes_sandbox
    for example in (*REFUSED.values(), *READS.values()):
        assert not example.request.takes_sandbox
    assert {example.request.effect for example in READS.values()} == {Effect.READ}
    assert Effect.READ not in {example.request.effect for example in (*CHECKED.values(), *REFUSED.values())}


def test_what_is_wrong_is_reported(client: Driver) -> None:
    with pytest.raises(MailRejectedError, match="nobody"):
        client.send(CreateCampaign(mail_name="n", sender_mail="news@example.com", send_list_names=["nobody"]))


@each(CHECKED)
def test_one_request_alone_may_be_in_the_sandbox(
    example: Example, emulator: Emulator, connect: Callable[..., Driver]
) -> None:
    before = arranged(example, emulator)
    connect(emulator.base_url).send(example.request.model_copy(update={"sandbox_mode": True}))
    assert snapshot(emulator) == before


@pytest.mark.parametrize("fault", ["close_after", "http_error_before", "too_many_requests"])
@each(CHECKED)
def test_repetitions_stay_in_the_sandbox(example: Example, fault: str, emulator: Emulator, client: Driver) -> None:
    request = example.request
    before = arranged(example, emulator)
    emulator.faults.add(fault, request.path, **({"retry_after": 0} if fault == "too_many_requests" else {}))
    try:
        client.send(request)
    except Exception as error:
        assert request.effect in (Effect.CREATE, Effect.SEND), error  # noqa: PT017
    assert snapshot(emulator) == before
    entries = emulator.journal.entries(request.path)
    assert entries
    assert all(entry["body"].get("sandboxMode") for entry in entries)
