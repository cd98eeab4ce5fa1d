"""Unknown fields of records: the service may add some, which are kept where records are stored."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from airflow_provider_mail.api._core.requests import Resource

T = TypeVar("T", bound=msgspec.Struct)

_NAME = " other fields of this record "
"""The name of ``other_fields`` in a struct: one that no service uses."""


class OpenResource(Resource, extra="allow"):
    """Base of records whose unknown fields are kept."""

    @property
    def other_fields(self) -> dict[str, Any] | None:
        """The fields that the model does not declare, as the service names them; ``None`` if there are none."""
        return self.model_extra or None

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        # Nobody knows what they hold: it may be personal data.
        for name, value in super().__repr_args__():
            yield name, "***" if self.model_extra and name in self.model_extra else value


def declare_other_fields() -> Any:
    """Declare the field ``other_fields`` of a struct that forbids unknown fields."""
    return msgspec.field(name=_NAME, default=None)


def decode_open(records: Iterable[msgspec.Raw], kind: type[T]) -> list[T]:
    """Decode records of which some have unknown fields; slower than without.

    :param records: the records as JSON.
    :param kind: the struct, with the field of `declare_other_fields`.
    :raises msgspec.DecodeError: when a known field is invalid.
    """
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    decoded = []
    for record in records:
        fields = json.loads(bytes(record).decode())  # as for the model, which reads large numbers as they are
        if not isinstance(fields, dict):
            raise msgspec.ValidationError("a record is not an object")
        others = {name: fields.pop(name) for name in [name for name in fields if name not in known]}
        decoded.append(msgspec.convert({**fields, _NAME: others or None}, kind))
    return decoded
