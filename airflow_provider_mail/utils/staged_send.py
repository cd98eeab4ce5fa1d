"""Send a campaign to a few people first: to the others when the counts are good, or in the version that did better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from airflow.sdk import TaskGroup, task

from airflow_provider_mail._task.checks import checked
from airflow_provider_mail._task.rules import FUNCTION, MAPPING, STAGES, TEXT, choice, number
from airflow_provider_mail._task.waiting import DEFERRABLE
from airflow_provider_mail.operators._contact_import import BaseContactImportOperator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.compare import MailCompareCampaignsOperator
from airflow_provider_mail.sensors.gate import MailStatsGateSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from airflow_provider_mail.stages import Stage, divide

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_mail._task.staged_plan import StagedPlan

__all__ = ["AbSend", "StagedSend", "ab_send", "staged_send"]

OnChangedPlan: TypeAlias = Literal["fail", "mail_others"]
"""What to do when a stage was sent by a plan that is no longer that of the DAG file."""


class StagedSend(NamedTuple):
    """The tasks of a campaign that is sent in stages, for the tasks before and between them.

    :param group: the task group that has all of them.
    :param imports: the tasks that import the people, by stage.
    :param check: the task after them, which makes the plan, and fails if a person would be left out or mailed twice.
    :param sends: the tasks that create the campaigns and wait for them, by stage.
    :param gates: the gates, by the stage whose counts they judge.
    :param sent: the last task, which fails if a person of the source was not mailed.
    """

    group: TaskGroup
    imports: Mapping[str, BaseContactImportOperator]
    check: Any
    sends: Mapping[str, MailCreateCampaignOperator]
    gates: Mapping[str, MailStatsGateSensor]
    sent: Any


@checked(
    group_id=TEXT, stages=STAGES, import_stage=FUNCTION, campaign=MAPPING, gate=MAPPING, seed=TEXT,
    on_changed_plan=choice("fail", "mail_others"),
)  # fmt: skip
def staged_send(
    *,
    group_id: str = "staged_send",
    stages: Mapping[str, float],
    import_stage: Callable[[Stage], BaseContactImportOperator],
    mail_name: str,
    campaign: Mapping[str, Any],
    gate: Mapping[str, Any],
    seed: str | None = None,
    on_changed_plan: OnChangedPlan = "fail",
    deferrable: bool = DEFERRABLE,
) -> StagedSend:
    """Make the tasks that send a campaign in stages, inside a DAG.

    All audiences are imported before a mail is sent. Then ``check`` makes the plan: the lists of each stage, without
    the people whom existing campaigns of the run have reached, so that a group that is cleared mails nobody twice and
    leaves nobody out. It fails if a person would be. Then each stage is sent and waited for, and its gate lets the next
    one go out. At last, ``sent`` compares whom the campaigns were sent to with the source.

    The tasks are ``check``, ``sent``, and for each stage that of ``import_stage``, ``send_<stage>`` and, but for the
    last, ``gate_<stage>``. To let a person decide before the first stage, put the tasks in between, such as
    ``staged.check >> preflight >> approve >> staged.sends["canary"]``.

    :param group_id: the id of the task group. Default: ``staged_send``.
    :param stages: for each stage, in their order, the share of all people who have got the mail after it, such as
        ``{"canary": 0.01, "early": 0.1, "rest": 1}``.
    :param import_stage: called with each stage; returns the task that imports its people, with an id and a
        ``list_name`` of its own, and ``exact_audience=True``. Each of these tasks reads the whole source and imports
        its stage.
    :param mail_name: the name of the campaign. That of a stage has the name of the stage behind it. It may be a
        template.
    :param campaign: further arguments of ``MailCreateCampaignOperator``, without lists.
    :param gate: arguments of ``MailStatsGateSensor``, without ``mail_name``.
    :param seed: divides the people in another way; it may be a template. Default: ``mail_name``, so that each campaign
        begins with other people.
    :param on_changed_plan: what to do when a stage of this run was sent by another plan, with another mail name, other
        stages or another seed: ``fail`` before anybody else is mailed, or ``mail_others``, everybody whom no stage has
        reached. Default: ``fail``.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :raises ValueError: naming the stage that is wrong, or a task of ``import_stage`` does not import all rows.
    """
    with TaskGroup(group_id) as group:
        tasks = _Stages(import_stage, stages, seed, mail_name, campaign, on_changed_plan)
        imports, check = tasks.imports, tasks.check
        before: Any = check
        sends: dict[str, MailCreateCampaignOperator] = {}
        gates: dict[str, MailStatsGateSensor] = {}
        for name in imports:
            sends[name] = tasks.send_task(f"send_{name}", name, {"deferrable": deferrable, **campaign})
            before >> sends[name]
            before = sends[name]
            if len(sends) < len(imports):
                gates[name] = before = MailStatsGateSensor(
                    task_id=f"gate_{name}",
                    mail_name=_sent_name(sends[name]),
                    **{"deferrable": deferrable, **_connection_of(campaign), **gate},
                )
                sends[name] >> before
        sent = tasks.sent_task()
        before >> sent
    return StagedSend(group, imports, check, sends, gates, sent)


class AbSend(NamedTuple):
    """The tasks of an A/B test, for the tasks before and between them.

    :param group: the task group that has all of them.
    :param imports: the tasks that import the people, by ``a``, ``b`` and ``rest``.
    :param check: the task after them, which makes the plan, and fails if a person would be left out or mailed twice.
    :param sends: the tasks that send the versions ``a`` and ``b`` to their part.
    :param compare: the task that decides which did better.
    :param choose: the task that skips one of ``rest``.
    :param rest: the tasks that send the versions ``a`` and ``b`` to all others, one of which is skipped.
    :param sent: the last task, which fails if a person of the source was not mailed.
    """

    group: TaskGroup
    imports: Mapping[str, BaseContactImportOperator]
    check: Any
    sends: Mapping[str, MailCreateCampaignOperator]
    compare: MailCompareCampaignsOperator
    choose: BaseOperator
    rest: Mapping[str, MailCreateCampaignOperator]
    sent: Any


@checked(
    group_id=TEXT, test_fraction=number(1e-6, 1 - 1e-6), import_stage=FUNCTION, campaign=MAPPING,
    version_a=MAPPING, version_b=MAPPING, wait=MAPPING, compare=MAPPING, seed=TEXT,
    on_changed_plan=choice("fail", "mail_others"),
)  # fmt: skip
def ab_send(
    *,
    group_id: str = "ab_send",
    test_fraction: float = 0.2,
    import_stage: Callable[[Stage], BaseContactImportOperator],
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

    All audiences are imported before a mail is sent, and ``check`` makes the plan, as in :func:`staged_send`. Both
    versions are sent, each to one half of ``test_fraction``; their counts are read at the same age and compared.

    The tasks are those of ``import_stage``, ``check``, ``send_a``, ``send_b``, ``counts_a``, ``counts_b``, ``compare``,
    ``choose``, ``send_rest_a``, ``send_rest_b`` and ``sent``, which compares whom the campaigns were sent to with the
    source. The last two campaigns have one
    name, so that the service has at most one of them, also if the comparison is repeated with later counts.

    :param group_id: the id of the task group. Default: ``ab_send``.
    :param test_fraction: the share of all people in the test, above 0 and below 1. Default: 0.2, a tenth for each
        version.
    :param import_stage: called with the stages ``a``, ``b`` and ``rest``; as in :func:`staged_send`.
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
    :raises ValueError: naming the argument that is wrong, or a task of ``import_stage`` does not import all rows.
    """
    from airflow.providers.standard.operators.python import BranchPythonOperator

    shares = {"a": test_fraction / 2, "b": test_fraction, "rest": 1}
    campaign = {"deferrable": deferrable, **campaign}
    versions = {"a": {**campaign, **version_a}, "b": {**campaign, **version_b}}
    with TaskGroup(group_id) as group:
        tasks = _Stages(import_stage, shares, seed, mail_name, campaign, on_changed_plan)
        imports, check = tasks.imports, tasks.check
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
    return AbSend(group, imports, check, sends, comparison, choose, rest, sent)


def _choose(comparison: Mapping[str, Any], task_ids: Mapping[str, str]) -> str:
    """Return the id of the task that sends the winner to all others."""
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


class _Stages:
    """The imports of the stages, and the tasks around the campaigns.

    :param campaign: the arguments of all campaigns; the connection is taken from them.
    """

    def __init__(
        self,
        import_stage: Callable[[Stage], BaseContactImportOperator],
        shares: Mapping[str, float],
        seed: str | None,
        mail_name: str,
        campaign: Mapping[str, Any],
        on_changed_plan: OnChangedPlan,
    ) -> None:
        seed = mail_name if seed is None else seed
        self.imports: dict[str, BaseContactImportOperator] = {}
        for stage in divide(shares, seed):
            self.imports[stage.name] = imports = import_stage(stage)
            if not isinstance(imports, BaseContactImportOperator):
                raise ValueError(
                    "import_stage: must return the task that imports the people of a stage, not "
                    f"{type(imports).__name__}. Write import_stage=lambda stage: SqlToMailContactsOperator(...)"
                )
            if imports.changes_only or not imports.exact_audience:
                raise ValueError(
                    "import_stage: the task must import all rows into a list of this run: set exact_audience=True, and "
                    "leave out changes_only"
                )
            imports.stage = stage
        self._mail_name = mail_name
        self._plan = {
            "mail_conn_id": campaign.get("mail_conn_id", "mail_default"),
            "results": {name: imports.output for name, imports in self.imports.items()},
            "mail_names": {name: f"{mail_name} {name}" for name in self.imports},
            "division": {"seed": seed, "shares": dict(shares)},
            "mail_others": on_changed_plan == "mail_others",
        }
        self.check: Any = task(task_id="check")(make_plan)(self._plan)

    def send_task(self, task_id: str, stage: str, campaign: Mapping[str, Any]) -> MailCreateCampaignOperator:
        """Return the task that sends a campaign to a stage, with the lists of the plan."""
        return MailCreateCampaignOperator(
            task_id=task_id,
            mail_name=f"{self._mail_name} {stage}",
            # It is this run's if it was sent to the lists of the plan, also if the task had another name before.
            adopt_older=True,
            audience=f"{{{{ {_result(self.check.operator)}['stages'][{stage!r}] }}}}",
            wait_for_completion=True,
            **campaign,
        )

    def sent_task(self, **options: Any) -> Any:
        """Return the task that compares whom the campaigns were sent to with the source."""
        return task(task_id="sent", **options)(check_sent)(self._plan)


def make_plan(plan: Mapping[str, Any], **context: Any) -> dict[str, Any]:
    """Make the plan of the stages before the first mail; every task after it, and every clear, works from it.

    :param plan: the arguments of :class:`~airflow_provider_mail._task.staged_plan.StagedPlan`.
    :return: the number of rows that the source has, and how many of them were ``accepted``, ``rejected`` and
        ``suppressed``; and ``stages``, the lists of each stage.
    :raises AirflowFailException: people would be left out or mailed twice. Nobody else was mailed.
    """
    return _staged_plan(plan, context).make(cast("Context", context))


def check_sent(plan: Mapping[str, Any], **context: Any) -> dict[str, Any]:
    """Compare whom the campaigns were sent to with the people of the source; see :func:`make_plan`.

    :return: the number of rows by what became of them, and ``mailed``, the number of mails that were sent.
    :raises AirflowFailException: people of the source were not mailed, or a campaign does not exist any more.
    """
    return _staged_plan(plan, context).check_sent()


def _staged_plan(plan: Mapping[str, Any], context: Mapping[str, Any]) -> StagedPlan:
    from airflow_provider_mail._audience.compared import list_owner
    from airflow_provider_mail._task.staged_plan import StagedPlan

    dag = context["task"].dag
    return StagedPlan(**plan, other_tasks={list_owner(dag.dag_id, task_id) for task_id in dag.task_ids})
