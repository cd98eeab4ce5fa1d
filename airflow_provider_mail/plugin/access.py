"""What Airflow itself knows: who may see the page, which task instances a user may read, and which tasks wait."""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from fastapi import Depends, HTTPException, Request
from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import aliased

from airflow_provider_mail.hooks.connection import CONN_TYPE, campaign_url, fields_of, token_expiry_warning
from airflow_provider_mail.plugin import base_path
from airflow_provider_mail.plugin.campaign import Campaign, labeled
from airflow_provider_mail.plugin.render import OTHER_TEAMS, Cell, Column, Grid, Task
from airflow_provider_mail.version_compat import AIRFLOW_V_3_1_PLUS, BaseHook, conf

_log = logging.getLogger(__name__)

# dag/task/run, with the map index of a mapped task: the name of a campaign without a `mail_name` of its own.
_TASK_NAME = re.compile(r"([\w.-]+)/([\w.-]+)/([\w.~:+-]+)(?:/(\d+))?", re.ASCII)

if AIRFLOW_V_3_1_PLUS:
    authenticated_user: Any = get_user
else:

    async def authenticated_user(request: Request) -> Any:
        """Return the user of a request. Airflow 3.0 accepts a token in the header only, which a link cannot send."""
        header = re.fullmatch(r"(?i)bearer +(\S+)", request.headers.get("authorization", ""))
        token = header[1] if header else request.cookies.get(COOKIE_NAME_JWT_TOKEN)
        if not token:
            raise HTTPException(401, "Not authenticated")
        by_token: Any = get_user
        return await by_token(token)


def permitted_user(request: Request, user: Any = Depends(authenticated_user)) -> Any:  # noqa: B008
    """Return the user of a request, who needs the permission to view plugins; the state of the request keeps it.

    :raises HTTPException: 403 without the permission, or where the page would show the mail of another team of Airflow.
    """
    if not get_auth_manager().is_authorized_view(access_view=AccessView.PLUGINS, user=user):
        raise HTTPException(403, "Forbidden")
    if conf.getboolean("core", "multi_team", fallback=False) and not _is_in_all_teams(user):
        raise HTTPException(403, OTHER_TEAMS)
    request.state.mail_user = user
    return user


def _is_in_all_teams(user: Any) -> bool:
    from airflow.models.team import Team

    with create_session() as session:
        names = set(session.scalars(select(Team.name)))
    try:
        return bool(get_auth_manager().filter_authorized_teams(teams_names=names, user=user) == names)
    except NotImplementedError:  # an auth manager that does not know teams
        return False


def readable(user: Any, dag_ids: Iterable[str]) -> Collection[str]:
    return {
        dag_id
        for dag_id in set(dag_ids)
        if get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=dag_id), user=user)
    }


def task_named(name: str) -> Task | None:
    """Return the task instance that created something; ``None`` when the name does not show it.

    An import has the name of its task instance, and so has a campaign whose task sets no ``mail_name``.
    """
    match = _TASK_NAME.fullmatch(name)
    return (match[1], match[2], match[3], int(match[4] or -1)) if match else None


_IDENTITY = (TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.run_id, TaskInstance.map_index)


def links_to(tasks: Collection[Task], user: Any) -> Mapping[Task, str]:
    """Return the addresses of those task instances that Airflow has and whose DAG the user may read."""
    try:
        dag_ids = readable(user, (task[0] for task in tasks))
        if not (shown := [task for task in tasks if task[0] in dag_ids]):
            return {}
        with create_session() as session:
            rows: list[Any] = list(session.execute(select(*_IDENTITY).where(tuple_(*_IDENTITY).in_(shown))))
        return {(*row,): task_address(*row) for row in rows}
    except Exception as error:  # the page is shown without links
        _log.debug("No links to tasks: %s", type(error).__name__)
        return {}


def task_address(dag_id: str, task_id: str, run_id: str, map_index: int) -> str:
    """Return the address of a task instance in Airflow; its map index is -1 if it is not mapped."""
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    return f"{base_path()}/dags/{quote(dag_id)}/runs/{quote(run_id, safe='')}/tasks/{quote(task_id)}{mapped}"


def step_name(task: Task) -> str:
    """Return what the page calls a task instance; engineers find the run beside it."""
    dag_id, task_id, _, map_index = task
    return f"{task_id}{f' [{map_index}]' if map_index >= 0 else ''} of {dag_id}"


def platform_url(account: str, campaign: Campaign) -> str:
    """Return the address of a campaign on the platform; empty unless its connection has a ``campaign_url``."""

    def read(connection: Any) -> str:
        template = str(fields_of(connection).get("campaign_url") or "") if connection.conn_type == CONN_TYPE else ""
        return campaign_url(template, mail_name=campaign.name, guid=campaign.guid) if template else ""

    return of_connection(account, read)


def token_warning(account: str) -> str:
    """Return how to renew the access token of a connection that ends; empty for any other."""
    return of_connection(account, token_expiry_warning)


def of_connection(account: str, read: Callable[[Any], str]) -> str:
    """Return what a function reads of a connection; empty if there is none, or one that is not valid."""
    try:
        return read(BaseHook.get_connection(account))
    except Exception as error:
        _log.debug("A connection cannot be read: %s", type(error).__name__)
        return ""


WAITS_LIMIT = 500

_AWAITED = {
    "MailCampaignTrigger": "the campaign has been sent",
    "MailSenderTrigger": "the sender's address is confirmed",
    "MailStatsSettledTrigger": "the results no longer change",
    "MailInboxTrigger": "something happens to its mails",
}


@dataclass(frozen=True)
class Wait:
    """A task that waits.

    :param deadline: when it gives up; ``None`` for never.
    """

    task: Task
    until: str
    account: str
    mail_name: str
    since: datetime.datetime
    deadline: datetime.datetime | None

    @property
    def is_late(self) -> bool:
        """Whether its time is over: its triggerer has not ended it."""
        return self.deadline is not None and self.deadline < datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class Waits:
    """The first `WAITS_LIMIT` tasks that wait, and how many there are."""

    shown: Sequence[Wait]
    total: int


def waits(user: Any) -> Waits:
    """Return the tasks that wait, of the DAGs that a user may read, the longest first."""
    from airflow.models.trigger import Trigger

    # A task that has ended may keep its trigger for a while, and after `airflow dags test` forever.
    waiting = (
        (TaskInstance.trigger_id == Trigger.id)
        & (TaskInstance.state == TaskInstanceState.DEFERRED)
        & Trigger.classpath.startswith("airflow_provider_mail.", autoescape=True)
    )
    with create_session() as session:
        # The permission comes before the limit: many tasks of others must not hide the ones of this user.
        dag_ids = session.scalars(select(TaskInstance.dag_id).join(Trigger, waiting).distinct())
        shown = TaskInstance.dag_id.in_(readable(user, dag_ids))
        total = session.scalar(select(func.count()).select_from(TaskInstance).join(Trigger, waiting).where(shown))
        query = (
            select(*_IDENTITY, Trigger)
            .join(Trigger, waiting)
            .where(shown)
            .order_by(Trigger.created_date, TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.map_index)
            .limit(WAITS_LIMIT)
        )
        rows: list[Any] = list(session.execute(query))
        return Waits([_wait(*row) for row in rows], int(total or 0))


def _wait(dag_id: str, task_id: str, run_id: str, map_index: int, trigger: Any) -> Wait:
    trigger_name = trigger.classpath.rpartition(".")[2]
    account, mail_name, deadline = "", "", None
    # The key that encrypts arguments may have changed. No others are shown: one may be an address.
    with suppress(Exception):
        account = str(trigger.kwargs.get("mail_conn_id") or "")
        mail_name = str(trigger.kwargs.get("mail_name") or "")
        deadline = datetime.datetime.fromtimestamp(trigger.kwargs["end_time"], datetime.UTC)
    return Wait(
        task=(dag_id, task_id, run_id, map_index),
        until=_AWAITED.get(trigger_name, "the email service is done"),
        account=account,
        mail_name=mail_name,
        since=trigger.created_date,
        deadline=deadline,
    )


def decisions(user: Any) -> Sequence[Mapping[str, Any]]:
    """Return the tasks that wait for a person, of the DAGs that a user may read, the longest first.

    :return: of each task of a run with mail: the question, the step, since when, and its page in Airflow with the
        buttons.
    """
    if not AIRFLOW_V_3_1_PLUS:
        return []
    from airflow.models.hitl import HITLDetail

    mail = aliased(TaskInstance)
    sends = select(mail.id).where(
        (mail.dag_id == TaskInstance.dag_id)
        & (mail.run_id == TaskInstance.run_id)
        & (mail.operator.startswith("Mail") | mail.operator.contains("ToMail"))
    )
    query = (
        select(*_IDENTITY, HITLDetail.subject, HITLDetail.created_at)
        .join(HITLDetail, HITLDetail.ti_id == TaskInstance.id)
        # From Airflow 3.3, such a task has a state of its own, and no trigger.
        .where(HITLDetail.responded_at.is_(None), TaskInstance.state.in_(("deferred", "awaiting_input")))
        .where(sends.exists())
        .order_by(HITLDetail.created_at, TaskInstance.dag_id, TaskInstance.task_id)
    )
    with create_session() as session:
        rows: list[Any] = list(session.execute(query))
    dag_ids = readable(user, (row[0] for row in rows))
    shown = [(row[:4], row[4], row[5]) for row in rows if row[0] in dag_ids][:WAITS_LIMIT]
    return [
        {"question": question, "step": step_name(task), "href": f"{task_address(*task)}/required_actions", "since": at}
        for task, question, at in shown
    ]


_CONTINUES = (
    "Each of these steps continues without help as soon as the email service has done what it waits for. A step that "
    "is late needs an engineer, who finds it by its run."
)


def waits_table(waits: Waits, subjects: Mapping[tuple[str, str], str]) -> Grid:
    columns = (
        Column("Step", value=lambda it: Cell(step_name(it.task), href=task_address(*it.task), is_outside=True)),
        Column("Run", value=lambda it: it.task[2], is_below=True),
        Column("Waits until", value="until"),
        Column("Campaign", value=lambda it: labeled(subjects.get((it.account, it.mail_name), ""), it.mail_name)),
        Column("Since", "time", "since"),
        Column("Late after", "time", "deadline"),
        Column("State", value=lambda it: Cell("late", state="failed") if it.is_late else "waiting"),
    )
    shown, total = len(waits.shown), waits.total
    longest = f"The {shown:,} that have waited longest, of {total:,}. " if total > shown else ""
    return Grid.of("waits", "Steps that wait", columns, waits.shown, longest + _CONTINUES)
