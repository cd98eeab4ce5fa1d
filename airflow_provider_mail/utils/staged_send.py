"""Send a campaign to a few people first: to the others when the counts are good, day by day, in the version that did
better, or at the local time of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from airflow.sdk import TaskGroup, task

from airflow_provider_mail._task.checks import checked
from airflow_provider_mail._task.division import Stages, TimeZones
from airflow_provider_mail._task.rules import IMPORT, LOCAL_TIME, MAPPING, RAMP, STAGES, ZONE, number
from airflow_provider_mail._task.waiting import DEFERRABLE
from airflow_provider_mail.operators._contact_import import BaseContactImportOperator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.compare import MailCompareCampaignsOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.sensors.gate import MailStatsGateSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from airflow_provider_mail.version_compat import AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_mail._task.staged_plan import StagedPlan

__all__ = ["AbSend", "LocalTimeSend", "StagedSend", "ab_send", "local_time_send", "staged_send"]

OnChangedPlan: TypeAlias = Literal["fail", "mail_others"]
"""What to do when a stage was sent by a plan that is no longer that of the DAG file."""

DAY = timedelta(days=1)

_TOMORROW = "{{ (dag_run.run_after + macros.timedelta(days=1)).strftime('%Y-%m-%d') }}"


class StagedSend(NamedTuple):
    """The tasks of a campaign that is sent in stages, for the tasks before and between them.

    :param group: the task group that has all of them.
    :param check: the task that makes the plan, and fails if a person would be left out or mailed twice.
    :param sends: the tasks that create the campaigns and wait for them, by stage.
    :param gates: the gates, by the stage whose counts they judge.
    :param sent: the last task, which fails if a person of the source was not mailed.
    """

    group: TaskGroup
    check: Any
    sends: Mapping[str, MailCreateCampaignOperator]
    gates: Mapping[str, MailStatsGateSensor]
    sent: Any


@checked(stages=STAGES, ramp=RAMP, import_task=IMPORT, campaign=MAPPING)
def staged_send(
    *,
    group_id: str = "staged_send",
    stages: Mapping[str, float] | None = None,
    ramp: Sequence[int] | None = None,
    import_task: BaseContactImportOperator,
    mail_name: str,
    campaign: Mapping[str, Any],
    gate: Mapping[str, Any],
    seed: str | None = None,
    on_changed_plan: OnChangedPlan = "fail",
    deferrable: bool = DEFERRABLE,
) -> StagedSend:
    """Make the tasks that send a campaign in stages, inside a DAG.

    The people of each stage are imported to a list of its own before a mail is sent. Then ``check`` makes the plan: the
    lists of each stage, without the people whom existing campaigns of the run have reached, so that tasks that are
    cleared mail nobody twice and leave nobody out. It fails if a person would be. Then each stage is sent and waited
    for, and its gate lets the next one go out. At last, ``sent`` compares whom the campaigns were sent to with the
    source.

    The tasks are ``check``, ``sent``, and for each stage ``send_<stage>`` and, but for the last, ``gate_<stage>``. To
    let a person decide before the first stage, put the tasks in between, such as ``staged.check >> preflight >> approve
    >> staged.sends["canary"]``.

    :param group_id: the id of the task group. Default: ``staged_send``.
    :param stages: for each stage, in their order, the share of all people who have got the mail after it, such as
        ``{"canary": 0.01, "early": 0.1, "rest": 1}``. Give this or ``ramp``.
    :param ramp: for each day the largest number of people who are mailed on it, such as ``[2_000, 5_000, *[10_000] *
        20]``. The stages are called ``day_1``, ``day_2`` and so on. Each is sent a day after the one before it, by the
        clocks of the DAG's time zone, or later. A day for which nobody is left is skipped; if the days are too few,
        nobody is mailed.
    :param import_task: the task that imports the people, with a ``list_name`` and ``exact_audience=True``. Each stage
        gets a list of its own.
    :param mail_name: the name of the campaign. That of a stage has the name of the stage behind it. It may be a
        template.
    :param campaign: further arguments of ``MailCreateCampaignOperator``, without lists. A ``send_date`` is that of the
        first day of a ``ramp``.
    :param gate: arguments of ``MailStatsGateSensor``, without ``mail_name``.
    :param seed: divides the people in another way; it may be a template. Default: ``mail_name``, so that each campaign
        begins with other people.
    :param on_changed_plan: what to do when a stage of this run was sent by another plan, with another mail name, other
        stages or another seed: ``fail`` before anybody else is mailed, or ``mail_others``, everybody whom no stage has
        reached. Default: ``fail``.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :raises ValueError: naming the stage that is wrong, or ``import_task`` does not import all rows.
    """
    if (stages is None) == (ramp is None):
        raise ValueError("stages, ramp: give one of them: shares of all people, or numbers of people for each day")
    sizes = None if ramp is None else {f"day_{day}": size for day, size in enumerate(ramp, 1)}
    division = Stages(stages or {}, mail_name if seed is None else seed, sizes)
    with TaskGroup(group_id) as group:
        tasks = _Stages(import_task, division, mail_name, campaign, on_changed_plan)
        before: Any = tasks.check
        sends: dict[str, MailCreateCampaignOperator] = {}
        gates: dict[str, MailStatsGateSensor] = {}
        for name in division.names:
            sends[name] = tasks.send_task(f"send_{name}", name, {"deferrable": deferrable, **campaign})
            before >> sends[name]
            before = sends[name]
            if len(sends) < len(division.names):
                gates[name] = before = MailStatsGateSensor(
                    task_id=f"gate_{name}",
                    mail_name=_sent_name(sends[name]),
                    **{"deferrable": deferrable, **_connection_of(campaign), **gate},
                )
                sends[name] >> before
        # Stages without people are skipped.
        sent = tasks.sent_task({name: send.task_id for name, send in sends.items()}, trigger_rule="none_failed")
        before >> sent
    return StagedSend(group, tasks.check, sends, gates, sent)


class AbSend(NamedTuple):
    """The tasks of an A/B test, for the tasks before and between them.

    :param group: the task group that has all of them.
    :param check: the task that makes the plan, and fails if a person would be left out or mailed twice.
    :param sends: the tasks that send the versions ``a`` and ``b`` to their part.
    :param compare: the task that decides which did better.
    :param choose: the task that skips one of ``rest``.
    :param rest: the tasks that send the versions ``a`` and ``b`` to all others, one of which is skipped.
    :param sent: the last task, which fails if a person of the source was not mailed.
    """

    group: TaskGroup
    check: Any
    sends: Mapping[str, MailCreateCampaignOperator]
    compare: MailCompareCampaignsOperator
    choose: BaseOperator
    rest: Mapping[str, MailCreateCampaignOperator]
    sent: Any


@checked(test_fraction=number(1e-6, 1 - 1e-6), import_task=IMPORT, campaign=MAPPING)
def ab_send(
    *,
    group_id: str = "ab_send",
    test_fraction: float = 0.2,
    import_task: BaseContactImportOperator,
    mail_name: str,
    campaign: Mapping[str, Any],
    version_a: Mapping[str, Any],
    version_b: Mapping[str, Any],
    wait: Mapping[str, Any],
    compare: Mapping[str, Any] | None = None,
    seed: str | None = None,
    on_changed_plan: OnChangedPlan = "fail",
    deferrable: bool = DEFERRABLE,
) -> AbSend:
    """Make the tasks that send two versions of a campaign to a part of the people, and the better one to all others.

    The people are imported before a mail is sent, and ``check`` makes the plan, as in :func:`staged_send`. Both
    versions are sent, each to one half of ``test_fraction``; their counts are read at the same age and compared.

    The tasks are ``check``, ``send_a``, ``send_b``, ``counts_a``, ``counts_b``, ``compare``,
    ``choose``, ``send_rest_a``, ``send_rest_b`` and ``sent``, which compares whom the campaigns were sent to with the
    source. The last two campaigns have one
    name, so that the service has at most one of them, also if the comparison is repeated with later counts.

    :param group_id: the id of the task group. Default: ``ab_send``.
    :param test_fraction: the share of all people in the test, above 0 and below 1. Default: 0.2, a tenth for each
        version.
    :param import_task: as in :func:`staged_send`.
    :param mail_name: the name of the campaign. That of a stage has ``a``, ``b`` or ``rest`` behind it. It may be a
        template.
    :param campaign: further arguments of ``MailCreateCampaignOperator`` for all campaigns, without lists.
    :param version_a: those of version A alone, such as ``{"subject": "..."}``.
    :param version_b: those of version B alone.
    :param wait: arguments of ``MailStatsSettledSensor``, without ``mail_name``: ``{"max_age": timedelta(hours=4)}``
        compares the counts four hours after each version was sent.
    :param compare: arguments of ``MailCompareCampaignsOperator``, without ``stats_a`` and ``stats_b``. Default: its
        defaults.
    :param seed: divides the people in another way; it may be a template. Default: ``mail_name``.
    :param on_changed_plan: as in :func:`staged_send`. Default: ``fail``.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :raises ValueError: naming the argument that is wrong, or ``import_task`` does not import all rows.
    """
    from airflow.providers.standard.operators.python import BranchPythonOperator

    shares = {"a": test_fraction / 2, "b": test_fraction, "rest": 1}
    campaign = {"deferrable": deferrable, **campaign}
    versions = {"a": {**campaign, **version_a}, "b": {**campaign, **version_b}}
    with TaskGroup(group_id) as group:
        division = Stages(shares, mail_name if seed is None else seed)
        tasks = _Stages(import_task, division, mail_name, campaign, on_changed_plan)
        check = tasks.check
        sends: dict[str, MailCreateCampaignOperator] = {}
        counts: dict[str, MailStatsSettledSensor] = {}
        for name, version in versions.items():
            sends[name] = tasks.send_task(f"send_{name}", name, version)
            options = {"stable_checks": None, "deferrable": deferrable, **_connection_of(campaign), **wait}
            counts[name] = MailStatsSettledSensor(
                task_id=f"counts_{name}", mail_name=_sent_name(sends[name]), **options
            )
            check >> sends[name] >> counts[name]
        comparison = MailCompareCampaignsOperator(
            task_id="compare", stats_a=counts["a"].output, stats_b=counts["b"].output, **(compare or {})
        )
        rest = {name: tasks.send_task(f"send_rest_{name}", "rest", version) for name, version in versions.items()}
        choose = BranchPythonOperator(
            task_id="choose",
            python_callable=_choose,
            op_args=[comparison.output, {name: send.task_id for name, send in rest.items()}],
        )
        sent = tasks.sent_task(trigger_rule="none_failed_min_one_success")
        choose >> list(rest.values()) >> sent
    return AbSend(group, check, sends, comparison, choose, rest, sent)


def _choose(comparison: Mapping[str, Any], task_ids: Mapping[str, str]) -> str:
    return task_ids[comparison["winner"]]


def _result(task: Any) -> str:
    """Return the result of a task as a template has it, in a mapped task group that of the same map index."""
    return f"ti.xcom_pull({task.task_id!r}, map_indexes=ti.map_index)"


def _sent_name(send: MailCreateCampaignOperator) -> str:
    """Return a template of the name that the service has given to a campaign; of its own if the task has no result."""
    result = _result(send)
    return f"{{% if {result} %}}{{{{ {result}['mail_name'] }}}}{{% else %}}{send.mail_name}{{% endif %}}"


def _connection_of(campaign: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection of the campaigns, for the tasks that read their counts."""
    return {name: value for name, value in campaign.items() if name == "mail_conn_id"}


class LocalTimeSend(NamedTuple):
    """The tasks of a campaign that is sent at the local time of each person, for the tasks before and between them.

    :param group: the task group that has all of them.
    :param check: the task after the import, which makes the plan.
    :param sends: the mapped task that creates the campaigns.
    :param sent: the last task, which fails if a person of the source was not mailed.
    """

    group: TaskGroup
    check: Any
    sends: Any
    sent: Any


@checked(import_task=IMPORT, campaign=MAPPING, send_time=LOCAL_TIME, default_time_zone=ZONE)
def local_time_send(
    *,
    group_id: str = "local_time_send",
    import_task: BaseContactImportOperator,
    mail_name: str,
    campaign: Mapping[str, Any],
    send_time: time,
    send_day: str = _TOMORROW,
    time_zone_column: str,
    default_time_zone: str = "UTC",
    deferrable: bool = DEFERRABLE,
) -> LocalTimeSend:
    """Make the tasks that send a campaign at the local time of each person, inside a DAG.

    The people of each time zone are imported to a list of its own. Then ``check`` makes the plan: a campaign for each
    moment at which it is ``send_time`` in one or more zones, which the service sends at that moment. ``send``, a mapped
    task, creates them, ``wait`` waits for them, and ``sent`` compares whom they were sent to with the source. Tasks
    that are cleared mail nobody twice.

    On a day of a change of the clocks, a time that exists twice is the first of the two, and one that does not exist
    is as much later as the clocks are set forward.

    :param group_id: the id of the task group. Default: ``local_time_send``.
    :param import_task: the task that imports the people, with a ``list_name`` and ``exact_audience=True``.
    :param mail_name: the name of the campaign. That of a moment has the moment behind it. It may be a template.
    :param campaign: further arguments of ``MailCreateCampaignOperator``, without lists and ``send_date``.
    :param send_time: the local time, such as ``datetime.time(9)``.
    :param send_day: the local day, ``YYYY-MM-DD``, which begins up to 14 hours before that of UTC; it may be a
        template. Where the time has passed already, the mail is sent on the next day on which it has not. Default: the
        day after that on which the run is due, in UTC.
    :param time_zone_column: the column of the source with the name of the time zone, such as ``Europe/Berlin``. It is
        not imported, unless ``columns`` of the import names it.
    :param default_time_zone: the zone of people without a valid one. Default: ``UTC``.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :raises ValueError: naming the argument that is wrong, or ``import_task`` does not import all rows.
    """
    if "send_date" in campaign:
        raise ValueError("campaign: not with send_date, which follows from send_time and send_day")
    _divide(import_task, TimeZones(time_zone_column, default_time_zone))
    plan = {
        **_connection_of({"mail_conn_id": "mail_default", **campaign}),
        "result": import_task.output,
        "mail_name": mail_name,
        "division": {"time_zone_column": time_zone_column, "default_time_zone": default_time_zone},
        "send_time": f"{send_time:%H:%M:%S}",
        "send_day": send_day,
    }
    with TaskGroup(group_id) as group:
        check: Any = task(task_id="check")(make_plan)(plan)
        # A wait that takes a worker slot must not let the moment of another campaign pass.
        creating = {name: value for name, value in campaign.items() if name not in ("deferrable", "cancel_on_kill")}
        sends = MailCreateCampaignOperator.partial(task_id="send", adopt_older=True, **creating).expand_kwargs(check)
        waiting = {name: campaign[name] for name in ("mail_conn_id", "poke_interval", "timeout") if name in campaign}
        waits = MailCampaignSensor.partial(
            task_id="wait", **{"deferrable": campaign.get("deferrable", deferrable), **waiting}
        ).expand(mail_name=check.map(_name_of))
        sent: Any = task(task_id="sent")(check_sent)({**plan, "campaigns": check})
        sends >> waits >> sent
    return LocalTimeSend(group, check, sends, sent)


def _name_of(campaign: Mapping[str, Any]) -> str:
    return str(campaign["mail_name"])


class _StageCampaign(MailCreateCampaignOperator):
    """Creates the campaign of a stage, as the plan says: not for nobody, and in a ramp a day after the one before."""

    custom_operator_name = MailCreateCampaignOperator.__name__

    def execute(self, context: Context) -> dict[str, Any]:
        (plan,) = self._audience_results()
        if plan["is_empty"]:
            raise AirflowSkipException("nobody is left for this stage")
        with self.mail_errors():
            due = self._day_after(plan["a_day_after"], context)
            if due is not None:
                self.send_date = due if due > self.hook.get_conn().service_clock.latest() else None
        return super().execute(context)

    def _day_after(self, mail_names: Sequence[str], context: Context) -> datetime | None:
        """Return when it is a day after the last of some campaigns was sent; ``None`` if there is none."""
        from airflow_provider_mail.api.campaigns import find_campaign, find_rewritten

        client = self.hook.get_conn()
        lookups = (find(client, name) for name in reversed(mail_names) for find in (find_campaign, find_rewritten))
        campaign = next(filter(None, lookups), None)
        if campaign is None:
            return None
        if campaign.send_by_date_time is None:
            raise AirflowFailException(
                f"ramp: the service does not show when campaign {campaign.mail_name!r} was sent (sendByDateTime), so "
                "it is not known when a day has passed. Nothing was sent"
            )
        # The same time on the next day: a day may have 23 or 25 hours. A send date has no fractions of a second.
        due = (campaign.send_by_date_time.astimezone(context["dag"].timezone) + DAY).astimezone(UTC)
        return due + timedelta(microseconds=-due.microsecond % 1_000_000)


def _divide(import_task: BaseContactImportOperator, division: Stages | TimeZones) -> None:
    """Let an import make a list for each part of the people."""
    if import_task.changes_only or not import_task.exact_audience:
        raise ValueError(
            "import_task: the task must import all rows into lists of this run: set exact_audience=True, and leave "
            "out changes_only"
        )
    if import_task.division is not None:
        raise ValueError(
            f"import_task: task {import_task.task_id!r} is that of another group: each needs an import of its own"
        )
    import_task.division = division


class _Stages:
    """The plan of the stages, and the tasks around the campaigns.

    :param campaign: the arguments of all campaigns; the connection is taken from them.
    """

    def __init__(
        self,
        import_task: BaseContactImportOperator,
        division: Stages,
        mail_name: str,
        campaign: Mapping[str, Any],
        on_changed_plan: OnChangedPlan,
    ) -> None:
        _divide(import_task, division)
        self._mail_name = mail_name
        stages = {"stages": dict(division.shares)} if division.sizes is None else {"ramp": [*division.sizes.values()]}
        self._plan = {
            **_connection_of({"mail_conn_id": "mail_default", **campaign}),
            "result": import_task.output,
            "mail_name": mail_name,
            "division": {**stages, "seed": division.seed},
            "mail_others": on_changed_plan == "mail_others",
        }
        self.check: Any = task(task_id="check")(make_plan)(self._plan)

    def send_task(self, task_id: str, stage: str, campaign: Mapping[str, Any]) -> MailCreateCampaignOperator:
        """Return the task that sends a campaign to a stage, with the lists of the plan."""
        return _StageCampaign(
            task_id=task_id,
            mail_name=f"{self._mail_name} {stage}",
            # It is this run's if it was sent to the lists of the plan, also if the task had another name before.
            adopt_older=True,
            audience=f"{{{{ {_result(self.check.operator)}['stages'][{stage!r}] }}}}",
            wait_for_completion=True,
            **campaign,
        )

    def sent_task(self, send_ids: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Return the task that compares whom the campaigns were sent to with the source.

        :param send_ids: the ids of the tasks that send each stage: if one was skipped, so is this one.
        """
        return task(task_id="sent", **options)(check_sent)({**self._plan, "send_ids": send_ids or {}})


def make_plan(plan: Mapping[str, Any], **context: Any) -> Any:
    """Make the plan before the first mail; every task after it, and every clear, works from it.

    :param plan: the arguments of :class:`~airflow_provider_mail._task.staged_plan.StagedPlan` or ``LocalTimePlan``.
    :return: the number of rows that the source has, and what became of them; and ``stages``, whom each is sent to. Or
        the arguments of each campaign at a local time.
    :raises AirflowFailException: people would be left out or mailed twice. Nobody else was mailed.
    """
    return _plan_of(plan, context).make(cast("Context", context))


def check_sent(plan: Mapping[str, Any], **context: Any) -> dict[str, Any]:
    """Compare whom the campaigns were sent to with the people of the source; see :func:`make_plan`.

    :return: the number of rows by what became of them, and ``mailed``, the number of mails that were sent.
    :raises AirflowFailException: people of the source were not mailed, or a campaign does not exist any more.
    """
    return _plan_of(plan, context).check_sent(cast("Context", context))


def _plan_of(plan: Mapping[str, Any], context: Mapping[str, Any]) -> StagedPlan:
    from airflow_provider_mail._audience.compared import list_owner
    from airflow_provider_mail._task.staged_plan import LocalTimePlan, StagedPlan

    dag = context["task"].dag
    kind = LocalTimePlan if "send_time" in plan else StagedPlan
    return kind(**plan, other_tasks={list_owner(dag.dag_id, task_id) for task_id in dag.task_ids})
