"""Every operation sent by our client: what the service receives. `tests/api` has them in sandbox mode."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider_mail.api import MailClient
from airflow_provider_mail.api.config import ClientConfig
from mail_emulator import Emulator
from tests.document.examples import EXAMPLES
from tests.document.fact_types import UNLISTED, Operation
from tests.document.models import REQUESTS, model_of

SENDABLE = {operation.key: operation for operation in REQUESTS if operation.effect != UNLISTED}
by_key = pytest.mark.parametrize("operation", SENDABLE.values(), ids=SENDABLE)


def body_of(operation: Operation) -> dict[str, Any]:
    save = {"transCallbackUrl": "https://hooks.example/in"}
    return operation.minimal or (save if operation.key == "webhook.save" else {})


def test_every_operation_has_an_example():
    assert SENDABLE.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("size", ["smallest", "example"])
@by_key
def test_an_operation_reaches_the_service(
    operation: Operation, size: str, emulator: Emulator, client: MailClient, config: ClientConfig
):
    """The smallest with an access token, which opens every operation."""
    example, is_smallest = EXAMPLES[operation.key], size == "smallest"
    example.arrange(emulator)
    body = body_of(operation) if is_smallest else example.received
    request = model_of(operation).model_validate(body) if is_smallest else example.request
    token = {"auth_type": "oauth", "access_token": SecretStr(emulator.issue_token()), "api_key": None}
    with MailClient(config.model_copy(update=token)) as opened:
        response = (opened if is_smallest else client).send(request)
    (entry,) = emulator.journal.entries()
    assert (entry["method"], entry["operation"], entry["body"]) == (operation.method, operation.path, body)
    assert entry["headers"]["content-type"] == "application/json"
    auth = "oauth" if is_smallest else "api_key"
    assert (entry["auth"], entry["processed"], entry["code"]) == (auth, True, 200)
    assert (response.code, response.message or "") == (200, "")
