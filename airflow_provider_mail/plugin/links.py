"""Links from a campaign to the task that made it, and to its page on the platform."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from airflow_provider_mail.hooks.connection import CONN_TYPE, campaign_url, fields_of
from airflow_provider_mail.plugin.access import may_read_dag
from airflow_provider_mail.plugin.settings import base_path
from airflow_provider_mail.version_compat import BaseHook

if TYPE_CHECKING:
    from airflow_provider_mail.plugin.campaigns import Campaign

_log = logging.getLogger(__name__)

Task: TypeAlias = tuple[str, str, str, int]
"""DAG, task, run, and map index or -1."""

# dag/task/run, with the map index of a mapped task: the name of a campaign without a `mail_name` of its own.
_TASK_NAME = re.compile(r"([\w.-]+)/([\w.-]+)/([\w.~:+-]+)(?:/(\d+))?", re.ASCII)


def task_of(name: str, user: Any) -> str:
    """Return the address of the task instance that created something; empty when its name does not show it.

    :param name: the name of a campaign or an import.
    """
    return tasks_of([name], user).get(name, "")


def tasks_of(names: Collection[str], user: Any) -> Mapping[str, str]:
    """Return the addresses of the task instances that created campaigns or imports, by the names of those.

    An import has the name of its task instance, and so has a campaign whose task sets no ``mail_name``. An address is
    returned when Airflow has this task instance and the user may read its DAG.

    :param names: the names of campaigns or imports.
    """
    try:
        tasks = {name: _task(*match.groups()) for name in names if (match := _TASK_NAME.fullmatch(name))}
        readable = {dag_id: may_read_dag(user, dag_id) for dag_id in {task[0] for task in tasks.values()}}
        existing = _existing({task for task in tasks.values() if readable[task[0]]})
    except Exception as error:  # the page is shown without links
        _log.debug("No links to tasks: %s", type(error).__name__)
        return {}
    return {name: task_address(*task) for name, task in tasks.items() if task in existing}


def task_address(dag_id: str, task_id: str, run_id: str, map_index: int) -> str:
    """Return the address of a task instance in Airflow.

    :param map_index: its map index; -1 if it is not mapped.
    """
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    return f"{base_path()}/dags/{quote(dag_id)}/runs/{quote(run_id, safe='')}/tasks/{quote(task_id)}{mapped}"


def platform_url(account: str, campaign: Campaign) -> str:
    """Return the address of a campaign on the platform; empty unless the connection has a ``campaign_url``.

    :param account: the connection of its account.
    """
    try:
        connection = BaseHook.get_connection(account)
        template = str(fields_of(connection).get("campaign_url") or "") if connection.conn_type == CONN_TYPE else ""
        return campaign_url(template, mail_name=campaign.name, guid=campaign.guid) if template else ""
    except Exception as error:  # no such connection, or one that is not valid: there is no link
        _log.debug("No link to the platform: %s", type(error).__name__)
        return ""


def _task(dag_id: str, task_id: str, run_id: str, map_index: str | None) -> Task:
    return dag_id, task_id, run_id, int(map_index or -1)


def _existing(tasks: Collection[Task]) -> Collection[Task]:
    """Those that Airflow has."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select, tuple_

    if not tasks:
        return ()
    identity = (TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.run_id, TaskInstance.map_index)
    with create_session() as session:
        rows = session.execute(select(*identity).where(tuple_(*identity).in_(tasks)))
        return {(row[0], row[1], row[2], row[3]) for row in rows}
