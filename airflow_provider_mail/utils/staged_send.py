"""Send a campaign to a few people first: to the others when the counts are good, or in the version that did better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import TaskGroup, task

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.compare import MailCompareCampaignsOperator
from airflow_provider_mail.sensors.gate import MailStatsGateSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from airflow_provider_mail.stages import Stage, divide
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from airflow_provider_mail.operators._contact_import import BaseContactImportOperator

__all__ = ["AbSend", "StagedSend", "ab_send", "staged_send"]


class StagedSend(NamedTuple):
    """The tasks of a campaign that is sent in stages, for the tasks before and between them.

    :param group: the task group that has all of them.
    :param audiences: the tasks that import the people, by stage.
    :param check: the task after them, which fails if a person would be left out.
    :param sends: the tasks that create the campaigns and wait for them, by stage.
    :param gates: the gates, by the stage whose counts they judge.
    """

    group: TaskGroup
    audiences: Mapping[str, BaseContactImportOperator]
    check: Any
    sends: Mapping[str, MailCreateCampaignOperator]
    gates: Mapping[str, MailStatsGateSensor]


def staged_send(
    *,
    group_id: str = "staged_send",
    stages: Mapping[str, float],
    audience: Callable[[Stage], BaseContactImportOperator],
    mail_name: str,
    campaign: Mapping[str, Any],
    gate: Mapping[str, Any],
    seed: str | None = None,
) -> StagedSend:
    """Make the tasks that send a campaign in stages, inside a DAG.

    All audiences are imported before a mail is sent, and ``check`` fails if a person would be left out. Then each
    stage is sent and waited for, and its gate lets the next one go out. A stage excludes the lists of those before it,
    in addition to the division, which puts nobody into two stages.

    The tasks are ``check``, and for each stage that of ``audience``, ``send_<stage>`` and, but for the last,
    ``gate_<stage>``. To let a person decide before the first stage, put the tasks in between, such as
    ``staged.check >> preflight >> approve >> staged.sends["canary"]``.

    :param group_id: the id of the task group. Default: ``staged_send``.
    :param stages: for each stage, in their order, the share of all people who have got the mail after it, such as
        ``{"canary": 0.01, "early": 0.1, "rest": 1}``.
    :param audience: called with each stage; returns the task that imports its people, with an id and a ``list_name`` of
        its own, and mostly ``audience="exact"``. Each of these tasks reads the whole source and imports its stage.
    :param mail_name: the name of the campaign. That of a stage has the name of the stage behind it. It may be a
        template.
    :param campaign: further arguments of ``MailCreateCampaignOperator``, without lists.
    :param gate: arguments of ``MailStatsGateSensor``, without ``mail_name``.
    :param seed: divides the people in another way; it may be a template. Default: ``mail_name``, so that each campaign
        begins with other people.
    :raises ValueError: naming the stage that is wrong, or a task of ``audience`` does not import all rows.
    """
    with TaskGroup(group_id) as group:
        audiences = _import_tasks(audience, divide(stages, mail_name if seed is None else seed))
        check = before = _check_task(audiences)
        sends: dict[str, MailCreateCampaignOperator] = {}
        gates: dict[str, MailStatsGateSensor] = {}
        for name in audiences:
            sends[name] = _send_task(f"send_{name}", mail_name, name, audiences, campaign)
            before >> sends[name]
            if len(sends) < len(audiences):
                gates[name] = MailStatsGateSensor(task_id=f"gate_{name}", mail_name=f"{mail_name} {name}", **gate)
                sends[name] >> gates[name]
                before = gates[name]
    return StagedSend(group, audiences, check, sends, gates)


class AbSend(NamedTuple):
    """The tasks of an A/B test, for the tasks before and between them.

    :param group: the task group that has all of them.
    :param audiences: the tasks that import the people, by ``a``, ``b`` and ``rest``.
    :param check: the task after them, which fails if a person would be left out.
    :param sends: the tasks that send the versions ``a`` and ``b`` to their part.
    :param compare: the task that decides which did better.
    :param choose: the task that skips one of ``rest``.
    :param rest: the tasks that send the versions ``a`` and ``b`` to all others, one of which is skipped.
    """

    group: TaskGroup
    audiences: Mapping[str, BaseContactImportOperator]
    check: Any
    sends: Mapping[str, MailCreateCampaignOperator]
    compare: MailCompareCampaignsOperator
    choose: BaseOperator
    rest: Mapping[str, MailCreateCampaignOperator]


def ab_send(
    *,
    group_id: str = "ab_send",
    test_fraction: float = 0.2,
    audience: Callable[[Stage], BaseContactImportOperator],
    mail_name: str,
    campaign: Mapping[str, Any],
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    wait: Mapping[str, Any],
    compare: Mapping[str, Any] | None = None,
    seed: str | None = None,
) -> AbSend:
    """Make the tasks that send two versions of a campaign to a part of the people, and the better one to all others.

    All audiences are imported before a mail is sent, and ``check`` fails if a person would be left out. Both versions
    are sent, each to one half of ``test_fraction``; their counts are read at the same age and compared.

    The tasks are those of ``audience``, ``check``, ``send_a``, ``send_b``, ``counts_a``, ``counts_b``, ``compare``,
    ``choose``, ``send_rest_a``, ``send_rest_b`` and ``sent``, which ends the group. The last two campaigns have one
    name, so that the service has at most one of them, also if the comparison is repeated with later counts.

    :param group_id: the id of the task group. Default: ``ab_send``.
    :param test_fraction: the share of all people in the test, above 0 and below 1. Default: 0.2, a tenth for each
        version.
    :param audience: called with the stages ``a``, ``b`` and ``rest``; as in :func:`staged_send`.
    :param mail_name: the name of the campaign. That of a stage has ``a``, ``b`` or ``rest`` behind it. It may be a
        template.
    :param campaign: further arguments of ``MailCreateCampaignOperator`` for all campaigns, without lists.
    :param a: those of version A alone, such as ``{"subject": "..."}``.
    :param b: those of version B alone.
    :param wait: arguments of ``MailStatsSettledSensor``, without ``mail_name``: ``{"max_age": timedelta(hours=4)}``
        compares the counts four hours after each version was sent.
    :param compare: arguments of ``MailCompareCampaignsOperator``, without ``a`` and ``b``. Default: its defaults.
    :param seed: divides the people in another way; it may be a template. Default: ``mail_name``.
    :raises ValueError: naming the argument that is wrong, or a task of ``audience`` does not import all rows.
    """
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.providers.standard.operators.python import BranchPythonOperator

    if isinstance(test_fraction, bool) or not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction: must be a number above 0 and below 1, not {test_fraction!r}")
    shares = {"a": test_fraction / 2, "b": test_fraction, "rest": 1}
    versions = {"a": {**campaign, **a}, "b": {**campaign, **b}}
    with TaskGroup(group_id) as group:
        audiences = _import_tasks(audience, divide(shares, mail_name if seed is None else seed))
        check = _check_task(audiences)
        sends: dict[str, MailCreateCampaignOperator] = {}
        counts: dict[str, MailStatsSettledSensor] = {}
        for name, version in versions.items():
            sends[name] = _send_task(f"send_{name}", mail_name, name, audiences, version)
            counts[name] = MailStatsSettledSensor(
                task_id=f"counts_{name}", mail_name=f"{mail_name} {name}", **{"stable_checks": None, **wait}
            )
            check >> sends[name] >> counts[name]
        comparison = MailCompareCampaignsOperator(
            task_id="compare", a=counts["a"].output, b=counts["b"].output, **(compare or {})
        )
        rest = {
            name: _send_task(f"send_rest_{name}", mail_name, "rest", audiences, version)
            for name, version in versions.items()
        }
        choose = BranchPythonOperator(
            task_id="choose",
            python_callable=_choose,
            op_args=[comparison.output, {name: send.task_id for name, send in rest.items()}],
        )
        sent = EmptyOperator(task_id="sent", trigger_rule="none_failed_min_one_success")
        choose >> list(rest.values()) >> sent
    return AbSend(group, audiences, check, sends, comparison, choose, rest)


def _choose(comparison: Mapping[str, Any], task_ids: Mapping[str, str]) -> str:
    """Return the id of the task that sends the winner to all others."""
    return task_ids[comparison["winner"]]


def _import_tasks(
    audience: Callable[[Stage], BaseContactImportOperator], stages: Sequence[Stage]
) -> dict[str, BaseContactImportOperator]:
    """Return the tasks that import the people, by stage."""
    tasks = {}
    for stage in stages:
        tasks[stage.name] = imports = audience(stage)
        if imports.changes_only:
            raise ValueError("audience: the task must import all rows in each run: leave out changes_only")
        imports.stage = stage
    return tasks


def _send_task(
    task_id: str,
    mail_name: str,
    stage: str,
    audiences: Mapping[str, BaseContactImportOperator],
    campaign: Mapping[str, Any],
) -> MailCreateCampaignOperator:
    """Return the task that sends a campaign to a stage, without the people of the stages before it."""
    names = list(audiences)
    earlier = [audiences[name].task_id for name in names[: names.index(stage)]]
    lists = " + ".join(f"ti.xcom_pull({imported!r})['send_list_names']" for imported in earlier)
    return MailCreateCampaignOperator(
        task_id=task_id,
        mail_name=f"{mail_name} {stage}",
        audience=audiences[stage].output,
        repel_list_names=f"{{{{ {lists} }}}}" if lists else None,
        wait_for_completion=True,
        **campaign,
    )


def _check_task(audiences: Mapping[str, BaseContactImportOperator]) -> Any:
    """Return the task that fails if a person would be left out."""
    results: list[Any] = [imports.output for imports in audiences.values()]
    return task(task_id="check")(check_stages)(results)


def check_stages(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Add up the rows of all stages; fail if a row is in none, or in two: the source may change while it is read.

    :param results: of the imports.
    :return: the number of rows that the source has, and how many of them were accepted, rejected and suppressed.
    :raises AirflowFailException: with the numbers, if the imports did not read the same rows.
    """
    read = [result["read"] for result in results]
    counts = {name: sum(result.get(name, 0) for result in results) for name in ("accepted", "rejected", "suppressed")}
    if len(set(read)) > 1 or sum(counts.values()) != read[0]:
        raise AirflowFailException(
            f"the imports of the stages read {', '.join(map(str, read))} rows, of which {counts['accepted']} were "
            f"accepted, {counts['rejected']} rejected and {counts['suppressed']} left out in all stages together. The "
            "source changed while it was read, so somebody may be left out. Nobody was mailed: clear the imports"
        )
    return {"read": read[0], **counts}
