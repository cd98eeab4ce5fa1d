"""Unknown fields of records: the service may add fields, which are stored with the records."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from airflow_provider_mail.api._core.requests import Resource

T = TypeVar("T", bound=msgspec.Struct)

FLOAT_DIGITS = 15
"""A float represents every decimal number of at most this many digits exactly enough to restore it."""
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
        # Unknown fields may hold personal data.
        for name, value in super().__repr_args__():
            yield name, "***" if self.model_extra and name in self.model_extra else value


def exact_number(text: str) -> float | Decimal:
    """Parse a JSON number: as a float, unless a float has other digits.

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


def decode_open(records: Iterable[msgspec.Raw], struct_type: type[T]) -> list[T]:
    """Decode records of which some have unknown fields; slower than for records without.

    :param struct_type: a struct that ignores unknown fields, with the field of `declare_other_fields`.
    :raises msgspec.DecodeError: when a known field is invalid.
    """
    known = {field.encode_name for field in msgspec.structs.fields(struct_type)} - {_NAME}
    decode_known = msgspec.json.Decoder(struct_type).decode
    decode_all = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number).decode
    decoded = []
    for text in records:
        record = decode_known(text)
        others = {name: value for name, value in decode_all(text).items() if name not in known}
        msgspec.structs.force_setattr(record, "other_fields", others or None)
        decoded.append(record)
    return decoded
