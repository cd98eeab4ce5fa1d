"""What a task that waits for its campaign does when it is killed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api._core.requests import Flow

T = TypeVar("T")

KILL_POLL_SECONDS = 0.5
"""Seconds from one thought of having been killed to the next: Airflow ends the process after five."""


class CancelOnKillMixin:
    """Mixin of operators that cancel their campaign, if ``cancel_on_kill`` says so, when somebody ends the task.

    Airflow's word comes as a signal, in the middle of whatever is being done, and also when only the process is to end:
    a worker is drained, a task cleared. So it is noted, and heeded between two requests or while resting.
    """

    cancel_on_kill: bool
    log: Any
    _killed = False

    def on_kill(self) -> None:
        """Note it."""
        self._killed = self.cancel_on_kill

    def sleep_interruptibly(self, seconds: float) -> None:
        """Sleep until it is over or the task is killed; a signal alone does not wake a sleeper."""
        end = time.monotonic() + seconds
        while not self._killed and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, KILL_POLL_SECONDS))

    def unless_killed(self, flow: Flow[T], mail_name: str, context: Context) -> Flow[T]:
        """The same flow, ended between two steps when the task was ended: it must not go on to create anything."""
        from airflow_provider_mail.api._core.exchange import FlowRunner
        from airflow_provider_mail.api.errors import MailError

        walk = FlowRunner(flow)
        while walk.step is not None:
            yield from self.check_kill(mail_name, context)
            try:
                answer = yield walk.step
            except MailError as error:
                walk.fail(error)
            else:
                walk.send(answer)
        yield from self.check_kill(mail_name, context)
        result: T = walk.result
        return result

    def check_kill(self, mail_name: str, context: Context) -> Flow[None]:
        """Do what is to be done about a signal, if there was one."""
        if self._killed:
            self._killed = False
            yield from self.cancel_if_task_ended(mail_name, context)
            self.log.warning("This process is to end, but not the task: campaign %r is not cancelled.", mail_name)

    def cancel_if_task_ended(self, mail_name: str, context: Context) -> Flow[None]:
        """Cancel the campaign and end, if somebody has ended the task.

        :raises AirflowFailException: saying what came of it.
        """
        from airflow_provider_mail._task.on_kill import was_ended
        from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign

        if was_ended(context["ti"]):
            cancellation = yield from cancel_campaign(mail_name)
            raise AirflowFailException(f"the task was ended while it ran: campaign {mail_name!r} {cancellation.text}")
