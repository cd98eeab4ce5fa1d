"""Sending what a model would reject: only so can it be seen what the service says to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from airflow_provider_mail.api import MailRequest, MailResponse
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

    def __getattr__(self, name: str) -> Any:
        if name in ("path", "method", "effect", "authenticated"):
            return getattr(self.model, name)
        if name in ("pii_values", "senders"):
            return lambda: iter(())
        raise AttributeError(name)

    def decode(self, body: bytes | bytearray) -> None:
        return None

    def payload(self) -> bytes:
        return json.dumps(self.body).encode()

    def read(self, response: Any) -> MailResponse:
        return self.model.model_construct().read(response)


def unchecked(key: str, body: dict[str, Any]) -> MailRequest[Any]:
    return cast(MailRequest[Any], Unchecked(model_of(operation(key)), body))
