"""Links from a campaign to the task that made it, and to its page on the platform."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_mail.hooks.connection import CONN_TYPE, campaign_url, fields_of
from airflow_provider_mail.plugin.access import may_read_dag
from airflow_provider_mail.plugin.settings import base_path
from airflow_provider_mail.version_compat import BaseHook

if TYPE_CHECKING:
    from airflow_provider_mail.plugin.campaigns import Campaign

_log = logging.getLogger(__name__)

# dag/task/run, with the map index of a mapped task: the name of a campaign without a `mail_name` of its own.
_TASK_NAME = re.compile(r"([\w.-]+)/([\w.-]+)/([\w.~:+-]+)(?:/(\d+))?", re.ASCII)


def task_of(mail_name: str, user: Any) -> str:
    """Return the address of the task instance that made a campaign; empty when its name does not tell.

    A campaign whose task sets no ``mail_name`` has the name of the task instance. The address is returned when Airflow
    has this task instance and the user may read its DAG.

    :param mail_name: the name of the campaign.
    :param user: the user.
    """
    match = _TASK_NAME.fullmatch(mail_name)
    if not match:
        return ""
    dag_id, task_id, run_id, map_index = match.groups()
    try:
        if not may_read_dag(user, dag_id) or not _exists(dag_id, task_id, run_id, int(map_index or -1)):
            return ""
    except Exception as error:  # the page is worth more than this link
        _log.debug("No link to the task: %s", type(error).__name__)
        return ""
    return task_address(dag_id, task_id, run_id, int(map_index or -1))


def task_address(dag_id: str, task_id: str, run_id: str, map_index: int) -> str:
    """Return the address of a task instance in Airflow.

    :param dag_id: its DAG.
    :param task_id: its task.
    :param run_id: its run.
    :param map_index: its map index; -1 if it is not mapped.
    """
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    return f"{base_path()}/dags/{quote(dag_id)}/runs/{quote(run_id, safe='')}/tasks/{quote(task_id)}{mapped}"


def platform_url(account: str, campaign: Campaign) -> str:
    """Return the address of a campaign on the platform; empty unless the connection has a ``campaign_url``.

    :param account: the connection of its account.
    :param campaign: the campaign.
    """
    try:
        connection = BaseHook.get_connection(account)
        template = str(fields_of(connection).get("campaign_url") or "") if connection.conn_type == CONN_TYPE else ""
        return campaign_url(template, mail_name=campaign.name, guid=campaign.guid) if template else ""
    except Exception as error:  # no such connection, or one that is not valid: there is no link
        _log.debug("No link to the platform: %s", type(error).__name__)
        return ""


def _exists(dag_id: str, task_id: str, run_id: str, map_index: int) -> bool:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    identity = {"dag_id": dag_id, "task_id": task_id, "run_id": run_id, "map_index": map_index}
    with create_session() as session:
        return session.scalar(select(TaskInstance.dag_id).filter_by(**identity)) is not None
