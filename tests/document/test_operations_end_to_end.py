"""Every operation sent by our client: what the service received, what it then holds, what it holds after a sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailSandboxError, MailValidationError
from airflow_provider_mail.emulator import Emulator
from tests.document.examples import EXAMPLES, snapshot
from tests.document.fact_types import READ, UNLISTED, Operation
from tests.document.models import REQUESTS, model_of

SENDABLE = [operation for operation in REQUESTS if operation.effect != UNLISTED]
WRITES = [operation for operation in SENDABLE if operation.effect != READ]

by_key = pytest.mark.parametrize("operation", SENDABLE, ids=lambda operation: operation.key)


def body_of(operation: Operation) -> dict[str, Any]:
    return operation.minimal or (
        {"transCallbackUrl": "https://hooks.example/in"} if operation.key == "webhook.save" else {}
    )


def arranged(service: Emulator, operation: Operation) -> Emulator:
    service.clock.freeze()  # so that nothing changes by itself between two looks
    EXAMPLES[operation.key].arrange(service)
    return service


def test_every_operation_has_an_example_that_looks_at_what_it_does():
    assert {operation.key for operation in SENDABLE} == EXAMPLES.keys()
    looked_at = {key for key, example in EXAMPLES.items() if example.hold is not None}
    assert {operation.key for operation in WRITES} == looked_at
    read = {key for key, example in EXAMPLES.items() if example.answer is not None}
    assert {operation.key for operation in SENDABLE if operation.response} == read


@by_key
def test_an_operation_reaches_the_service_as_documented(operation: Operation, emulator: Emulator, client: MailClient):
    arranged(emulator, operation)
    answer = client.send(model_of(operation).model_validate(body_of(operation)))
    (entry,) = emulator.journal.entries()
    assert (entry["method"], entry["operation"]) == (operation.method, operation.path)
    assert entry["body"] == body_of(operation)
    assert entry["headers"]["content-type"] == "application/json"
    assert (entry["auth"], entry["processed"], entry["code"]) == ("api_key", True, 200)
    assert answer.code == 200
    example = EXAMPLES[operation.key]
    assert example.answer is None or example.answer(answer) == example.answered
    assert example.hold is None or example.hold(emulator) == example.held


@by_key
def test_an_access_token_opens_every_operation(operation: Operation, emulator: Emulator, config: ClientConfig):
    arranged(emulator, operation)
    token = SecretStr(emulator.issue_token())
    with MailClient(config.model_copy(update={"auth_type": "oauth", "access_token": token, "api_key": None})) as client:
        client.send(model_of(operation).model_validate(body_of(operation)))
    (entry,) = emulator.journal.entries()
    assert (entry["auth"], entry["code"]) == ("oauth", 200)


@pytest.mark.parametrize(
    "operation",
    [operation for operation in SENDABLE if operation.takes_sandbox_mode],
    ids=lambda operation: operation.key,
)
def test_in_sandbox_mode_nothing_changes(operation: Operation, emulator: Emulator, client: MailClient):
    before = snapshot(arranged(emulator, operation))
    answer = client.send(model_of(operation).model_validate(body_of(operation) | {"sandboxMode": True}))
    (entry,) = emulator.journal.entries()
    assert entry["body"] == body_of(operation) | {"sandboxMode": True}
    assert (answer.code, answer.message or "") == (200, "")
    assert snapshot(emulator) == before


@pytest.mark.parametrize(
    "operation",
    [operation for operation in SENDABLE if not operation.takes_sandbox_mode],
    ids=lambda operation: operation.key,
)
def test_operations_without_sandbox_mode_do_not_know_it(operation: Operation, emulator: Emulator, config: ClientConfig):
    with pytest.raises(MailValidationError, match="sandboxMode"):
        model_of(operation).model_validate(body_of(operation) | {"sandboxMode": True})
    arranged(emulator, operation)
    request = model_of(operation).model_validate(body_of(operation))
    with MailClient(config.model_copy(update={"sandbox": True})) as client:
        if operation.effect == READ:
            client.send(request)
            assert emulator.journal.count() == 1
        else:
            with pytest.raises(MailSandboxError, match=operation.path):
                client.send(request)
            assert emulator.journal.count() == 0
