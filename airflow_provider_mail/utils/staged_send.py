"""Send a campaign in stages: to a few people first, and to the others when the counts are good."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import TaskGroup, task

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.sensors.gate import MailStatsGateOperator
from airflow_provider_mail.stages import Stage, divide
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow_provider_mail.operators._contact_import import BaseContactImportOperator

__all__ = ["StagedSend", "staged_send"]


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
    gates: Mapping[str, MailStatsGateOperator]


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
    :param gate: arguments of ``MailStatsGateOperator``, without ``mail_name``.
    :param seed: divides the people in another way; it may be a template. Default: ``mail_name``, so that each campaign
        begins with other people.
    :raises ValueError: naming the stage that is wrong, or a task of ``audience`` does not import all rows.
    """
    with TaskGroup(group_id) as group:
        divided = divide(stages, mail_name if seed is None else seed)
        audiences = {stage.name: _import_task(audience, stage) for stage in divided}
        results: list[Any] = [imports.output for imports in audiences.values()]
        before: Any = _check(results)
        check = before
        sends: dict[str, MailCreateCampaignOperator] = {}
        gates: dict[str, MailStatsGateOperator] = {}
        for stage in divided:
            name = f"{mail_name} {stage.name}"
            sends[stage.name] = MailCreateCampaignOperator(
                task_id=f"send_{stage.name}",
                mail_name=name,
                audience=audiences[stage.name].output,
                repel_list_names=_lists_of([audiences[earlier] for earlier in gates]),
                wait_for_completion=True,
                **campaign,
            )
            before >> sends[stage.name]
            if stage is not divided[-1]:
                before = gates[stage.name] = MailStatsGateOperator(task_id=f"gate_{stage.name}", mail_name=name, **gate)
                sends[stage.name] >> before
    return StagedSend(group, audiences, check, sends, gates)


def _import_task(audience: Callable[[Stage], BaseContactImportOperator], stage: Stage) -> BaseContactImportOperator:
    imports = audience(stage)
    if imports.changes_only:
        raise ValueError("audience: the task must import all rows in each run: leave out changes_only")
    imports.stage = stage
    return imports


def _lists_of(people: Sequence[BaseContactImportOperator]) -> str | None:
    """Return a template of the lists that earlier stages were sent to; ``None`` for the first stage."""
    if not people:
        return None
    lists = " + ".join(f"ti.xcom_pull({each.task_id!r})['send_list_names']" for each in people)
    return f"{{{{ {lists} }}}}"


@task(task_id="check")
def _check(results: list[dict[str, Any]]) -> dict[str, int]:
    """Fail if a row is in no stage, or in two: the source may have changed while it was read."""
    return check_stages(results)


def check_stages(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Add up the rows of all stages.

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
