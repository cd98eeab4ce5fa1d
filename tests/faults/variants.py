"""Every fault that the emulator knows, with the parameters under which it looks different to a client.

A kind of fault that is new in the emulator's table is here by itself, with its default parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mail.emulator.faults import FAULT_KINDS, FaultKind

HASTY = 0.15
"""Seconds: the time-out of clients that meet faults which only take time; what is later than this is lost."""

_LATE = {"seconds": HASTY + 0.1}


def _statuses(*statuses: int) -> tuple[dict[str, Any], ...]:
    return tuple({"status": status} for status in statuses)


# What is not named here strikes with its default parameters.
PARAMETERS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "delay": (_LATE,),
    "delay_answer": (_LATE,),
    "drip": ({"bytes_per_second": 10}, {"bytes_per_second": 20_000}),
    "cut_body": ({"share": 0.0}, {"share": 0.5, "reset": True}, {"share": 0.98}),
    "too_many_requests": (
        {"retry_after": 0},
        {"retry_after": 2, "form": "date"},
        {"retry_after": 60},
        {"retry_after": 3600},
        {"retry_after": None},
    ),
    "http_error_before": _statuses(404, 408, 500, 502, 503, 504),
    "http_error_after": _statuses(500, 502, 503, 504),
    "code_before": (
        {"code": 500},
        {"code": 503, "http_status": 503},
        {"code": 400},
        {"code": 401, "http_status": 401},
        {"code": 403, "http_status": 403},
        {"code": 404},
        {"code": 429},
    ),
    "code_after": ({"code": 500}, {"code": 502, "http_status": 502}),
    "html_before": _statuses(200, 404, 503),
    "html_after": _statuses(200, 502),
    "cut_json": ({"share": 0.5}, {"share": 0.98}),
    "wrong_total": ({"by": 1}, {"by": -1}),
}


@dataclass(frozen=True)
class Variant:
    """A fault with parameters."""

    kind: FaultKind
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return " ".join([self.kind.name, *(f"{name}={value}" for name, value in self.params.items())])

    @property
    def takes_time(self) -> bool:
        """Whether it is the clock that makes it a fault, so that the client must be hasty."""
        return self.kind.outcome == "slow"

    @property
    def harmless(self) -> bool:
        """Whether a client need not even notice it."""
        return self.kind.outcome == "odd" or self.params.get("bytes_per_second", 0) > 1000

    @property
    def waits(self) -> bool:
        """Whether the service asks to come back later, and not too late: it has done nothing."""
        return (self.kind.name == "too_many_requests" and (self.params["retry_after"] or 0) <= 60) or (
            self.kind.name == "code_before" and self.params["code"] == 429
        )

    @property
    def refuses(self) -> bool:
        """Whether it says that the request itself is at fault."""
        given = {**self.kind.parameters, **self.params}
        said = given.get("code" if self.kind.name.startswith("code") else "status", 500)
        return 300 <= said < 500 and said not in (408, 429) and self.kind.outcome != "slow"

    @property
    def passes(self) -> bool:
        """Whether who asks again, or looks, comes through when it is over."""
        return self.waits or (
            self.kind.outcome in ("lost", "error", "unreadable", "slow")
            and self.kind.operations is None
            and self.kind.name != "too_many_requests"
            and not self.refuses
        )

    @property
    def looks_kept(self) -> bool:
        """Whether it is code 500 although the service has done it, as the document says of campaigns that it keeps."""
        of_creation = 500 if self.kind.operations else None
        said = {**self.kind.parameters, **self.params}.get("code", of_creation)
        return self.kind.processed and self.kind.outcome == "error" and said == 500

    def fits(self, path: str) -> bool:
        """Whether it makes sense for an operation."""
        return self.kind.operations is None or path in self.kind.operations


VARIANTS = tuple(Variant(kind, params) for name, kind in FAULT_KINDS.items() for params in PARAMETERS.get(name, ({},)))
