"""Every operation sent by our client: what the service receives, and what it then holds, also in the sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider_mail.api import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.emulator import Emulator
from tests.document.examples import EXAMPLES, snapshot
from tests.document.fact_types import READ, UNLISTED, Operation
from tests.document.models import REQUESTS, model_of

SENDABLE = [operation for operation in REQUESTS if operation.effect != UNLISTED]


def by_key(operations: list[Operation]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operation", operations, ids=lambda operation: operation.key)


def body_of(operation: Operation) -> dict[str, Any]:
    save = {"transCallbackUrl": "https://hooks.example/in"}
    return operation.minimal or (save if operation.key == "webhook.save" else {})


def arranged(service: Emulator, operation: Operation) -> Emulator:
    service.clock.freeze()  # so that nothing changes by itself between two looks
    EXAMPLES[operation.key].arrange(service)
    return service


def test_every_operation_has_an_example_that_looks_at_its_result():
    by_example = {operation.key: EXAMPLES[operation.key] for operation in SENDABLE}
    assert by_example.keys() == EXAMPLES.keys()
    for operation in SENDABLE:
        assert (by_example[operation.key].hold is None) == (operation.effect == READ)
        assert (by_example[operation.key].answer is not None) == bool(operation.response)


@pytest.mark.parametrize("size", ["smallest", "example"])
@by_key(SENDABLE)
def test_an_operation_reaches_the_service(operation: Operation, size: str, emulator: Emulator, client: MailClient):
    arranged(emulator, operation)
    example = EXAMPLES[operation.key]
    body = body_of(operation) if size == "smallest" else example.received
    request = model_of(operation).model_validate(body) if size == "smallest" else example.request
    response = client.send(request)
    (entry,) = emulator.journal.entries()
    assert (entry["method"], entry["operation"]) == (operation.method, operation.path)
    assert entry["body"] == body
    assert entry["headers"]["content-type"] == "application/json"
    assert (entry["auth"], entry["processed"], entry["code"]) == ("api_key", True, 200)
    assert (response.code, response.message or "") == (200, "")
    assert example.answer is None or example.answer(response) == example.answered
    assert example.hold is None or example.hold(emulator) == example.held


@by_key(SENDABLE)
def test_an_access_token_opens_every_operation(operation: Operation, emulator: Emulator, config: ClientConfig):
    arranged(emulator, operation)
    token = SecretStr(emulator.issue_token())
    with MailClient(config.model_copy(update={"auth_type": "oauth", "access_token": token, "api_key": None})) as client:
        client.send(model_of(operation).model_validate(body_of(operation)))
    (entry,) = emulator.journal.entries()
    assert (entry["auth"], entry["code"]) == ("oauth", 200)


@by_key(SENDABLE)
def test_sandbox_mode_changes_nothing(operation: Operation, emulator: Emulator, client: MailClient):
    """Operations that do not list it do not know it; `tests/api` has the client in sandbox mode."""
    before, body = snapshot(arranged(emulator, operation)), body_of(operation) | {"sandboxMode": True}
    if not operation.takes_sandbox_mode:
        with pytest.raises(MailValidationError, match="sandboxMode"):
            model_of(operation).model_validate(body)
        return
    response = client.send(model_of(operation).model_validate(body))
    (entry,) = emulator.journal.entries()
    assert entry["body"] == body
    assert (response.code, response.message or "") == (200, "")
    assert snapshot(emulator) == before
