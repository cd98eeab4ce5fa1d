"""What the page shows of waits: the deferred tasks in Airflow's own database whose trigger is one of this package."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_mail.plugin.access import may_read_dag
from airflow_provider_mail.plugin.links import task_address

MOST = 500

_KINDS = {
    "MailCampaignTrigger": "campaign is sent",
    "MailSenderTrigger": "sender is verified",
    "MailStatsSettledTrigger": "statistics no longer change",
    "MailInboxTrigger": "events arrive",
}


@dataclass(frozen=True)
class Wait:
    """A task that waits.

    :param task: the task instance, as ``dag/task/run`` with the map index of a mapped task.
    :param address: its address in Airflow.
    :param until: what it waits for.
    :param mail_name: the campaign that it waits for, if it is one.
    :param since: when it began to wait.
    :param deadline: when it gives up; ``None`` for never.
    """

    task: str
    address: str
    until: str
    mail_name: str
    since: datetime.datetime
    deadline: datetime.datetime | None


def get(user: Any) -> Sequence[Wait]:
    """Return the waits of the DAGs that a user may read, the longest first; at most 500."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = (
        select(TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.run_id, TaskInstance.map_index, Trigger)
        .join(Trigger, TaskInstance.trigger_id == Trigger.id)
        .where(Trigger.classpath.startswith("airflow_provider_mail.", autoescape=True))
        .order_by(Trigger.created_date, TaskInstance.dag_id, TaskInstance.task_id)
        .limit(MOST)
    )
    with create_session() as session:
        rows: list[Any] = list(session.execute(query))
        waits = [(str(row[0]), _wait(*row)) for row in rows]
    readable = {dag_id: may_read_dag(user, dag_id) for dag_id in {dag_id for dag_id, _ in waits}}
    return [wait for dag_id, wait in waits if readable[dag_id]]


def _wait(dag_id: str, task_id: str, run_id: str, map_index: int, trigger: Any) -> Wait:
    trigger_name = trigger.classpath.rpartition(".")[2]
    # Of the arguments, only these two: another one may be an address.
    arguments = trigger.kwargs
    end = arguments.get("end_time")
    deadline = datetime.datetime.fromtimestamp(end, datetime.UTC) if isinstance(end, int | float) else None
    return Wait(
        task="/".join([dag_id, task_id, run_id, *([] if map_index < 0 else [str(map_index)])]),
        address=task_address(dag_id, task_id, run_id, map_index),
        until=_KINDS.get(trigger_name, trigger_name),
        mail_name=str(arguments.get("mail_name") or ""),
        since=trigger.created_date,
        deadline=deadline,
    )
