"""A client in sandbox mode changes nothing: a write is only checked by the service, or not sent at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailSandboxError
from mail_emulator import Emulator
from tests.api.parts import Effect
from tests.document.examples import EXAMPLES, snapshot
from tests.document.fact_types import READ
from tests.document.facts import OPERATIONS

# As the specification lists them under "Operations that list a sandboxMode parameter".
KINDS = {operation.key: (operation.takes_sandbox_mode, operation.effect == READ) for operation in OPERATIONS}


@pytest.fixture
def client(connect: Callable[..., MailClient], emulator: Emulator) -> MailClient:
    return connect(emulator.base_url, sandbox=True)


@pytest.mark.parametrize("key", EXAMPLES)
def test_a_write_is_checked_or_not_sent(key: str, emulator: Emulator, client: MailClient, connect: Any) -> None:
    request, (takes_sandbox, is_read) = EXAMPLES[key].request, KINDS[key]
    assert (request.takes_sandbox, request.effect is Effect.READ) == KINDS[key]
    emulator.clock.freeze()  # so that nothing changes by itself between two looks
    EXAMPLES[key].arrange(emulator)
    before = snapshot(emulator)
    if not takes_sandbox and not is_read:
        with pytest.raises(MailSandboxError, match=rf"{request.path} has no sandboxMode .* nothing was sent") as raised:
            client.send(request)
        assert (raised.value.operation, raised.value.temporary) == (request.path, False)
        assert emulator.journal.count() == 0
    else:
        client.send(request)
        (entry,) = emulator.journal.entries()
        assert entry["body"].get("sandboxMode") is (None if is_read else True)
        assert entry["processed"] is is_read
    if takes_sandbox and not is_read:  # single requests and repetitions stay in the sandbox
        connect(emulator.base_url).send(request.model_copy(update={"sandbox_mode": True}))
        for fault, params in (
            ("close_after", {}),
            ("http_error_before", {}),
            ("too_many_requests", {"retry_after": 0}),
        ):
            emulator.faults.add(fault, request.path, **params)
            try:
                client.send(request)
            except Exception as error:
                assert request.effect in (Effect.CREATE, Effect.SEND), error  # noqa: PT017
        entries = emulator.journal.entries(request.path)
        assert len(entries) > 4
        assert all(entry["body"].get("sandboxMode") for entry in entries)
    assert snapshot(emulator) == before
