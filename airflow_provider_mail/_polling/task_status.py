"""Makes polls for campaigns start when the service pushes that the status of a campaign has changed.

A push is not proof: it may be lost, and anybody who knows the URL may send one. It only makes the next poll start
earlier; the poll decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from airflow_provider_mail._config import InboxName, configured_inbox
from airflow_provider_mail.api.errors import MailError

log = logging.getLogger(__name__)

QUERY_SECONDS = 1.0
"""Seconds between two queries of the inbox."""

LONGEST_PAUSE = 60.0
"""Maximum seconds between two queries while they fail."""

Wake = Callable[[], object]


class TaskStatusWatch:
    """Queries the inbox while polls for campaigns run, and wakes those of a connection that received a push."""

    def __init__(self, inbox: InboxName) -> None:
        self._inbox = inbox
        self._wakes: defaultdict[str, list[Wake]] = defaultdict(list)
        self._watching: asyncio.Task[None] | None = None

    def add(self, mail_conn_id: str, wake: Wake) -> None:
        self._wakes[mail_conn_id].append(wake)
        if self._watching is None:
            self._watching = asyncio.create_task(self._run(), name="mail-task-status")

    def remove(self, mail_conn_id: str, wake: Wake) -> bool:
        self._wakes[mail_conn_id].remove(wake)
        return not any(self._wakes.values())

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _run(self) -> None:
        # Not at the top of the module: this imports the dialects of the warehouse, which few triggerers need.
        from airflow_provider_mail._polling.inbox_reader import InboxReader

        reader = InboxReader(self._inbox)
        known: dict[str, int] | None = None
        pause = QUERY_SECONDS
        while True:
            try:
                newest = await reader.aquery(lambda inbox: inbox.newest(task_status_only=True))
            except MailError as error:
                if pause == QUERY_SECONDS:
                    log.warning("Campaigns are polled at their intervals only: %s", error)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                # A push that came before the first query may have come after the first poll.
                for mail_conn_id in self._wakes if known is None else newest:
                    if known is None or newest[mail_conn_id] > known.get(mail_conn_id, 0):
                        for wake in self._wakes.get(mail_conn_id, ()):
                            wake()
                known, pause = newest, QUERY_SECONDS
            await asyncio.sleep(pause)


@asynccontextmanager
async def on_task_status(mail_conn_id: str, wake: Wake) -> AsyncIterator[None]:
    """Call ``wake`` whenever a push with an event ``TaskStatus`` arrives, until the context ends.

    Does nothing where no inbox is configured.

    :param mail_conn_id: the connection that the token of the push belongs to.
    """
    inbox = configured_inbox()
    if inbox is None:
        yield
        return
    watches = _watches.setdefault(asyncio.get_running_loop(), {})
    if inbox not in watches:
        watches[inbox] = TaskStatusWatch(inbox)
    watch = watches[inbox]
    watch.add(mail_conn_id, wake)
    try:
        yield
    finally:
        if watch.remove(mail_conn_id, wake):
            del watches[inbox]
            await watch.stop()


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[InboxName, TaskStatusWatch]] = WeakKeyDictionary()
