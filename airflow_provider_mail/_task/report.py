"""A report of what a task did: one small HTML file for people to keep, without personal data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from airflow_provider_mail._task.exceptions import without_addresses
from airflow_provider_mail._task.object_storage import put, storage_path
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context
    from jinja2 import Template

    from airflow_provider_mail._task.rejected_rows import RejectSpool
    from airflow_provider_mail.api.flows.import_plan import Progress

Level = Literal["ok", "warning", "error"]

MOST_REASONS = 50


class Row(NamedTuple):
    """A row of the table.

    :param cells: its texts and numbers.
    :param level: colors the row. Default: it has no color.
    :param share: the length of its bar, from 0 to 1. Default: it has no bar.
    """

    cells: Sequence[object]
    level: Level | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the file shows. Addresses in any of its texts are removed.

    :param title: what the task was about.
    :param level: colors the title.
    :param summary: a sentence.
    :param facts: names and values; values of ``None`` are left out.
    :param columns: the headings of the table.
    """

    title: str
    level: Level
    summary: str
    facts: Mapping[str, object]
    columns: Sequence[str]
    rows: Sequence[Row]


def check_report_path(task: Any) -> None:
    """Reject a path that no installed package can write to, before the task does anything.

    :param task: the operator or sensor, with ``report_path``.
    :raises AirflowFailException: naming ``report_path``.
    """
    if task.report_path:
        try:
            storage_path(task.report_path, None, "report_path")
        except AirflowFailException:
            raise
        except Exception as error:
            # The error may be temporary, and an earlier try may have sent mail already.
            task.log.warning("report_path: %s: %s", type(error).__name__, error)


def write_report(task: Any, context: Context, report: Report) -> None:
    """Write the file, or replace it. An error is only logged: the task's work is done, and must not be done again.

    :param task: the operator or sensor, with ``report_path``.
    """
    try:
        path = storage_path(task.report_path, None, "report_path")
        put(path, render(report, context["ti"]).encode())
    except Exception:
        task.log.exception("The report could not be written to %s", task.report_path)
    else:
        task.log.info("Report written to %s", path)


def render(report: Report, ti: Any) -> str:
    """Return the HTML."""
    index = f" [{ti.map_index}]" if ti.map_index is not None and ti.map_index >= 0 else ""
    made_by = {
        "DAG": ti.dag_id,
        "Task": f"{ti.task_id}{index}",
        "Run": ti.run_id,
        "Try": str(ti.try_number),
        "Written": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
    }
    return _template().render(report=report, made_by=made_by)


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("airflow_provider_mail", "_task"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every expression of the template passes through this function.
        finalize=_shown,
    )
    return environment.get_template("report.html.jinja2")


def _shown(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return without_addresses(value) if isinstance(value, str) else value


def import_report(
    list_name: str | None, progress: Progress, spool: RejectSpool, max_reject_fraction: float, kept: Sequence[str]
) -> Report:
    """Return the report of an import.

    :param max_reject_fraction: the largest share of rejected rows with which the task succeeds.
    :param kept: the files and tables that hold the rejected rows.
    """
    share = progress.rejected / progress.read if progress.read else 0.0
    level: Level = "ok" if not (progress.rejected or progress.remarks) else "warning"
    if share > max_reject_fraction:
        level = "error"
    return Report(
        title="Import of contacts" + (f" into {list_name}" if list_name else ""),
        level=level,
        summary=f"{progress.accepted:,} of {progress.read:,} rows were accepted, {progress.rejected:,} rejected.",
        facts={
            "Rows read": progress.read,
            "Accepted": progress.accepted,
            "Accepted in earlier tries": progress.accepted_earlier or None,
            "Rejected": f"{progress.rejected:,} ({share:.2%}, at most {max_reject_fraction:.2%} are allowed)",
            "Requests": progress.requests,
            "Requests accepted with a message": progress.remarks or None,
            "Seconds": f"{progress.seconds:,.1f}",
            "Rejected rows are in": ", ".join(kept) or None,
        },
        columns=("Field", "Reason", "Rows"),
        rows=[
            Row((field, reason, count), share=count / progress.rejected)
            for field, reason, count in spool.reasons(MOST_REASONS)
        ],
    )


def preflight_report(mail_name: str, recipients: int | None, findings: Sequence[Mapping[str, str]]) -> Report:
    """Return the report of a preflight.

    :param recipients: contacts in its target lists, if the service reports it.
    :param findings: each with ``check``, ``level`` and ``text``.
    """
    levels = [finding["level"] for finding in findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    worst: tuple[Level, ...] = ("error", "warning", "ok")
    ordered = sorted(findings, key=lambda finding: worst.index(finding["level"]))
    return Report(
        title=f"Preflight of {mail_name}",
        level=next(level for level in worst if level in levels or level == "ok"),
        summary=f"Errors: {errors}, warnings: {warnings}. Nothing was changed.",
        facts={"Contacts in the target lists": "not known" if recipients is None else recipients},
        columns=("Level", "Check", "Finding"),
        rows=[Row((finding["level"], finding["check"], finding["text"]), finding["level"]) for finding in ordered],  # type: ignore[arg-type]
    )


def campaign_report(message: str, counts: Mapping[str, Any]) -> Report:
    """Return the report of a campaign that was waited for.

    :param message: how the wait ended, with the name of the campaign.
    :param counts: the service's counts, by the names of ``MailStats``.
    """
    from airflow_provider_mail.api.campaigns import MailStats

    sent = counts.get("sent_count") or 0
    rows = []
    for name, field in MailStats.model_fields.items():
        if (count := counts.get(name)) is not None:
            share = count / sent if sent else None
            rows.append(Row((field.description, count, "" if share is None else f"{share:.1%}"), share=share))
    return Report(
        title=message[:1].upper() + message[1:],
        level="ok",
        summary="What the service counts at this time." if rows else "The service reports no counts.",
        facts={"Sent at": counts.get("mail_send_date")},
        columns=("Count", "Mails", "Of those sent"),
        rows=rows,
    )
