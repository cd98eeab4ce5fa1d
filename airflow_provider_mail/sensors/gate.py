"""A gate between the stages of a mass mail: it lets the next one go out only if the counts of the last are good."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, Unpack

from airflow_provider_mail._task.checks import argument_error
from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.waiting import DEFERRABLE, TIMEOUT
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from airflow_provider_mail.version_compat import AIRFLOW_V_3_1_PLUS, AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import SensorArguments
    from airflow_provider_mail._task.statistics import Rate
    from airflow_provider_mail.warehouse.event_counts import CampaignEvents

__all__ = ["MailStatsGateSensor"]

OnBreach: TypeAlias = Literal["fail", "skip", "ask"]
"""What to do when a limit is not shown to be kept."""

CountsFrom: TypeAlias = Literal["statistics", "events"]
"""Where the counts are read."""


class Limited(NamedTuple):
    """What a limit applies to.

    :param counters: the counters of the statistics whose sum is limited; none if the statistics have no such counter.
    :param event_code: of the events that count the same; ``None`` if no code does.
    """

    counters: tuple[str, ...]
    event_code: str | None


LIMITS = {
    "max_hard_bounce": Limited(("hard_bounce",), None),
    "max_soft_bounce": Limited(("soft_bounce",), None),
    "max_bounce": Limited(("hard_bounce", "soft_bounce"), "Bounced"),
    "max_unsubscribe": Limited(("unsubscribe_count",), "Unsubscribed"),
    "max_spam": Limited((), "SpamReport"),
}
"""The limits, by argument."""

APPROVE, REJECT = "Approve", "Reject"

REPORT_KEY = "gate"
"""The XCom with the numbers, for the process that reads a person's response."""


class MailStatsGateSensor(MailStatsSettledSensor):
    """Decide from the counts of a campaign whether the next stage of a mass mail may go out.

    Waits until ``max_age`` after the campaign was sent, and compares each count, as a share of the mails that were
    sent, with its limit. A limit is kept if the true share is below it with the given confidence (the upper bound of
    Wilson's score interval). So few mails pass only a high limit: the log shows the bounds.

    Returns ``decision`` (``pass``, ``approved`` by a person, or ``sandbox``), ``mail_name``, ``sent``, ``rates`` (each
    with ``name``, ``count``, ``share``, ``lower``, ``upper``, ``limit`` and ``verdict``: ``ok``, ``exceeded`` or ``not
    shown``), ``problems`` and ``table``, the rates as a Markdown table. The same is pushed to XCom as ``gate`` before
    the task fails, skips or asks.

    .. seealso:: the guide :ref:`howto/sensor:MailStatsGateSensor`
        (in the package: ``airflow_provider_mail/docs/stages.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param mail_name: the exact name of the campaign. (templated)
    :param max_hard_bounce: the largest share of permanent failures, such as ``0.02``. Default: not checked.
    :param max_soft_bounce: the largest share of temporary failures. Default: not checked.
    :param max_bounce: the largest share of failures of both kinds. Default: not checked.
    :param max_unsubscribe: the largest share of unsubscribes. Default: not checked.
    :param max_spam: the largest share of spam reports. The statistics have none, so it needs the table of events.
        Default: not checked.
    :param source: where the counts are read: the ``statistics`` of the service, or the ``events`` in the table, of
        which each recipient counts once. Events do not show which bounces are hard: use ``max_bounce``. Default:
        ``statistics``.
    :param min_sent: the smallest number of sent mails that may pass. Default: 1.
    :param max_age: how long after sending the counts are read; seconds or a timedelta. Default: an hour.
    :param confidence: the probability with which the true share is below the limit. Default: 0.95.
    :param on_breach: what to do when a limit is not shown to be kept: ``fail`` the task, ``skip`` it and the tasks
        after it, or ``ask`` a person in Airflow's user interface (Airflow 3.1 and later). Default: ``fail``.
    :param response_timeout: how long to wait for the person; seconds or a timedelta. Then the task fails. Default: a
        day.
    :param sql_conn_id: the connection of the database with the table of events, for ``max_spam`` and
        ``source="events"``. Default: none. (templated)
    :param events_table: the table of events. Default: ``mail_events``. (templated)
    :param start_day: the first day, ``YYYY-MM-DD`` in UTC, on which the campaign may have been sent. Default:
        ``lookback_days`` before the run's data interval. (templated)
    :param end_day: the last such day. Default: the day of the poll. (templated)
    :param lookback_days: the number of days before the run's data interval at which the search begins if ``start_day``
        is not given. Default: 7.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: the time between polls; seconds or a timedelta. Default: 60 seconds.
    :param timeout: the time after which the wait fails; seconds or a timedelta. Default: ``[sensors] default_timeout``,
        seven days.
    :param poll_error_timeout: the time for which consecutive polls may fail before the wait fails; seconds or a
        timedelta. In ``mode="reschedule"`` before Airflow 3.3 only ``timeout`` ends the wait. Default: three hours.
    """

    max_hard_bounce: float | None
    max_soft_bounce: float | None
    max_bounce: float | None
    max_unsubscribe: float | None
    max_spam: float | None
    source: CountsFrom
    min_sent: int
    confidence: float
    on_breach: OnBreach
    response_timeout: float
    sql_conn_id: str | None
    events_table: str

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        mail_name: Templated[str],
        max_hard_bounce: float | None = None,
        max_soft_bounce: float | None = None,
        max_bounce: float | None = None,
        max_unsubscribe: float | None = None,
        max_spam: float | None = None,
        source: CountsFrom = "statistics",
        min_sent: int = 1,
        max_age: float | timedelta = 3600.0,
        confidence: float = 0.95,
        on_breach: OnBreach = "fail",
        response_timeout: float | timedelta = 86_400.0,
        sql_conn_id: Templated[str] | None = None,
        events_table: Templated[str] = "mail_events",
        start_day: Templated[str] | None = None,
        end_day: Templated[str] | None = None,
        lookback_days: int = 7,
        deferrable: bool = DEFERRABLE,
        poke_interval: float | timedelta = 60.0,
        timeout: float | timedelta = TIMEOUT,
        poll_error_timeout: float | timedelta = 3 * 3600.0,
        **kwargs: Unpack[SensorArguments],
    ) -> None:
        # The counts are read once: nothing but the age ends the wait.
        super(MailStatsSettledSensor, self).__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.set_arguments(**locals())

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any], *, mapped: bool = False) -> None:
        super().check_arguments(arguments, mapped=mapped)
        confidence, min_sent = arguments.get("confidence", 0.95), arguments.get("min_sent", 1)
        for name in LIMITS:
            if problem := _impossible(name, arguments.get(name), min_sent, confidence):
                raise argument_error(problem, mapped=mapped)

    def set_arguments(self, /, **arguments: Any) -> None:
        self.stable_checks, self.min_interval = None, 0.0
        super().set_arguments(**arguments)
        limits = [name for name in LIMITS if getattr(self, name) is not None]
        if not limits:
            raise self.argument_error(f"{', '.join(LIMITS)}: give at least one")
        if self.source == "events" and (unknown := [name for name in limits if LIMITS[name].event_code is None]):
            raise self.argument_error(
                f"{', '.join(unknown)}: events do not show which bounces are hard; use max_bounce, or "
                "source='statistics'"
            )
        if (self.source == "events" or self.max_spam is not None) and self.sql_conn_id is None:
            raise self.argument_error(
                "sql_conn_id: needed with max_spam and source='events', which are counted in the table of events"
            )
        if self.on_breach == "ask" and not AIRFLOW_V_3_1_PLUS:
            raise self.argument_error("on_breach: 'ask' needs Airflow 3.1 or later; use 'fail' or 'skip'")

    def execute(self, context: Context) -> Any:
        return self._decide(super().execute(context), context)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event and decide, or read a person's response."""
        if event is not None and not event.keys() & {"status", "message"}:
            return self._read_response(event, context)
        return self._decide(super().execute_complete(context, event), context)

    def _decide(self, record: dict[str, Any] | None, context: Context) -> dict[str, Any]:
        """Decide from the last record; fail, skip or ask if a limit is not shown to be kept."""
        if not record or record.get("sandbox"):
            nothing = {"sent": 0, "rates": [], "problems": [], "table": ""}
            return {"decision": "sandbox", "mail_name": self.mail_name, **nothing}
        from airflow_provider_mail._task.statistics import Rate

        sent, counts, problems = self._counts(record)
        # A service may count more bounces than mails, and correct a count to less than nothing.
        sent = max(sent, 0)
        rates = [
            Rate(limit.removeprefix("max_"), min(max(count, 0), sent), sent, getattr(self, limit), self.confidence)
            for limit, count in counts.items()
        ]
        problems += [str(rate) for rate in rates if rate.verdict != "ok"]
        if sent < self.min_sent:
            problems.insert(0, f"min_sent: {sent:,} mails were sent, {self.min_sent:,} are needed")
        report = {
            "decision": self.on_breach if problems else "pass",
            "mail_name": self.mail_name,
            "sent": sent,
            "rates": [_plain(rate) for rate in rates],
            "problems": problems,
            "table": _table(rates),
        }
        context["ti"].xcom_push(key=REPORT_KEY, value=report)
        self.log.info("Campaign %r: %s\n%s", self.mail_name, report["decision"], report["table"])
        if not problems:
            return report
        message = f"campaign {self.mail_name!r} does not pass: {'; '.join(problems)}"
        if self.on_breach == "skip":
            raise AirflowSkipException(message)
        if self.on_breach == "ask":
            self.log.warning("%s. A person decides.", message)
            self._ask(report, context)
        raise AirflowFailException(message)

    def _counts(self, record: Mapping[str, Any]) -> tuple[int, dict[str, int], list[str]]:
        """Return the number of sent mails, the counts by limit, and why counts may be missing."""
        from airflow_provider_mail._task.storage import sql_hook
        from airflow_provider_mail.warehouse.event_counts import campaign_event_counts

        limits = {name: limited for name, limited in LIMITS.items() if getattr(self, name) is not None}
        counts = {name: sum(record[counter] for counter in limited.counters) for name, limited in limits.items()}
        codes = {
            name: limited.event_code
            for name, limited in limits.items()
            if limited.event_code and (self.source == "events" or not limited.counters)
        }
        sent: int = record["sent_count"]
        if not codes:
            return sent, counts, []
        assert self.sql_conn_id is not None
        events = campaign_event_counts(
            sql_hook(self.sql_conn_id), self.events_table, codes.values(), mail_conn_id=self.mail_conn_id,
            mail_name=self.mail_name, since=datetime.fromisoformat(record["mail_send_date"]),
        )  # fmt: skip
        counts |= {name: events.by_code[code] for name, code in codes.items()}
        if self.source == "events":
            sent = events.sent
        return sent, counts, self._missing_events(codes, events)

    def _missing_events(self, codes: Mapping[str, str], events: CampaignEvents) -> list[str]:
        """Return why events may be missing.

        :param codes: the codes of events by the limits that need them.
        """
        from airflow_provider_mail.api.webhooks import GetWebhook

        if not events.total:
            return [
                f"{', '.join(codes)}: {self.events_table} has no event of the campaign, so counts may be missing: is "
                "it filled, and does the service push events?"
            ]
        with self.mail_errors():
            toggles = self.hook.send(GetWebhook()).trans_event
        if toggles is None:
            return []
        # The toggle of SpamReport is spamReport.
        pushed = {name.lower() for name, enabled in toggles.model_dump(by_alias=True).items() if enabled}
        return [
            f"{name}: the service does not push events {code}, so the count may be too small: enable them with "
            "MailSaveWebhookOperator"
            for name, code in codes.items()
            if code.lower() not in pushed
        ]

    def _ask(self, report: Mapping[str, Any], context: Context) -> None:
        """Wait for a person's response; raises what makes Airflow wait."""
        from inspect import unwrap

        request = self._approval(report)
        # Airflow warns when the method of another operator is called.
        unwrap(type(request).execute)(request, context)

    def _approval(self, report: Mapping[str, Any]) -> Any:
        from airflow.providers.standard.operators.hitl import HITLOperator

        problems = "\n".join(f"* {problem}" for problem in report["problems"])
        return HITLOperator(
            task_id=self.task_id,
            subject=f"Go on after campaign {self.mail_name}?",
            body=f"{problems}\n\n{report['table']}",
            options=[APPROVE, REJECT],
            response_timeout=timedelta(seconds=self.response_timeout),
        )

    def _read_response(self, event: dict[str, Any], context: Context) -> dict[str, Any]:
        ti = context["ti"]
        report: dict[str, Any] = ti.xcom_pull(task_ids=self.task_id, key=REPORT_KEY, map_indexes=ti.map_index)
        response = self._approval(report).execute_complete(context, event)
        user = response.get("responded_by_user")
        if response["chosen_options"] != [APPROVE]:
            raise AirflowFailException(f"campaign {self.mail_name!r} does not pass: rejected by {_name(user)}")
        self.log.warning("Campaign %r: approved by %s.", self.mail_name, _name(user))
        return {**report, "decision": "approved"}


def _name(user: Any) -> str:
    return str((user or {}).get("name") or (user or {}).get("id") or "an unknown user")


def _plain(rate: Rate) -> dict[str, Any]:
    names = ("name", "count", "share", "lower", "upper", "limit", "verdict")
    return {name: getattr(rate, name) for name in names}


def _table(rates: list[Rate]) -> str:
    rows = [
        f"| {rate.name} | {rate.count:,} of {rate.sent:,} | {rate.share:.2%} | {rate.lower:.2%} to {rate.upper:.2%} "
        f"| {rate.limit:.2%} | {rate.verdict} |"
        for rate in rates
    ]
    return "\n".join(["| counter | count | share | true share | limit | |", "|---|---|---|---|---|---|", *rows])


def _impossible(name: str, limit: float | None, min_sent: int, confidence: float) -> str:
    """Return why a gate could never pass with as few mails as ``min_sent`` allows; empty if it could."""
    from airflow_provider_mail._task.statistics import mails_needed

    if limit is None:
        return ""
    needed = mails_needed(limit, confidence)
    if needed is None:
        return f"{name}: 0 can never be shown to be kept; give a small share, such as 0.001"
    # Without a min_sent of their own, gates pass or fail by the counts alone.
    if not 1 < min_sent < needed:
        return ""
    return (
        f"min_sent: {min_sent} mails can never show that {name}={limit:g} is kept: even without any count, {needed:,} "
        f"are needed with confidence={confidence:g}"
    )
