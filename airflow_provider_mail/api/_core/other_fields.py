"""Unknown fields of records: the service may add some, which are kept where records are stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from airflow_provider_mail.api._core.requests import Resource

T = TypeVar("T", bound=msgspec.Struct)

FLOAT_DIGITS = 15
"""Every decimal number of so many digits is a float's."""
_FRACTION = re.compile(rb"\.[0-9]+")

_NAME = " other fields of this record "
"""The name of ``other_fields`` in a struct: one that no service uses."""


class OpenResource(Resource, extra="allow"):
    """Base of records whose unknown fields are kept."""

    @property
    def other_fields(self) -> dict[str, Any] | None:
        """The fields that the model does not declare, as the service names them; ``None`` if there are none."""
        return self.model_extra or None

    def dump_declared(self) -> dict[str, Any]:
        """Return the fields that the model declares and the record has, as JSON values."""
        return self.model_dump(mode="json", include=set(type(self).model_fields), exclude_none=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        # Nobody knows what they hold: it may be personal data.
        for name, value in super().__repr_args__():
            yield name, "***" if self.model_extra and name in self.model_extra else value


def exact_number(text: str) -> float | Decimal:
    """Parse a number of JSON: as a float unless that has other digits.

    :param text: the number, with a fraction or an exponent.
    """
    number, exact = float(text), Decimal(text)
    return number if number - number != 0 or Decimal(repr(number)) == exact else exact


def has_long_decimal(body: bytes | bytearray) -> bool:
    """Return whether a text may have a decimal number of more digits than a float keeps.

    :param body: JSON.
    """
    for fraction in _FRACTION.finditer(body):
        start = fraction.start()
        whole = body[max(0, start - FLOAT_DIGITS) : start]
        if len(whole) - len(whole.rstrip(b"0123456789")) + len(fraction[0]) - 1 > FLOAT_DIGITS:
            return True
    return False


def declare_other_fields() -> Any:
    """Declare the field ``other_fields`` of a struct."""
    return msgspec.field(name=_NAME, default=None)


def decode_open(records: Iterable[msgspec.Raw], kind: type[T]) -> list[T]:
    """Decode records of which some have unknown fields; slower than without.

    :param kind: a struct that ignores unknown fields, with the field of `declare_other_fields`.
    :raises msgspec.DecodeError: when a known field is invalid.
    """
    known = {field.encode_name for field in msgspec.structs.fields(kind)} - {_NAME}
    decode_known = msgspec.json.Decoder(kind).decode
    decode_all = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number).decode
    decoded = []
    for text in records:
        record = decode_known(text)
        others = {name: value for name, value in decode_all(text).items() if name not in known}
        msgspec.structs.force_setattr(record, "other_fields", others or None)
        decoded.append(record)
    return decoded
