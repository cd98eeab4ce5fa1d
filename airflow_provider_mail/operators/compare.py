"""Decide which of two campaigns did better: the comparison of an A/B test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.operators._base import BaseMailOperator
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments

__all__ = ["MailCompareCampaignsOperator"]

Metric: TypeAlias = Literal["open_rate", "click_rate"]

COUNTERS: dict[Metric, str] = {"open_rate": "open_count", "click_rate": "click_count"}
"""The counter of a record of statistics that each metric divides by ``sent_count``."""

OnNoDifference: TypeAlias = Literal["a", "b", "leader", "fail"]
"""What to do when no difference is shown: name a campaign, the one with the higher rate, or fail."""

REPORT_KEY = "comparison"
"""The XCom with the numbers, also of a task that fails."""


class MailCompareCampaignsOperator(BaseMailOperator):
    """Compare the statistics of two campaigns, and return which one did better.

    A difference is shown if the p-value of the two-proportion z-test (pooled, two-sided) is at most ``1 -
    confidence``, and each campaign was sent to at least ``min_sent`` people. Makes no request.

    Returns ``winner`` (``a`` or ``b``), ``decision`` (``difference``, ``no difference``, or ``sandbox`` if no mail was
    sent because of the sandbox mode), ``metric``, ``z`` (positive if the rate of ``a`` is higher), ``p_value``,
    ``campaigns`` (for ``a`` and ``b``: ``mail_name``, ``sent``, ``count``, ``share``, and ``lower`` and ``upper``, the
    bounds of the true share), ``problems`` (why no difference is shown) and ``table``, the campaigns as a Markdown
    table. The same is pushed to XCom as ``comparison`` before the task fails, then without a ``winner``.

    .. seealso:: the guide :ref:`howto/operator:MailCompareCampaignsOperator`
        (in the package: ``airflow_provider_mail/docs/stages.md``).

    :param stats_a: the statistics of a campaign: the result of a
        :class:`~airflow_provider_mail.sensors.stats.MailStatsSettledSensor`, as in ``stats_a=task.output``. (templated)
    :param stats_b: those of the other campaign, read at the same age. (templated)
    :param metric: what is compared: ``open_rate`` or ``click_rate``, unique opens or clicks as a share of the sent
        mails. Default: ``open_rate``.
    :param min_sent: the smallest number of sent mails of each campaign with which a difference counts. Default: 100.
    :param confidence: 1 minus the probability that equal campaigns are taken for different ones. Default: 0.95.
    :param on_no_difference: the winner when no difference is shown: ``a``, ``b``, or the ``leader``, which has the
        higher rate (``a`` if the rates are equal); or ``fail`` the task. Default: ``a``.
    """

    stats_a: Mapping[str, Any]
    stats_b: Mapping[str, Any]
    metric: Metric
    min_sent: int
    confidence: float
    on_no_difference: OnNoDifference

    def __init__(
        self,
        *,
        stats_a: Templated[Mapping[str, Any]],
        stats_b: Templated[Mapping[str, Any]],
        metric: Metric = "open_rate",
        min_sent: int = 100,
        confidence: float = 0.95,
        on_no_difference: OnNoDifference = "a",
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def execute(self, context: Context) -> dict[str, Any]:
        """Compare the campaigns; fail if no difference is shown and ``on_no_difference`` is ``fail``."""
        from airflow_provider_mail._task.statistics import two_proportion_test

        a, b = self._campaign("stats_a"), self._campaign("stats_b")
        z, p_value = two_proportion_test(a["count"], a["sent"], b["count"], b["sent"])
        problems = [
            f"min_sent: {campaign['sent']:,} mails of {campaign['mail_name']!r} were sent, {self.min_sent:,} are needed"
            for campaign in (a, b)
            if campaign["sent"] < self.min_sent
        ]
        if p_value > 1 - self.confidence:
            problems.append(
                f"p-value {p_value:.4f}: at most {1 - self.confidence:.4g} shows a difference of the {self.metric}"
            )
        leader = "b" if z < 0 else "a"
        report: dict[str, Any] = {
            "decision": "no difference" if problems else "difference",
            "metric": self.metric,
            "z": z,
            "p_value": p_value,
            "campaigns": {"a": a, "b": b},
            "problems": problems,
            "table": _table(a, b),
        }
        if self.stats_a.get("sandbox") or self.stats_b.get("sandbox"):
            self.log.info("Sandbox: nothing was sent, so there is nothing to compare.")
            return {"winner": "a", **report, "decision": "sandbox"}
        context["ti"].xcom_push(key=REPORT_KEY, value=report)
        self.log.info(
            "%s by %s (z = %.3f, p-value = %.4f)\n%s",
            report["decision"].capitalize(), self.metric, z, p_value, report["table"],
        )  # fmt: skip
        if problems and self.on_no_difference == "fail":
            raise AirflowFailException(f"no difference between the campaigns is shown: {'; '.join(problems)}")
        winner = leader if not problems or self.on_no_difference == "leader" else self.on_no_difference
        self.log.info("The winner is %s: %r.", winner, report["campaigns"][winner]["mail_name"])
        return {"winner": winner, **report}

    def _campaign(self, name: Literal["stats_a", "stats_b"]) -> dict[str, Any]:
        """Return the numbers of a campaign, from the argument of that name."""
        from airflow_provider_mail._task.statistics import wilson_bounds

        record: Mapping[str, Any] = getattr(self, name)
        needed = ("mail_name", "sent_count", COUNTERS[self.metric])
        if missing := [key for key in needed if record.get(key) is None]:
            raise AirflowFailException(
                f"{name}: the statistics of a campaign are needed, as MailStatsSettledSensor returns them. There is no "
                f"{', '.join(missing)}"
            )
        mail_name = record["mail_name"]
        # A service may count more opens than mails, or correct a count to less than none.
        sent = max(0, record["sent_count"])
        count = max(0, min(record[COUNTERS[self.metric]], sent))
        lower, upper = wilson_bounds(count, sent, self.confidence)
        share = count / sent if sent else 0.0
        return {"mail_name": mail_name, "sent": sent, "count": count, "share": share, "lower": lower, "upper": upper}


def _table(*campaigns: Mapping[str, Any]) -> str:
    rows = [
        f"| {campaign['mail_name']} | {campaign['count']:,} of {campaign['sent']:,} | {campaign['share']:.2%} "
        f"| {campaign['lower']:.2%} to {campaign['upper']:.2%} |"
        for campaign in campaigns
    ]
    return "\n".join(["| campaign | count | share | true share |", "|---|---|---|---|", *rows])
