"""Determine whether a killed task has ended, or only its process, and cancel its campaign."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import conf

ENDED = frozenset({"success", "failed", "skipped"})
"""States in which no other process and no other try continues a task."""

SHARE = 0.8
"""Share of the time that Airflow allows a trigger whose task was killed; the rest is for logging a timeout."""


class TaskInstance(Protocol):
    """The attributes that identify a task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None


def was_ended(ti: TaskInstance) -> bool:
    """Return whether the task instance was marked failed or successful, or skipped by a run that timed out.

    Airflow also ends the process of a task when a worker is drained, and a trigger when another triggerer takes over or
    the task is cleared: another process then continues with the same campaign.
    """
    return task_state(ti) in ENDED


def task_state(ti: TaskInstance) -> str | None:
    """Return the state of a task instance; ``None`` if it has none, or Airflow does not know it any more."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    mapped = ti.map_index is not None and ti.map_index >= 0
    states = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=ti.map_index if mapped else None,
    )
    key = f"{ti.task_id}_{ti.map_index}" if mapped else ti.task_id
    state: str | None = states.get(ti.run_id, {}).get(key)
    return state


async def cancel_if_ended(ti: TaskInstance | None, mail_conn_id: str, mail_name: str) -> str:
    """Cancel the campaign that a deferred task waits for, if the task was ended.

    :return: the result, for the log: a predicate whose subject is the campaign's name.
    """
    work = asyncio.create_task(_cancel_if_ended(ti, mail_conn_id, mail_name))
    while not work.done():
        # Airflow cancels this call again every second (3.3.2), which must not cancel the work.
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return work.result()


async def _cancel_if_ended(ti: TaskInstance | None, mail_conn_id: str, mail_name: str) -> str:
    seconds = SHARE * conf.getint("triggerer", "on_kill_timeout", fallback=30)
    try:
        async with asyncio.timeout(seconds):
            if ti is None or not await asyncio.to_thread(was_ended, ti):
                return "was not cancelled: the task was not ended, another process continues to wait"
            async with await MailHook(mail_conn_id).get_async_conn() as client:
                return (await client.run(cancel_campaign(mail_name, client.service_clock))).text
    except TimeoutError:
        return f"may not have been cancelled: the request took longer than {seconds:g} s"
