"""What a context tells: why somebody is written to, about which task or run, and what went wrong.

Contexts differ: a worker's is full, the dag-processor's knows no exception and sometimes no run, and a missed
deadline's holds nothing but the run, as a dictionary, and the deadline. Whatever is missing stays ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from urllib.parse import quote

MOST_ERROR_CHARACTERS = 600
MOST_ERROR_LINES = 12
MOST_ERROR_READ = 10_000


class Kind(Enum):
    """Why somebody is written to."""

    FAILED = "failed"
    RETRY = "up_for_retry"
    SUCCEEDED = "success"
    SKIPPED = "skipped"
    RUNNING = "running"
    RUN_FAILED = "run failed"
    RUN_SUCCEEDED = "run succeeded"
    DEADLINE = "deadline"
    DECISION = "decision"

    @property
    def about_the_run(self) -> bool:
        """Whether it is about a run rather than one of its tasks."""
        return self in (Kind.RUN_FAILED, Kind.RUN_SUCCEEDED, Kind.DEADLINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationContext:
    """One reason to write.

    :param map_index: -1 for a task that is not mapped.
    :param tries: how many the task has at most.
    :param moment: the run's logical date, or when it was to run.
    :param seconds: how long the task took.
    :param error: what went wrong, in a few lines without secrets and addresses.
    :param deadline: when the run was to be finished.
    :param deadline_id: Airflow's own.
    :param question: what a person is to decide, and about what.
    :param log_url: of the task instance's page; like the others only when ``[api] base_url`` is set.
    :param decision_url: where the person decides.
    """

    kind: Kind
    dag_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    map_index: int = -1
    try_number: int | None = None
    tries: int | None = None
    moment: datetime | None = None
    seconds: float | None = None
    error: str = ""
    deadline: datetime | None = None
    deadline_id: str | None = None
    question: tuple[str, str] | None = None
    log_url: str | None = None
    run_url: str | None = None
    decision_url: str | None = None

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> NotificationContext:
        """What a context of Airflow's tells."""
        from airflow_provider_mail.version_compat import conf

        ti = context.get("ti") or context.get("task_instance")
        run, deadline = context.get("dag_run"), context.get("deadline")
        kind = _kind(context)
        dag_id = _first(_get(ti, "dag_id"), _get(run, "dag_id"), _get(context.get("dag"), "dag_id"))
        run_id = _first(_get(ti, "run_id"), _get(run, "run_id"), _get(run, "dag_run_id"), context.get("run_id"))
        task_id, map_index = _get(ti, "task_id"), _get(ti, "map_index")
        map_index = -1 if map_index is None else map_index
        try_number, max_tries = (None, None) if kind.about_the_run else (_get(ti, "try_number"), _get(ti, "max_tries"))
        pages = _pages(conf.get("api", "base_url", fallback=None), dag_id, run_id, task_id, map_index, try_number)
        return cls(
            kind=kind,
            dag_id=dag_id,
            task_id=None if kind is Kind.RUN_SUCCEEDED else task_id,
            run_id=run_id,
            map_index=map_index,
            try_number=try_number,
            tries=None if max_tries is None else max_tries + 1,
            moment=_moment(_first(_get(run, "logical_date"), _get(run, "run_after"))),
            seconds=None if kind.about_the_run else _seconds(ti),
            error=_error(context),
            deadline=_moment(_get(deadline, "deadline_time")),
            deadline_id=_get(deadline, "id"),
            question=_question(context) if kind is Kind.DECISION else None,
            log_url=None if kind is Kind.RUN_SUCCEEDED else pages.get("task"),
            run_url=pages.get("run"),
            decision_url=pages.get("decision") if kind is Kind.DECISION else None,
        )

    @property
    def name(self) -> str:
        """Of what it is about."""
        parts = [self.dag_id] if self.kind.about_the_run else [self.dag_id, self.task_id]
        index = f"[{self.map_index}]" if self.map_index >= 0 and not self.kind.about_the_run else ""
        return ".".join(part for part in parts if part) + index

    @property
    def key(self) -> str | None:
        """The same whenever the same occasion is told, and no other's; ``None`` when too little is known of it."""
        if not (self.dag_id and self.run_id):
            return None
        parts = (self.kind.value, self.dag_id, self.task_id, self.run_id, self.map_index, self.try_number)
        return "/".join(map(str, (*parts, self.deadline_id)))


def _kind(context: Mapping[str, Any]) -> Kind:
    if context.get("deadline") is not None:
        return Kind.DEADLINE
    if (reason := context.get("reason")) is not None:
        return Kind.RUN_SUCCEEDED if reason == "success" else Kind.RUN_FAILED
    ti = context.get("ti") or context.get("task_instance")
    state = _get(ti, "state")
    state = getattr(state, "value", state)
    for kind in (Kind.FAILED, Kind.RETRY, Kind.SUCCEEDED, Kind.SKIPPED):
        if state == kind.value:
            return kind
    if context.get("exception") is None and _is_executing():
        return Kind.RUNNING if _question(context) is None else Kind.DECISION
    # What the dag-processor tells of a task that has died: that it failed, and not whether there is another try.
    try_number, max_tries = _get(ti, "try_number"), _get(ti, "max_tries")
    return Kind.RETRY if try_number and max_tries and try_number <= max_tries else Kind.FAILED


def _is_executing() -> bool:
    """Whether a task is being executed in this process: then nothing has ended yet."""
    from airflow.sdk import get_current_context

    try:
        get_current_context()
    except RuntimeError:
        return False
    return True


def _question(context: Mapping[str, Any]) -> tuple[str, str] | None:
    """What a human-in-the-loop operator asks."""
    task = context.get("task")
    if not (_get(task, "options") and _get(task, "subject")):
        return None
    return str(_get(task, "subject")), str(_get(task, "body") or "")


def _error(context: Mapping[str, Any]) -> str:
    from airflow_provider_mail._task.exceptions import without_addresses
    from airflow_provider_mail.version_compat import redact

    error = _first(context.get("exception"), context.get("reason"))
    if error is None or error == "success":
        return ""
    if isinstance(error, BaseException):
        said = str(error)
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    else:
        text = str(error).replace("_", " ") if error is context.get("reason") else str(error)
    # Secrets are looked for before anything is cut: half a secret would not be found.
    text = without_addresses(str(redact(text[:100_000]))[:MOST_ERROR_READ]).strip()
    lines = text.splitlines()
    short = "\n".join(lines[:MOST_ERROR_LINES])[:MOST_ERROR_CHARACTERS].rstrip()
    return short if short == text else f"{short} …"


def _pages(
    base_url: str | None, dag_id: str | None, run_id: str | None, task_id: str | None, map_index: int, try_: int | None
) -> dict[str, str]:
    """Addresses in Airflow's user interface."""
    if not (base_url and dag_id and run_id):
        return {}
    run = f"{base_url.rstrip('/')}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
    if not task_id:
        return {"run": run}
    task = f"{run}/tasks/{quote(task_id, safe='')}"
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    return {
        "run": run,
        "task": f"{task}{mapped}" + (f"?try_number={try_}" if try_ else ""),
        "decision": f"{task}/required_actions?map_index={map_index}",
    }


def _seconds(ti: Any) -> float | None:
    start, end = _moment(_get(ti, "start_date")), _moment(_get(ti, "end_date"))
    return None if start is None else max(0.0, ((end or datetime.now(UTC)) - start).total_seconds())


def _moment(value: Any) -> datetime | None:
    with suppress(ValueError):
        value = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _get(thing: Any, name: str) -> Any:
    """A value of a dictionary or an attribute of anything else; ``None`` when it is not to be had."""
    if isinstance(thing, Mapping):
        return thing.get(name)
    # What the dag-processor rebuilds of a task instance has properties that fail in any way.
    with suppress(Exception):
        return getattr(thing, name, None)
    return None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
