"""The content of a notification, read from Airflow's context, and its default subject and HTML.

Contexts differ. A worker's is complete; the dag-processor's has no exception and sometimes no run; the context of a
missed deadline has only the run, as a dictionary, and the deadline. Missing values are ``None``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from urllib.parse import quote

from airflow.sdk import get_current_context
from jinja2 import Environment, PackageLoader

from airflow_provider_mail._config import name_prefix
from airflow_provider_mail.api._core.fields import without_addresses
from airflow_provider_mail.version_compat import conf, redact

MAX_ERROR_CHARACTERS = 600
MAX_ERROR_LINES = 12
MAX_ERROR_CHARACTERS_READ = 10_000
MAX_QUESTION_CHARACTERS = 2000

_TEMPLATES = Environment(
    loader=PackageLoader("airflow_provider_mail", "notifications"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


class Reason(Enum):
    """The reason for a notification: the state of the task, or another name; the headline, and its color."""

    FAILED = "failed", "Failed", "#b3261e"
    RETRY = "up_for_retry", "Failed, will retry", "#8a5a00"
    SUCCEEDED = "success", "Succeeded", "#1b6e3c"
    SKIPPED = "skipped", "Skipped", "#4a5560"
    RUNNING = "running", "Running", "#4a5560"
    RUN_FAILED = "run failed", "Run failed", "#b3261e"
    RUN_SUCCEEDED = "run succeeded", "Run succeeded", "#1b6e3c"
    DEADLINE = "deadline", "Deadline missed", "#b3261e"
    DECISION = "decision", "Waiting for a decision", "#1257a6"

    def __init__(self, state: str, headline: str, color: str) -> None:
        self.state, self.headline, self.color = state, headline, color

    @property
    def is_about_run(self) -> bool:
        """Whether it reports a run rather than a task."""
        return self in (Reason.RUN_FAILED, Reason.RUN_SUCCEEDED, Reason.DEADLINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationContext:
    """What a notification reports. URLs are known when ``[api] base_url`` is set.

    :param run_date: logical date of the run, or the time after which it was due to run.
    :param error: the error in a few lines, without secrets and email addresses.
    :param occurrence: what distinguishes this try, run or deadline from others of the same name, such as the run after
        it was cleared; ``None`` when it is not known.
    :param question: subject and body of the decision that a person is asked for.
    :param decision_url: URL of the form in which a person decides.
    """

    reason: Reason
    dag_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    map_index: int = -1
    try_number: int | None = None
    max_tries: int | None = None
    run_date: datetime | None = None
    seconds: float | None = None
    error: str = ""
    deadline: datetime | None = None
    occurrence: str | None = None
    question: tuple[str, str] | None = None
    log_url: str | None = None
    run_url: str | None = None
    decision_url: str | None = None

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> NotificationContext:
        ti = context.get("ti") or context.get("task_instance")
        run, deadline = context.get("dag_run"), context.get("deadline")
        reason = _reason(context)
        dag_id = _first(_get(ti, "dag_id"), _get(run, "dag_id"), _get(context.get("dag"), "dag_id"))
        run_id = _first(_get(ti, "run_id"), _get(run, "run_id"), _get(run, "dag_run_id"), context.get("run_id"))
        task_id, map_index = _get(ti, "task_id"), _get(ti, "map_index")
        map_index = -1 if map_index is None else map_index
        try_number, max_tries = (None, None) if reason.is_about_run else (_get(ti, "try_number"), _get(ti, "max_tries"))
        urls = _urls(conf.get("api", "base_url", fallback=None), dag_id, run_id, task_id, map_index, try_number)
        return cls(
            reason=reason,
            dag_id=dag_id,
            task_id=None if reason is Reason.RUN_SUCCEEDED else task_id,
            run_id=run_id,
            map_index=map_index,
            try_number=try_number,
            max_tries=None if max_tries is None else max_tries + 1,
            run_date=_moment(_first(_get(run, "logical_date"), _get(run, "run_after"))),
            seconds=None if reason.is_about_run else _seconds(ti),
            error=_error(context),
            deadline=_moment(_get(deadline, "deadline_time")),
            occurrence=_occurrence(reason, ti, run, deadline),
            question=_question(context) if reason is Reason.DECISION else None,
            log_url=None if reason is Reason.RUN_SUCCEEDED else urls.get("task"),
            run_url=urls.get("run"),
            decision_url=urls.get("decision") if reason is Reason.DECISION else None,
        )

    @property
    def name(self) -> str:
        parts = [self.dag_id] if self.reason.is_about_run else [self.dag_id, self.task_id]
        index = f"[{self.map_index}]" if self.map_index >= 0 and not self.reason.is_about_run else ""
        return ".".join(part for part in parts if part) + index

    @property
    def key(self) -> str | None:
        """Identifier of this event, equal when its callback runs again; ``None`` if too little is known."""
        if not (self.dag_id and self.run_id and self.occurrence):
            return None
        # As a list: ids may contain any separator.
        names = [name_prefix(), self.dag_id, self.task_id, self.run_id, self.map_index]
        return json.dumps([self.reason.state, *names, self.occurrence])


def _reason(context: Mapping[str, Any]) -> Reason:
    if context.get("deadline") is not None:
        return Reason.DEADLINE
    if (outcome := context.get("reason")) is not None:
        return Reason.RUN_SUCCEEDED if outcome == "success" else Reason.RUN_FAILED
    ti = context.get("ti") or context.get("task_instance")
    state = _get(ti, "state")
    state = getattr(state, "value", state)
    for reason in (Reason.FAILED, Reason.RETRY, Reason.SUCCEEDED, Reason.SKIPPED):
        if state == reason.state:
            return reason
    if context.get("exception") is None and _is_executing():
        return Reason.RUNNING if _question(context) is None else Reason.DECISION
    # The dag-processor reports a dead task as failed, without saying whether it will be retried.
    try_number, max_tries = _get(ti, "try_number"), _get(ti, "max_tries")
    return Reason.RETRY if try_number and max_tries and try_number <= max_tries else Reason.FAILED


def _occurrence(reason: Reason, ti: Any, run: Any, deadline: Any) -> str | None:
    if reason is Reason.DEADLINE:
        parts = [_get(deadline, "id"), _get(deadline, "deadline_time")]
    elif reason.is_about_run:
        # A run that is cleared keeps its id. Airflow 3.0 does not pass the run to a DAG's callback.
        parts = [_get(run, name) for name in ("clear_number", "start_date", "end_date")]
    else:
        parts = [_get(ti, "id"), _get(ti, "try_number")]
    return None if all(part is None for part in parts) else "/".join(map(str, parts))


def _is_executing() -> bool:
    """Whether this process is executing a task, which means that the task has not ended."""
    try:
        get_current_context()
    except RuntimeError:
        return False
    return True


def _question(context: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the subject and body of a human-in-the-loop operator; ``None`` for any other task."""
    task = context.get("task")
    if not (_get(task, "options") and _get(task, "subject")):
        return None
    return str(_get(task, "subject")), str(_get(task, "body") or "")


def _error(context: Mapping[str, Any]) -> str:
    error = _first(context.get("exception"), context.get("reason"))
    if error is None or error == "success":
        return ""
    if isinstance(error, BaseException):
        message = str(error)
        text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    else:
        text = str(error).replace("_", " ") if error is context.get("reason") else str(error)
    # Redact before cutting: half a secret would not be recognized.
    text = without_addresses(str(redact(text[:100_000]))[:MAX_ERROR_CHARACTERS_READ]).strip()
    lines = text.splitlines()
    short = "\n".join(lines[:MAX_ERROR_LINES])[:MAX_ERROR_CHARACTERS].rstrip()
    return short if short == text else f"{short} …"


def _urls(
    base_url: str | None, dag_id: str | None, run_id: str | None, task_id: str | None, map_index: int, try_: int | None
) -> dict[str, str]:
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
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())


def _moment(value: Any) -> datetime | None:
    with suppress(ValueError):
        value = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _get(source: Any, name: str) -> Any:
    if isinstance(source, Mapping):
        return source.get(name)
    # The task instance that the dag-processor rebuilds has properties that raise exceptions.
    with suppress(Exception):
        return getattr(source, name, None)
    return None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def render_subject(context: NotificationContext) -> str:
    """Return the default subject: what happened, and the name of the task or run."""
    if context.question:
        return f"Decision needed: {context.question[0]}"
    attempt = f" (try {_attempt(context)})" if context.reason is Reason.RETRY and context.try_number else ""
    return f"{context.reason.headline}: {context.name or 'Airflow'}{attempt}"


def render_html(context: NotificationContext, *, instance: str | None = None) -> str:
    title, question_body = context.question or (context.name or "Airflow", "")
    return _TEMPLATES.get_template("notification.html.jinja2").render(
        context=context,
        subject=render_subject(context),
        headline=context.reason.headline,
        color=context.reason.color,
        title=title,
        question_body=question_body[:MAX_QUESTION_CHARACTERS],
        details=_details(context),
        links=[
            ("Decide", context.decision_url),
            ("Open the log", context.log_url if not context.decision_url else None),
            ("Open the run", context.run_url),
        ],
        instance=instance,
    )


def render_summary(subject: str, groups: Sequence[Mapping[str, Any]], further: int) -> str:
    """Return the HTML of a summary of alerts.

    :param groups: by title: the count, the first and the last time, the last error and URL, and how many are doubtful.
    """
    instance = conf.get("api", "instance_name", fallback=None)
    template = _TEMPLATES.get_template("summary.html.jinja2")
    return template.render(subject=subject, groups=groups, further=further, instance=instance)


def _details(context: NotificationContext) -> list[tuple[str, str | None]]:
    index = f" [{context.map_index}]" if context.map_index >= 0 else ""
    return [
        ("DAG", context.dag_id),
        ("Task", context.task_id and f"{context.task_id}{index}"),
        ("Run", context.run_id),
        ("Date", _time(context.run_date)),
        ("Deadline", _time(context.deadline)),
        ("Try", _attempt(context) if context.try_number else None),
        ("Took", _duration(context.seconds) if context.reason is not Reason.DECISION else None),
    ]


def _attempt(context: NotificationContext) -> str:
    return f"{context.try_number} of {context.max_tries}" if context.max_tries else str(context.try_number)


def _time(moment: datetime | None) -> str | None:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else None


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, left_seconds = divmod(round(seconds), 60)
    if not minutes:
        return f"{left_seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left_seconds} s"
