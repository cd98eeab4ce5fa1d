"""The vocabulary of the facts of the specification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

YES, NO, CONDITIONAL = "yes", "no", "conditional"

READ = "READ"
REPEATABLE = "REPEATABLE"
CREATE = "CREATE"
DELETE_OR_CANCEL = "DELETE_OR_CANCEL"
SEND = "SEND"
UNLISTED = "UNLISTED"


@dataclass(frozen=True, slots=True)
class Fact:
    """One field as the specification gives it.

    ``type`` is the JSON type on the wire; ``inferred`` marks a type that the specification gives elsewhere (in the
    resource or for the same field of another operation) and not beside this field. ``limited_elsewhere`` marks the name
    of an existing thing, whose longest form the specification gives where the thing is made. ``format`` is one of
    ``utc`` (YYYY-MM-DDThh:mm:ssZ), ``date`` (YYYY-MM-DD), ``epoch_ms``, ``iso8601``, ``email``, ``not_empty``,
    ``base64``, ``http_url``, ``http_url_or_empty``, ``alphanumeric``, ``not_a_top_level_domain``.
    """

    wire: str
    type: str
    required: str = NO
    when: str = ""
    default: Any = None
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
    inferred: bool = False
    limited_elsewhere: bool = False
    note: str = ""


def same(type: str, *names: str) -> tuple[Fact, ...]:
    """Fields of one type about which there is no more to say."""
    return tuple(Fact(name, type) for name in names)


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
