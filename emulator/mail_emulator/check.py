"""The fields of a request and their checks.

A check takes a value and the settings, and returns the problem, or None for a valid value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mail_emulator.clock import parse_date, parse_iso
from mail_emulator.responses import ServiceError
from mail_emulator.settings import EmulatorSettings

Check = Callable[[Any, EmulatorSettings], str | None]
Body = dict[str, Any]

EMAIL = re.compile(r"[^\s\x00-\x1f\x7f@<>(),;:\"\[\]\\]+@[\w-]+(?:\.[\w-]+)+")
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z0-9]*")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a request: its name on the wire, its check, and its default."""

    name: str
    check: Check
    required: bool = False
    default: Any = None


def read(fields: Sequence[Field], body: Mapping[str, Any], settings: EmulatorSettings) -> Body:
    """Check a body and return it with defaults filled in; ServiceError 400 names the first wrong field."""
    values: Body = {}
    for field in fields:
        value = body.get(field.name)
        if value is None and (settings.null_is_absent or field.name not in body):
            if field.required:
                raise ServiceError(400, f"missing parameter: {field.name}")
            values[field.name] = field.default
            continue
        if field.required and value in ("", {}):
            raise ServiceError(400, f"missing parameter: {field.name} is empty")
        if problem := field.check(value, settings):
            # The check of a nested value has named its place.
            separator = "" if problem.startswith(("[", ".")) else " "
            raise ServiceError(400, f"invalid parameter: {field.name}{separator}{problem}")
        values[field.name] = value
    if settings.unknown_fields == "reject" and len(body) > len(values.keys() & body.keys()):
        unknown = ", ".join(sorted(body.keys() - values.keys()))
        raise ServiceError(400, f"unknown parameter: {unknown} (setting unknown_fields of the emulator)")
    return values


def _is(valid: Callable[[Any], object], problem: str) -> Check:
    return lambda value, settings: None if valid(value) else problem


def _is_a(python_type: type, name: str) -> Check:
    return _is(lambda value: isinstance(value, python_type), f"must be {name}")


anything = _is(lambda value: True, "")
text = _is_a(str, "a string")
boolean = _is_a(bool, "a boolean")
array = _is_a(list, "an array")
json_object = _is_a(dict, "an object")
moment = _is(
    lambda value: isinstance(value, str) and parse_iso(value) is not None,
    "is not ISO 8601 UTC, format YYYY-MM-DDThh:mm:ssZ",
)
date = _is(lambda value: isinstance(value, str) and parse_date(value) is not None, "is not a date, format YYYY-MM-DD")
web_address = _is(
    lambda value: isinstance(value, str) and value.startswith(("http://", "https://")), "must begin http:// or https://"
)


def email(value: Any, settings: EmulatorSettings) -> str | None:
    return text(value, settings) or (None if EMAIL.fullmatch(value) else "is not a valid email address")


def up_to_bytes(limit: int, *, labels: bool = False) -> Check:
    def check(value: Any, settings: EmulatorSettings) -> str | None:
        if problem := text(value, settings):
            return problem
        if len(value.encode(errors="surrogatepass")) > limit:
            return f"exceeds {limit} bytes"
        return "may hold letters and digits only" if labels and not _LETTERS_AND_DIGITS.fullmatch(value) else None

    return check


def integer(lowest: int | None = None) -> Check:
    def check(value: Any, settings: EmulatorSettings) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return "must be an integer"
        return f"must be at least {lowest}" if lowest is not None and value < lowest else None

    return check


def one_of(*values: Any) -> Check:
    """Return a check for one of some values of the same type."""
    return _is(
        lambda value: any(value == allowed and type(value) is type(allowed) for allowed in values),
        f"must be one of {', '.join(map(str, values))}",
    )


def list_of(check_item: Check, *, limit: int | None = None) -> Check:
    def check(value: Any, settings: EmulatorSettings) -> str | None:
        if not isinstance(value, list):
            return "must be an array"
        if limit is not None and len(value) > limit:
            return f"holds {len(value)} items, at most {limit} are allowed"
        for position, item in enumerate(value):
            if problem := check_item(item, settings):
                return f"[{position}]{'' if problem.startswith('.') else ' '}{problem}"
        return None

    return check


def record(*fields: Field) -> Check:
    def check(value: Any, settings: EmulatorSettings) -> str | None:
        if not isinstance(value, dict):
            return "must be an object"
        try:
            read(fields, value, settings)
        except ServiceError as error:
            problem, _, place = error.message.partition(" parameter: ")
            return f".{place}" + (f" ({problem})" if problem != "invalid" else "")
        return None

    return check
