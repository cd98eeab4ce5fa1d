"""The subject and the HTML of a notification that has none of its own: to be read on a phone.

The first words are what the list of mails shows. Styles are inline, since many mail programs drop style sheets.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from airflow_provider_mail.notifications._context import Kind, NotificationContext

_RED, _AMBER, _GREEN, _BLUE, _GREY = "#b3261e", "#8a5a00", "#1b6e3c", "#1257a6", "#4a5560"

_LOOKS = {
    Kind.FAILED: ("Failed", _RED),
    Kind.RETRY: ("Failed, will retry", _AMBER),
    Kind.SUCCEEDED: ("Succeeded", _GREEN),
    Kind.SKIPPED: ("Skipped", _GREY),
    Kind.RUNNING: ("Running", _GREY),
    Kind.RUN_FAILED: ("Run failed", _RED),
    Kind.RUN_SUCCEEDED: ("Run succeeded", _GREEN),
    Kind.DEADLINE: ("Deadline missed", _RED),
    Kind.DECISION: ("Waiting for a decision", _BLUE),
}

_FONT = "font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_WRAP = "overflow-wrap:anywhere;word-break:break-word"
_MOST_QUESTION_CHARACTERS = 2000


def subject_of(occasion: NotificationContext) -> str:
    """What happened, and to what."""
    if occasion.question:
        return f"Decision needed: {occasion.question[0]}"
    headline, _ = _LOOKS[occasion.kind]
    tries = f" (try {_tries(occasion)})" if occasion.kind is Kind.RETRY and occasion.try_number else ""
    return f"{headline}: {occasion.name or 'Airflow'}{tries}"


def render_html(occasion: NotificationContext, *, instance: str | None = None) -> str:
    """The whole HTML.

    :param instance: the name of this Airflow.
    """
    headline, colour = _LOOKS[occasion.kind]
    title = occasion.question[0] if occasion.question else occasion.name or "Airflow"
    parts = [
        _block(headline, f"color:{colour};font-size:16px;font-weight:700"),
        _block(title, f"margin:4px 0 12px;font-size:22px;line-height:1.25;font-weight:700;{_WRAP}", at_dots=True),
    ]
    if occasion.question and occasion.question[1]:
        body = occasion.question[1][:_MOST_QUESTION_CHARACTERS]
        parts.append(_block(body, f"margin:0 0 12px;white-space:pre-wrap;{_WRAP}"))
    if occasion.error:
        parts.append(
            _block(
                occasion.error,
                "margin:0 0 12px;padding:12px;background:#f3f4f6;border-radius:6px;white-space:pre-wrap;"
                f"font:14px/1.45 ui-monospace,Menlo,Consolas,monospace;{_WRAP}",
            )
        )
    parts += [_table(occasion), *_links(occasion, colour)]
    parts.append(_block(f"Sent by Airflow{f' ({instance})' if instance else ''}", "color:#5b6570;font-size:13px"))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(subject_of(occasion))}</title></head>"
        f'<body style="margin:0;padding:12px;background:#eceff1;color:#1c2126;font-size:16px;line-height:1.45;{_FONT}">'
        '<div style="max-width:560px;margin:0 auto;padding:20px;background:#ffffff;border-radius:8px;'
        f'border-top:6px solid {colour}">\n' + "\n".join(parts) + "\n</div></body></html>\n"
    )


def _block(text: str, style: str, *, at_dots: bool = False) -> str:
    """A paragraph; long ids in it break at their dots rather than anywhere."""
    return f'<div style="{style}">{escape(text).replace(".", ".<wbr>" if at_dots else ".")}</div>'


def _table(occasion: NotificationContext) -> str:
    index = f" [{occasion.map_index}]" if occasion.map_index >= 0 else ""
    rows = {
        "DAG": occasion.dag_id,
        "Task": occasion.task_id and f"{occasion.task_id}{index}",
        "Run": occasion.run_id,
        "Date": occasion.moment and _time(occasion.moment),
        "Deadline": occasion.deadline and _time(occasion.deadline),
        "Try": occasion.try_number and _tries(occasion),
        "Took": None if occasion.seconds is None or occasion.kind is Kind.DECISION else _duration(occasion.seconds),
    }
    cells = "".join(
        f'<tr><td style="padding:4px 12px 4px 0;color:#5b6570;vertical-align:top">{name}</td>'
        f'<td style="padding:4px 0;{_WRAP}">{escape(str(value))}</td></tr>'
        for name, value in rows.items()
        if value
    )
    return f'<table role="presentation" style="border-collapse:collapse;margin:0 0 16px">{cells}</table>'


def _links(occasion: NotificationContext, colour: str) -> list[str]:
    """Large enough for a thumb; the first one stands out."""
    links = [
        ("Decide", occasion.decision_url),
        ("Open the log", occasion.log_url if not occasion.decision_url else None),
        ("Open the run", occasion.run_url),
    ]
    looks = [f"background:{colour};color:#ffffff", f"background:#ffffff;color:{colour}"]
    return [
        f'<a href="{escape(url)}" style="display:block;margin:0 0 12px;padding:12px;border:1px solid {colour};'
        f'border-radius:6px;text-align:center;text-decoration:none;font-weight:600;{looks[min(place, 1)]}">{words}</a>'
        for place, (words, url) in enumerate((words, url) for words, url in links if url)
    ]


def _tries(occasion: NotificationContext) -> str:
    return f"{occasion.try_number} of {occasion.tries}" if occasion.tries else str(occasion.try_number)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
