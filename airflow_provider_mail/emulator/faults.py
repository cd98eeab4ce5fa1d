"""Faults: one table of what can go wrong, and the list of those waiting to strike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from airflow_provider_mail.emulator.responses import Answer, html

Params = Mapping[str, Any]
Strike = Callable[["Plan", Params], None]


@dataclass
class Plan:
    """What befalls one request. A fault fills it in; server and operations carry it out."""

    fault: str | None = None
    #: Close without having read the body.
    unread: bool = False
    delay_before: float = 0.0
    delay_after: float = 0.0
    #: Answered by this; the operation is never reached.
    instead: Answer | None = None
    #: The connection is closed without an answer, before or after processing.
    lost: Literal["before", "after"] | None = None
    #: Connections are closed with RST instead of FIN.
    reset: bool = False
    rewrite: Callable[[Answer], Answer] | None = None
    #: Only this share of the body is sent before the connection is closed.
    cut: float | None = None
    bytes_per_second: float | None = None
    page_cap: int | None = None
    page_back: int = 0
    page_shift: int = 0
    #: A campaign is created and kept, and the answer is code 500 with this message.
    kept_because: str | None = None


@dataclass(frozen=True)
class FaultKind:
    """One row of the table of faults."""

    name: str
    meaning: str
    #: How it looks to the client: an answer too late or too slow; no answer; an answer that says no; an answer
    #: that cannot be read; an answer that reads well but does not hold everything; a good answer, oddly dressed.
    outcome: Literal["slow", "lost", "error", "unreadable", "incomplete", "odd"]
    #: Whether the service has carried the request out.
    processed: bool
    strike: Strike
    #: Parameters with their defaults.
    parameters: Params = field(default_factory=dict)
    #: Paths of the operations it makes sense for; None is every one.
    operations: tuple[str, ...] | None = None


def _sets(**values: Any) -> Strike:
    """A strike that sets fields of the plan; ``"$name"`` is the value of that parameter."""

    def strike(plan: Plan, params: Params) -> None:
        for name, value in values.items():
            setattr(plan, name, params[value[1:]] if isinstance(value, str) else value)

    return strike


def _closes(lost: Literal["before", "after"], *, reset: bool = False) -> Strike:
    """A strike that closes the connection without an answer."""

    def strike(plan: Plan, params: Params) -> None:
        plan.lost, plan.reset = lost, reset

    return strike


def _answers(make: Callable[[Params], Answer]) -> Strike:
    """A strike that answers without processing."""

    def strike(plan: Plan, params: Params) -> None:
        plan.instead = make(params)

    return strike


def _rewrites(change: Callable[[Answer, Params], Answer]) -> Strike:
    """A strike that processes and changes the answer."""

    def strike(plan: Plan, params: Params) -> None:
        plan.rewrite = lambda answer: change(answer, params)

    return strike


def too_many_requests(retry_after: float | None, form: str = "seconds") -> Answer:
    """HTTP 429, with ``Retry-After`` in seconds, as an HTTP date, or without (None)."""
    answer = Answer({"code": 429, "message": "too many requests"}, 429)
    if retry_after is not None:
        moment = time.gmtime(time.time() + retry_after)
        text = time.strftime("%a, %d %b %Y %H:%M:%S GMT", moment) if form == "date" else f"{retry_after:g}"
        answer.headers.append(("Retry-After", text))
    return answer


def _http_error(params: Params) -> Answer:
    return Answer(status=params["status"], text=f"{params['status']} upstream trouble", content_type="text/plain")


def _page(params: Params) -> Answer:
    return html("Please stand by", "<p>The service is being maintained.</p>", params["status"])


def _code(params: Params) -> Answer:
    return Answer({"code": params["code"], "message": params["message"]}, params["http_status"])


def _elsewhere(params: Params) -> Answer:
    return Answer(status=params["status"], text="", headers=[("Location", params["location"])])


def _cut_json(answer: Answer, params: Params) -> Answer:
    body = answer.body
    return replace(answer, text=body[: max(1, int(len(body) * params["share"]))])


def _records(answer: Answer) -> list[Any]:
    return next((value for value in answer.payload.values() if isinstance(value, list)), [])


def _drop_records(answer: Answer, params: Params) -> Answer:
    records = _records(answer)
    del records[max(0, len(records) - params["missing"]) :]
    return answer


def _empty_page(answer: Answer, params: Params) -> Answer:
    _records(answer).clear()
    if params["total"] is not None:
        answer.payload["totalRecords"] = params["total"]
    return answer


def _wrong_total(answer: Answer, params: Params) -> Answer:
    if "totalRecords" in answer.payload:
        answer.payload["totalRecords"] += params["by"]
    return answer


def _extra_fields(answer: Answer, params: Params) -> Answer:
    surprise = {"surprise": {"depth": [1, {"two": None}]}, "futureFlag": True}
    for record in [answer.payload, *_records(answer)]:
        if isinstance(record, dict):
            record.update(surprise)
    return answer


def _code_as_text(answer: Answer, params: Params) -> Answer:
    answer.payload["code"] = str(answer.payload.get("code"))
    return answer


_ERROR = {"code": 500, "message": "internal error", "http_status": 200}
_PAGED = (
    "/v5/contacts/list/get",
    "/v5/lists/get",
    "/v5/campaign/mail/template/get",
    "/v5/campaign/mail/get",
)
_STATS = ("/v5/campaign/mail/stats/get", "/v5/transactional/mail/stats/get")
_SENDS = ("/v5/campaign/mail/sends",)


# fmt: off
_TABLE = (
    FaultKind("delay", "waits, then processes and answers", "slow", True,
              _sets(delay_before="$seconds"), {"seconds": 1.0}),
    FaultKind("delay_answer", "processes at once, answers late", "slow", True,
              _sets(delay_after="$seconds"), {"seconds": 1.0}),
    FaultKind("drip", "sends the answer in drips", "slow", True,
              _sets(bytes_per_second="$bytes_per_second"), {"bytes_per_second": 50.0}),
    FaultKind("refuse", "resets the connection on sight of the head, the body unread", "lost", False,
              _sets(unread=True, reset=True)),
    FaultKind("close_before", "reads all, closes the connection without processing", "lost", False,
              _closes("before")),
    FaultKind("reset_before", "reads all, resets the connection without processing", "lost", False,
              _closes("before", reset=True)),
    FaultKind("close_after", "processes, closes the connection without an answer", "lost", True,
              _closes("after")),
    FaultKind("reset_after", "processes, resets the connection without an answer", "lost", True,
              _closes("after", reset=True)),
    FaultKind("cut_body", "processes, closes the connection in the middle of the body", "lost", True,
              _sets(cut="$share", reset="$reset"), {"share": 0.5, "reset": False}),
    FaultKind("too_many_requests", "HTTP 429; Retry-After as seconds or date; retry_after null leaves it out", "error",
              False, _answers(lambda p: too_many_requests(p["retry_after"], p["form"])),
              {"retry_after": 1, "form": "seconds"}),
    FaultKind("http_error_before", "an HTTP error without processing", "error", False,
              _answers(_http_error), {"status": 503}),
    FaultKind("http_error_after", "processes, answers with an HTTP error", "error", True,
              _rewrites(lambda answer, p: _http_error(p)), {"status": 502}),
    FaultKind("code_before", "an error code in the body without processing", "error", False,
              _answers(_code), _ERROR),
    FaultKind("code_after", "processes, answers with an error code in the body", "error", True,
              _rewrites(lambda answer, p: _code(p)), _ERROR),
    FaultKind("attachment_failed", "code 500: adding the attachment failed, the task is kept", "error", True,
              _sets(kept_because="$message"), {"message": "adding the attachment failed"}, _SENDS),
    FaultKind("task_check_failed", "code 500: the task check failed, the task is kept", "error", True,
              _sets(kept_because="$message"), {"message": "the task check failed"}, _SENDS),
    FaultKind("redirect", "sends the client elsewhere without processing", "error", False,
              _answers(_elsewhere), {"status": 307, "location": "http://127.0.0.1:9/elsewhere"}),
    FaultKind("html_before", "an HTML page without processing", "unreadable", False,
              _answers(_page), {"status": 200}),
    FaultKind("html_after", "processes, answers with an HTML page", "unreadable", True,
              _rewrites(lambda answer, p: _page(p)), {"status": 200}),
    FaultKind("cut_json", "processes, answers with the beginning of the JSON as if it were all", "unreadable", True,
              _rewrites(_cut_json), {"share": 0.5}),
    FaultKind("empty_body", "processes, answers with nothing", "unreadable", True,
              _rewrites(lambda answer, p: Answer(text=""))),
    FaultKind("no_code", "processes, answers with an empty JSON object", "unreadable", True,
              _rewrites(lambda answer, p: Answer({}))),
    FaultKind("capped_pages", "pages hold fewer records than asked for", "incomplete", True,
              _sets(page_cap="$size"), {"size": 2}, _PAGED),
    FaultKind("repeated_page", "the page before the one asked for, again", "incomplete", True,
              _sets(page_back="$back"), {"back": 1}, _PAGED),
    FaultKind("shifted_pages", "records have moved between pages", "incomplete", True,
              _sets(page_shift="$by"), {"by": 1}, _PAGED),
    FaultKind("empty_page", "a page without records although there are some", "incomplete", True,
              _rewrites(_empty_page), {"total": None}, _PAGED),
    FaultKind("wrong_total", "totalRecords is off", "incomplete", True,
              _rewrites(_wrong_total), {"by": 1}, (*_PAGED, _STATS[0])),
    FaultKind("short_stats", "fewer records than totalRecords says", "incomplete", True,
              _rewrites(_drop_records), {"missing": 1}, _STATS),
    FaultKind("extra_fields", "fields that the document does not know", "odd", True, _rewrites(_extra_fields)),
    FaultKind("code_as_text", "the code as a string", "odd", True, _rewrites(_code_as_text)),
)
# fmt: on

#: Every kind of fault by name: the table that a fault-matrix test enumerates.
FAULT_KINDS: Mapping[str, FaultKind] = MappingProxyType({kind.name: kind for kind in _TABLE})


@dataclass
class Fault:
    """One fault waiting to strike."""

    id: int
    kind: str
    #: A path, or ``*`` for every operation.
    operation: str
    #: How often it will still strike; None is for ever.
    count: int | None
    #: How many matching requests it still lets pass.
    skip: int
    #: Top-level fields of the body that must have these values.
    where: dict[str, Any]
    params: dict[str, Any]
    struck: int = 0


class Faults:
    """The faults waiting to strike. The first that matches a request strikes it; the others wait their turn.

    :param operations: paths of all operations; a fault for another one is refused, since it would never strike.
    """

    def __init__(self, operations: Iterable[str]) -> None:
        self._operations = sorted(operations)
        self._waiting: list[Fault] = []
        self._last_id = 0

    def add(
        self,
        kind: str,
        operation: str = "*",
        *,
        count: int | None = 1,
        skip: int = 0,
        where: Mapping[str, Any] | None = None,
        params: Params | None = None,
    ) -> int:
        """Arrange a fault and return its id; ``ValueError`` names what is wrong with it."""
        if kind not in FAULT_KINDS:
            raise ValueError(f"unknown kind of fault {kind!r}; there are: {', '.join(FAULT_KINDS)}")
        chosen, known = dict(params or {}), FAULT_KINDS[kind].parameters
        if unknown := chosen.keys() - known.keys():
            raise ValueError(f"fault {kind} has no parameter {', '.join(sorted(unknown))}; it has: {', '.join(known)}")
        if operation != "*":
            operation = operation_path(operation)
            if operation not in self._operations:
                raise ValueError(f"unknown operation {operation!r}; known are: {', '.join(self._operations)}")
        self._last_id += 1
        self._waiting.append(Fault(self._last_id, kind, operation, count, skip, dict(where or {}), {**known, **chosen}))
        return self._last_id

    def remove(self, fault_id: int) -> None:
        self._waiting = [fault for fault in self._waiting if fault.id != fault_id]

    def clear(self) -> None:
        self._waiting.clear()

    def list(self) -> list[dict[str, Any]]:
        """All faults arranged, those used up included, with how often each has struck."""
        return [asdict(fault) for fault in self._waiting]

    def need_body(self, operation: str) -> bool:
        """Whether only the body can tell which fault strikes."""
        return any(fault.where and self._may_strike(fault, operation) for fault in self._waiting)

    def plan(self, operation: str, body: Any) -> Plan:
        """What befalls a request of this operation; counts down what matched."""
        plan = Plan()
        for fault in self._waiting:
            if not self._may_strike(fault, operation) or not _has(body, fault.where):
                continue
            if fault.skip:
                fault.skip -= 1
            elif plan.fault is None:
                plan.fault = fault.kind
                fault.struck += 1
                fault.count = None if fault.count is None else fault.count - 1
                FAULT_KINDS[fault.kind].strike(plan, fault.params)
        return plan

    @staticmethod
    def _may_strike(fault: Fault, operation: str) -> bool:
        return fault.operation in ("*", operation) and fault.count != 0


def operation_path(operation: str) -> str:
    """``contacts/upsert`` and ``/v5/contacts/upsert`` mean the same operation."""
    path = operation.strip("/")
    return f"/{path}" if path.startswith("v5/") else f"/v5/{path}"


def _has(body: Any, where: Mapping[str, Any]) -> bool:
    return not where or (isinstance(body, dict) and all(body.get(name) == value for name, value in where.items()))
