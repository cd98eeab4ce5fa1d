"""The vocabulary of the facts of the specification, and how they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

YES, CONDITIONAL = "required", "conditional"
READ, DELETE_OR_CANCEL, UNLISTED = "READ", "DELETE_OR_CANCEL", "UNLISTED"
FORMATS = {
    *("utc", "date", "epoch_ms", "iso8601", "milliseconds", "email", "not_empty", "base64", "http_url"),
    *("http_url_or_empty", "alphanumeric", "not_a_top_level_domain"),
}
"""``utc`` is YYYY-MM-DDThh:mm:ssZ, ``date`` YYYY-MM-DD, ``milliseconds`` YYYY-MM-DD hh:mm:ss.mmm."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One field as the specification gives it.

    ``type`` is the JSON type on the wire. ``limited_elsewhere`` marks the name of an existing thing, whose longest form
    the specification gives where the thing is made.
    """

    wire: str
    type: str
    required: str = ""
    max_bytes: int | None = None
    max_length: int | None = None
    max_items: int | None = None
    min_items: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    enum: tuple[Any, ...] = ()
    format: str = ""
    fields: tuple[Fact, ...] = ()
    resource: str = ""
    nullable: bool = False
    limited_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, or one of the two documented forms of ``sends_customised``.

    ``minimal`` is a smallest request body (or query) that the specification's rules allow; ``response`` leaves out
    ``code`` and ``message``, which every JSON response has. ``effect`` is of the design, not of the specification.
    """

    key: str
    method: str
    path: str
    effect: str
    request: tuple[Fact, ...] = ()
    response: tuple[Fact, ...] = ()
    minimal: dict[str, Any] = field(default_factory=dict)

    @property
    def takes_sandbox_mode(self) -> bool:
        return any(f.wire == "sandboxMode" for f in self.request)


def facts(text: str, **groups: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Fields that are written with commas between them; each is a name, a type, and what else is said about it.

    :param text: ``[string]`` is an array of strings.
    :param groups: fields of objects, by the name behind ``fields=``.
    """
    return tuple(_fact(groups, *one.split()) for one in text.split(",") if one.strip())


def _fact(groups: dict[str, tuple[Fact, ...]], wire: str, kind: str, *rules: str) -> Fact:
    values: dict[str, Any] = {}
    for name, _, value in (rule.partition("=") for rule in rules):
        if name in (YES, CONDITIONAL):
            values["required"] = name
        elif name in FORMATS:
            values["format"] = name
        elif name == "enum":
            values["enum"] = tuple(int(one) if "integer" in kind else one for one in value.split("|"))
        elif name == "fields":
            values["fields"] = groups[value]
        elif name == "resource":
            values["resource"] = value.replace("_", " ")
        else:
            values[name] = int(value) if value else True
    return Fact(wire, kind.replace("[", "array of ").rstrip("]"), **values)


def operations(text: str, **groups: tuple[Fact, ...]) -> Iterator[Operation]:
    """Operations that are written in paragraphs: key, method, path and effect, then lines with a label."""
    for paragraph in text.strip().split("\n\n"):
        head, *parts = re.split(r"\n\s+(?=request:|response:|minimal:)", paragraph)
        key, method, path, effect = head.split()
        said = {name: value for name, _, value in (part.partition(":") for part in parts)}
        request, response = (facts(said.get(name, ""), **groups) for name in ("request", "response"))
        yield Operation(key, method, f"/v5/{path}", effect, request, response, json.loads(said.get("minimal", "{}")))
