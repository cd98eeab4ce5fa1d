"""Sending what a model would refuse: only so can it be seen what the service says to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from airflow_provider_mail.api._core.requests import Effect, MailRequest, MailResponse
from tests.document.fact_types import Operation
from tests.document.facts import OPERATIONS
from tests.document.models import model_of


def operation(key: str) -> Operation:
    """The operation of that key; ``ValueError`` when there is none."""
    (found,) = (operation for operation in OPERATIONS if operation.key == key)
    return found


@dataclass(frozen=True)
class Unchecked:
    """A request of an operation with any body at all; everything else is as its model has it."""

    model: type[MailRequest[Any]]
    body: dict[str, Any]

    @property
    def path(self) -> str:
        return self.model.path

    @property
    def method(self) -> str:
        return self.model.method

    @property
    def effect(self) -> Effect:
        return self.model.effect

    @property
    def authenticated(self) -> bool:
        return self.model.authenticated

    def decode(self, body: bytes | bytearray) -> None:
        return None

    def payload(self) -> bytes:
        return json.dumps(self.body).encode()

    def pii_values(self) -> Iterator[str]:
        return iter(())

    def senders(self) -> Iterator[str]:
        return iter(())

    def query(self) -> dict[str, str]:
        return dict(self.body)

    def read(self, answer: Any) -> MailResponse:
        return self.model.model_construct().read(answer)


def unchecked(key: str, body: dict[str, Any]) -> MailRequest[Any]:
    return cast(MailRequest[Any], Unchecked(model_of(operation(key)), body))
