"""Whether a task was ended, or only a process in which it runs; and what that means to its campaign."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import conf

ENDED = frozenset({"success", "failed", "skipped"})
"""States in which no other process and no other try goes on with a task."""


SHARE = 0.8
"""Of the time that Airflow gives to a trigger whose task was killed; the rest is for saying that it was not enough."""


class TaskInstance(Protocol):
    """What identifies a task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None


def was_ended(ti: TaskInstance) -> bool:
    """Whether somebody marked the task instance failed or successful, or a run that took too long skipped it.

    Airflow ends the process of a task also when a worker is drained, and a trigger also when another triggerer takes it
    over or the task is cleared: then somebody else goes on with the same campaign.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    mapped = ti.map_index is not None and ti.map_index >= 0
    states = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=ti.map_index if mapped else None,
    )
    key = f"{ti.task_id}_{ti.map_index}" if mapped else ti.task_id
    return states.get(ti.run_id, {}).get(key) in ENDED


async def cancel_if_ended(ti: TaskInstance | None, mail_conn_id: str, mail_name: str) -> str:
    """Cancel the campaign that a deferred task waits for, if the task was ended.

    :return: for the log, to be read behind the campaign's name.
    """
    work = asyncio.create_task(_cancel_if_ended(ti, mail_conn_id, mail_name))
    while not work.done():
        # Airflow cancels what it calls here once more with every second that passes (3.3.2); the work must not end so.
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return work.result()


async def _cancel_if_ended(ti: TaskInstance | None, mail_conn_id: str, mail_name: str) -> str:
    seconds = SHARE * conf.getint("triggerer", "on_kill_timeout", fallback=30)
    try:
        async with asyncio.timeout(seconds):
            if ti is None or not await asyncio.to_thread(was_ended, ti):
                return "was not cancelled: the task was not ended, somebody else waits on"
            async with await MailHook(mail_conn_id).get_async_conn() as client:
                return (await client.run(cancel_campaign(mail_name))).text
    except TimeoutError:
        return f"may not have been cancelled: it was not done in {seconds:g} s"
