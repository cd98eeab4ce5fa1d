"""Faults: the table of their kinds, and the list of those added."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from mail_emulator.responses import Response, html

Params = Mapping[str, Any]


@dataclass
class Plan:
    """The effects of a fault on one request, set by the fault and applied by the server and the operations."""

    fault: str | None = None
    #: Close the connection before reading the body.
    unread: bool = False
    delay_before: float = 0.0
    delay_after: float = 0.0
    #: Return this response without running the operation.
    instead: Response | None = None
    #: Close the connection without a response, before or after processing.
    lost: Literal["before", "after"] | None = None
    #: Close with RST instead of FIN.
    reset: bool = False
    rewrite: Callable[[Response], Response] | None = None
    #: Send this share of the body, then close the connection.
    cut: float | None = None
    bytes_per_second: float | None = None
    page_cap: int | None = None
    page_back: int = 0
    page_shift: int = 0
    #: Create and keep the campaign, and return code 500 with this message.
    kept_because: str | None = None


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault."""

    name: str
    meaning: str
    #: What the client sees: a late or slow response; no response; an error; an unreadable response; a readable but
    #: incomplete response; a valid response in an unusual form.
    outcome: Literal["slow", "lost", "error", "unreadable", "incomplete", "odd"]
    #: Whether the service processes the request.
    processed: bool
    #: The effects of a fault with these parameters.
    plan: Callable[[Params], Plan]
    #: Parameters with their defaults.
    parameters: Params = field(default_factory=dict)
    #: Paths of the operations it applies to; None is every one.
    operations: tuple[str, ...] | None = None


def too_many_requests(retry_after: float | None, form: str = "seconds") -> Response:
    """Return HTTP 429, with a ``Retry-After`` header unless its seconds are None."""
    response = Response({"code": 429, "message": "too many requests"}, 429)
    if retry_after is not None:
        moment = time.gmtime(time.time() + retry_after)
        text = time.strftime("%a, %d %b %Y %H:%M:%S GMT", moment) if form == "date" else f"{retry_after:g}"
        response.headers.append(("Retry-After", text))
    return response


def _http_error(params: Params) -> Response:
    return Response(status=params["status"], text=f"{params['status']} upstream trouble", content_type="text/plain")


def _page(params: Params) -> Response:
    return html("Please stand by", "<p>The service is being maintained.</p>", params["status"])


def _code(params: Params) -> Response:
    return Response({"code": params["code"], "message": params["message"]}, params["http_status"])


def _redirect(params: Params) -> Response:
    return Response(status=params["status"], text="", headers=[("Location", params["location"])])


def _after(response: Response) -> Plan:
    """Return this response after processing."""
    return Plan(rewrite=lambda processed: response)


def _cut_json(response: Response, share: float) -> Response:
    body = response.body
    return replace(response, text=body[: max(1, int(len(body) * share))])


def _records(response: Response) -> list[Any]:
    return next((value for value in response.payload.values() if isinstance(value, list)), [])


def _drop_records(response: Response, missing: int) -> Response:
    records = _records(response)
    del records[max(0, len(records) - missing) :]
    return response


def _empty_page(response: Response, keep: int, total: int | None) -> Response:
    del _records(response)[keep:]
    if total is not None:
        response.payload["totalRecords"] = total
    return response


def _wrong_total(response: Response, by: int | None) -> Response:
    if by is None:
        response.payload["totalRecords"] = None
    elif "totalRecords" in response.payload:
        response.payload["totalRecords"] += by
    return response


def _extra_fields(response: Response) -> Response:
    surprise = {"surprise": {"depth": [1, {"two": None}]}, "futureFlag": True}
    for record in [response.payload, *_records(response)]:
        if isinstance(record, dict):
            record.update(surprise)
    return response


def _code_as_text(response: Response) -> Response:
    response.payload["code"] = str(response.payload.get("code"))
    return response


_ERROR = {"code": 500, "message": "internal error", "http_status": 200}
_PAGED = ("/v5/contacts/list/get", "/v5/lists/get", "/v5/campaign/mail/template/get", "/v5/campaign/mail/get")
_STATS = ("/v5/campaign/mail/stats/get", "/v5/transactional/mail/stats/get")
_SENDS = ("/v5/campaign/mail/sends",)


# fmt: off
_TABLE = (
    FaultKind("delay", "waits, then processes and responds", "slow", True,
              lambda p: Plan(delay_before=p["seconds"]), {"seconds": 1.0}),
    FaultKind("delay_answer", "processes at once, responds late", "slow", True,
              lambda p: Plan(delay_after=p["seconds"]), {"seconds": 1.0}),
    FaultKind("drip", "sends the response a few bytes at a time", "slow", True,
              lambda p: Plan(bytes_per_second=p["bytes_per_second"]), {"bytes_per_second": 50.0}),
    FaultKind("refuse", "resets the connection after the headers, before reading the body", "lost", False,
              lambda p: Plan(unread=True, reset=True)),
    FaultKind("close_before", "reads the body, closes the connection without processing", "lost", False,
              lambda p: Plan(lost="before")),
    FaultKind("reset_before", "reads the body, resets the connection without processing", "lost", False,
              lambda p: Plan(lost="before", reset=True)),
    FaultKind("close_after", "processes, closes the connection without a response", "lost", True,
              lambda p: Plan(lost="after")),
    FaultKind("reset_after", "processes, resets the connection without a response", "lost", True,
              lambda p: Plan(lost="after", reset=True)),
    FaultKind("cut_body", "processes, closes the connection in the middle of the body", "lost", True,
              lambda p: Plan(cut=p["share"], reset=p["reset"]), {"share": 0.5, "reset": False}),
    FaultKind("too_many_requests", "HTTP 429; Retry-After as seconds or date; retry_after null leaves it out", "error",
              False, lambda p: Plan(instead=too_many_requests(p["retry_after"], p["form"])),
              {"retry_after": 1, "form": "seconds"}),
    FaultKind("http_error_before", "an HTTP error without processing", "error", False,
              lambda p: Plan(instead=_http_error(p)), {"status": 503}),
    FaultKind("http_error_after", "processes, returns an HTTP error", "error", True,
              lambda p: _after(_http_error(p)), {"status": 502}),
    FaultKind("code_before", "an error code in the body without processing", "error", False,
              lambda p: Plan(instead=_code(p)), _ERROR),
    FaultKind("code_after", "processes, returns an error code in the body", "error", True,
              lambda p: _after(_code(p)), _ERROR),
    FaultKind("attachment_failed", "code 500: adding the attachment failed, the task is kept", "error", True,
              lambda p: Plan(kept_because=p["message"]), {"message": "adding the attachment failed"}, _SENDS),
    FaultKind("task_check_failed", "code 500: the task check failed, the task is kept", "error", True,
              lambda p: Plan(kept_because=p["message"]), {"message": "the task check failed"}, _SENDS),
    FaultKind("redirect", "redirects without processing", "error", False,
              lambda p: Plan(instead=_redirect(p)), {"status": 307, "location": "http://127.0.0.1:9/elsewhere"}),
    FaultKind("html_before", "an HTML page without processing", "unreadable", False,
              lambda p: Plan(instead=_page(p)), {"status": 200}),
    FaultKind("html_after", "processes, returns an HTML page", "unreadable", True,
              lambda p: _after(_page(p)), {"status": 200}),
    FaultKind("cut_json", "processes, returns only the beginning of the JSON", "unreadable", True,
              lambda p: Plan(rewrite=lambda response: _cut_json(response, p["share"])), {"share": 0.5}),
    FaultKind("empty_body", "processes, returns an empty body", "unreadable", True,
              lambda p: _after(Response(text=""))),
    FaultKind("no_code", "processes, returns an empty JSON object", "unreadable", True,
              lambda p: _after(Response({}))),
    FaultKind("capped_pages", "pages hold fewer records than requested", "incomplete", True,
              lambda p: Plan(page_cap=p["size"]), {"size": 2}, _PAGED),
    FaultKind("repeated_page", "the page before the requested one", "incomplete", True,
              lambda p: Plan(page_back=p["back"]), {"back": 1}, _PAGED),
    FaultKind("shifted_pages", "records have moved between pages", "incomplete", True,
              lambda p: Plan(page_shift=p["by"]), {"by": 1}, _PAGED),
    FaultKind("empty_page", "a page with none, or the first few (keep), of its records; total: its totalRecords",
              "incomplete", True, lambda p: Plan(rewrite=lambda response: _empty_page(response, p["keep"], p["total"])),
              {"total": None, "keep": 0}, (*_PAGED, _STATS[0])),
    FaultKind("wrong_total", "totalRecords is wrong; by null: it is null", "incomplete", True,
              lambda p: Plan(rewrite=lambda response: _wrong_total(response, p["by"])), {"by": 1},
              (*_PAGED, _STATS[0])),
    FaultKind("short_stats", "fewer records than totalRecords says", "incomplete", True,
              lambda p: Plan(rewrite=lambda response: _drop_records(response, p["missing"])), {"missing": 1}, _STATS),
    FaultKind("extra_fields", "fields that the specification does not list", "odd", True,
              lambda p: Plan(rewrite=_extra_fields)),
    FaultKind("code_as_text", "the code as a string", "odd", True, lambda p: Plan(rewrite=_code_as_text)),
)
# fmt: on

#: Every kind of fault by name.
FAULT_KINDS: Mapping[str, FaultKind] = MappingProxyType({kind.name: kind for kind in _TABLE})


@dataclass
class Fault:
    """A fault that was added."""

    id: int
    kind: str
    #: A path, or ``*`` for every operation.
    operation: str
    #: How often it still applies; None is always.
    count: int | None
    #: How many matching requests it still skips.
    skip: int
    #: Top-level fields of the body that must have these values.
    where: dict[str, Any]
    params: dict[str, Any]
    struck: int = 0


class Faults:
    """The faults that were added. The first one that matches a request applies to it."""

    def __init__(self, operations: Iterable[str]) -> None:
        self._operations = sorted(operations)
        #: Also those used up.
        self.added: list[Fault] = []
        self._last_id = 0

    def add(
        self, kind: str, operation: str, count: int | None, skip: int, where: Mapping[str, Any], params: Params
    ) -> int:
        """Add a fault and return its id; see ``FaultControl.add``."""
        if kind not in FAULT_KINDS:
            raise ValueError(f"unknown kind of fault {kind!r}; there are: {', '.join(FAULT_KINDS)}")
        defaults = FAULT_KINDS[kind].parameters
        if unknown := params.keys() - defaults.keys():
            raise ValueError(
                f"fault {kind} has no parameter {', '.join(sorted(unknown))}; it has: {', '.join(defaults)}"
            )
        for name, value in params.items():
            _check(name, value, defaults[name])
        if operation != "*":
            operation = operation_path(operation)
            if operation not in self._operations:
                raise ValueError(f"unknown operation {operation!r}; known are: {', '.join(self._operations)}")
        self._last_id += 1
        self.added.append(Fault(self._last_id, kind, operation, count, skip, dict(where), {**defaults, **params}))
        return self._last_id

    def needs_body(self, operation: str) -> bool:
        """Whether selecting the fault requires the body."""
        return any(fault.where and self._may_apply(fault, operation) for fault in self.added)

    def plan(self, operation: str, body: Any) -> Plan:
        """Select the fault for a request, count it down and return its effects."""
        plan = None
        for fault in self.added:
            if not self._may_apply(fault, operation) or not _has(body, fault.where):
                continue
            if fault.skip:
                fault.skip -= 1
            elif plan is None:
                fault.struck += 1
                fault.count = None if fault.count is None else fault.count - 1
                plan = FAULT_KINDS[fault.kind].plan(fault.params)
                plan.fault = fault.kind
        return plan or Plan()

    @staticmethod
    def _may_apply(fault: Fault, operation: str) -> bool:
        return fault.operation in ("*", operation) and fault.count != 0


def operation_path(operation: str) -> str:
    """Return the full path: ``contacts/upsert`` is ``/v5/contacts/upsert``."""
    path = operation.strip("/")
    return f"/{path}" if path.startswith("v5/") else f"/v5/{path}"


def _check(name: str, value: Any, default: Any) -> None:
    """Reject a value that is not a number as the default is: it would fail only when the fault applies."""
    any_json = isinstance(default, bool) or not isinstance(default, int | float) or name == "code"
    if any_json or (value is None and name in ("by", "retry_after")):
        return
    types = (int,) if isinstance(default, int) and name != "retry_after" else (int, float)
    if type(value) not in types or not math.isfinite(value) or (value < 0 and name != "by"):
        expected = "a whole number" if types == (int,) else "a finite number"
        raise ValueError(f"parameter {name} must be {expected}{'' if name == 'by' else ', at least 0'}, not {value!r}")


def _has(body: Any, where: Mapping[str, Any]) -> bool:
    return not where or (isinstance(body, dict) and all(body.get(name) == value for name, value in where.items()))
