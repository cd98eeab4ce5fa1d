"""The default subject and HTML of a notification."""

from __future__ import annotations

from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader

from airflow_provider_mail.notifications._context import NotificationContext, Reason

_RED, _AMBER, _GREEN, _BLUE, _GRAY = "#b3261e", "#8a5a00", "#1b6e3c", "#1257a6", "#4a5560"

_STYLES = {
    Reason.FAILED: ("Failed", _RED),
    Reason.RETRY: ("Failed, will retry", _AMBER),
    Reason.SUCCEEDED: ("Succeeded", _GREEN),
    Reason.SKIPPED: ("Skipped", _GRAY),
    Reason.RUNNING: ("Running", _GRAY),
    Reason.RUN_FAILED: ("Run failed", _RED),
    Reason.RUN_SUCCEEDED: ("Run succeeded", _GREEN),
    Reason.DEADLINE: ("Deadline missed", _RED),
    Reason.DECISION: ("Waiting for a decision", _BLUE),
}
"""Headline and color for each reason."""

_MAX_QUESTION_CHARACTERS = 2000

_TEMPLATES = Environment(
    loader=PackageLoader("airflow_provider_mail", "notifications"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render_subject(context: NotificationContext) -> str:
    """Return the default subject: what happened, and the name of the task or run."""
    if context.question:
        return f"Decision needed: {context.question[0]}"
    headline, _ = _STYLES[context.reason]
    attempt = f" (try {_attempt(context)})" if context.reason is Reason.RETRY and context.try_number else ""
    return f"{headline}: {context.name or 'Airflow'}{attempt}"


def render_html(context: NotificationContext, *, instance: str | None = None) -> str:
    """Return the default HTML.

    :param instance: the name of this Airflow (``[api] instance_name``), shown in the last line.
    """
    headline, color = _STYLES[context.reason]
    title, question_body = context.question or (context.name or "Airflow", "")
    return _TEMPLATES.get_template("notification.html.jinja2").render(
        context=context,
        subject=render_subject(context),
        headline=headline,
        color=color,
        title=title,
        question_body=question_body[:_MAX_QUESTION_CHARACTERS],
        details=_details(context),
        links=[
            ("Decide", context.decision_url),
            ("Open the log", context.log_url if not context.decision_url else None),
            ("Open the run", context.run_url),
        ],
        instance=instance,
    )


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
