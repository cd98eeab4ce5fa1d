"""Cancel the campaign of a waiting task that is killed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api._core.requests import Flow

T = TypeVar("T")

KILL_POLL_SECONDS = 0.5
"""Seconds between checks whether the task was killed: Airflow ends the process after five."""


class CancelOnKillMixin:
    """Mixin for operators that cancel their campaign when the task is marked failed or successful.

    Airflow sends a signal, at any point of the work, and also when only the process ends: when a worker is drained or a
    task is cleared. So the signal is recorded, and handled between two requests or during a sleep.
    """

    cancel_on_kill: bool
    log: Any
    _killed = False

    def on_kill(self) -> None:
        """Record the signal."""
        self._killed = self.cancel_on_kill

    def sleep_interruptibly(self, seconds: float) -> None:
        """Sleep; wake early when the task is killed. (A signal alone does not end ``time.sleep``.)

        :param seconds: to sleep.
        """
        end = time.monotonic() + seconds
        while not self._killed and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, KILL_POLL_SECONDS))

    def unless_killed(self, flow: Flow[T], mail_name: str, context: Context) -> Flow[T]:
        """Run the flow; between two steps, check whether the task was killed, so that nothing is created afterwards.

        :param flow: the flow.
        :param mail_name: the name of the campaign.
        :param context: of the task.
        """
        from airflow_provider_mail.api._core.exchange import FlowRunner
        from airflow_provider_mail.api.errors import MailError

        runner = FlowRunner(flow)
        while runner.step is not None:
            yield from self.check_kill(mail_name, context)
            try:
                response = yield runner.step
            except MailError as error:
                runner.fail(error)
            else:
                runner.send(response)
        yield from self.check_kill(mail_name, context)
        result: T = runner.result
        return result

    def check_kill(self, mail_name: str, context: Context) -> Flow[None]:
        """Handle the signal, if there was one.

        :param mail_name: the name of the campaign.
        :param context: of the task.
        :raises AirflowFailException: when the task was ended; the campaign is then cancelled.
        """
        if self._killed:
            self._killed = False
            yield from self.cancel_if_task_ended(mail_name, context)
            self.log.warning("This process is to end, but not the task: campaign %r is not cancelled.", mail_name)

    def cancel_if_task_ended(self, mail_name: str, context: Context) -> Flow[None]:
        """Cancel the campaign and fail, if the task was marked failed or successful.

        :param mail_name: the name of the campaign.
        :param context: of the task.
        :raises AirflowFailException: with the result of the cancellation.
        """
        from airflow_provider_mail._task.on_kill import was_ended
        from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign

        if was_ended(context["ti"]):
            cancellation = yield from cancel_campaign(mail_name)
            raise AirflowFailException(f"the task was ended while it ran: campaign {mail_name!r} {cancellation.text}")
