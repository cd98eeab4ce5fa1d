"""What the sensors share: one poll, the decision about it, and continuing in the triggerer or another process."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_mail._task.arguments import MailTaskMixin, check_number
from airflow_provider_mail.version_compat import AirflowFailException, AirflowSensorTimeout, conf

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.state import TaskState
    from airflow_provider_mail.api.flows.polling import PollDecision, StatusLog
    from airflow_provider_mail.triggers._base import BaseWaitTrigger

DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)
TIMEOUT = conf.getfloat("sensors", "default_timeout", fallback=7 * 86_400.0)


class Wait(Protocol):
    """Decides after each poll whether a wait is over."""

    @property
    def state(self) -> dict[str, Any]: ...

    def decide(self, result: Any, at: float, offset: float = 0.0) -> PollDecision: ...


class BaseWaitSensor(MailTaskMixin, BaseSensorOperator):
    """Waits for a state at the service in one of three ways, and returns what the last poll found.

    A rejected key fails the task at once. After a successful poll a rejection counts as a failed poll, and the
    connection is read again: keys may be rotated while tasks wait. On a connection in sandbox mode, in which nothing
    is created that could be waited for, the sensor succeeds at once and says so.
    """

    identity: ClassVar[str]
    """The argument that names what is awaited."""

    absent: ClassVar[str]
    """What does not exist in sandbox mode, as a format string for the name."""

    state_key: ClassVar[str] = "mail_wait"
    """The key in the task state store (Airflow 3.3) of the state of the wait."""

    lasting_fields: ClassVar[frozenset[str]] = frozenset()
    """The fields of the state that are kept for the next try as well."""

    deferrable: bool
    poll_error_timeout: float

    _wait: Any = None
    _decision: PollDecision | None = None
    _next_poll = 0.0
    _end_time: float | None = None
    _stored_state: dict[str, Any] | None = None
    _log_status: StatusLog | None = None

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        own = {name: value for name, value in arguments.items() if name not in ("poke_interval", "timeout")}
        super().set_arguments(own)
        self.poll_error_timeout = seconds_of(self.poll_error_timeout)
        check_number("poll_error_timeout", self.poll_error_timeout)

    @abstractmethod
    def poll(self, context: Context) -> object:
        """Poll once; return what was found, ``None`` if there is nothing, or the error of the poll.

        :param context: the task's context.
        """

    @abstractmethod
    def new_wait(self, state: dict[str, Any] | None, *, polled_before: bool) -> Wait:
        """Return what decides about the polls.

        :param state: of the wait in another process; ``None`` if there is none, or it was not stored.
        :param polled_before: whether another process has polled.
        """

    @abstractmethod
    def trigger(self, end_time: float) -> BaseWaitTrigger:
        """Return the trigger that continues the wait.

        :param end_time: Unix time of the deadline.
        """

    def decide(self, result: Any, context: Context) -> PollDecision:
        """Decide what a poll means, given those before it.

        :param result: the result of the poll.
        :param context: the task's context.
        """
        decision: PollDecision = self._wait.decide(result, time.time(), self.clock_offset)
        return decision

    @property
    def continues_elsewhere(self) -> bool:
        """Whether other processes of this wait have polled, or will."""
        return self.reschedule and not self.deferrable

    def execute(self, context: Context) -> Any:
        """Wait."""
        try:
            return super().execute(context)
        except AirflowSensorTimeout:
            if self._decision is None:
                raise
            message = self._decision.message
        raise AirflowSensorTimeout(f"the wait timed out (timeout: {self.timeout:g} s): {message}")

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Poll once; defer if wanted and there is something to wait for."""
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.api.flows.polling import WaitStatus
        from airflow_provider_mail.triggers._base import result_of

        awaited = getattr(self, self.identity)
        if not awaited:
            raise AirflowFailException(f"{self.identity}: is empty")
        if time.monotonic() < self._next_poll:
            return False
        if self._wait is None:
            self._wait = self._restore_wait(context)
        result = self.poll(context)
        if result is None and self.hook.config.sandbox:
            self.log.info("Sandbox: there is no %s.", self.absent.format(awaited))
            return PokeReturnValue(is_done=True, xcom_value={})
        decision = self._decision = self.decide(result, context)
        if isinstance(result, MailError):
            # Only failed polls slow down: the sensor holds its worker slot anyway.
            self._next_poll = time.monotonic() + decision.pause
        self._end_time = end_time = self._end_time or time.time() + self.timeout
        # The time-out of a rescheduled sensor began in another process.
        self._log_if_due(decision, None if self.reschedule and not self.deferrable else end_time)
        if decision.status is not WaitStatus.WAITING:
            decision = decision.for_connection(self.mail_conn_id)
            return PokeReturnValue(is_done=True, xcom_value=result_of(decision, timeout_error=AirflowSensorTimeout))
        if self.deferrable:
            # Only after this poll: a trigger that fires at once could overtake the scheduler.
            self.defer(
                trigger=self.trigger(end_time),
                method_name="execute_complete",
                # The trigger has the same deadline; this one is for the case that no triggerer runs.
                timeout=timedelta(seconds=self.timeout + self.poke_interval + 60),
            )
        if self.continues_elsewhere:
            self._store_state(context)
        return False

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event."""
        from airflow_provider_mail.triggers._base import decision_of, result_of

        return result_of(decision_of(event), timeout_error=AirflowSensorTimeout)

    def task_state(self, context: Context) -> TaskState:
        """Return the stored state of the wait.

        :param context: the task's context.
        """
        from airflow_provider_mail._task.state import task_state

        return task_state(context, self.state_key)

    def _restore_wait(self, context: Context) -> Wait:
        if not self.continues_elsewhere:
            return self.new_wait(None, polled_before=False)
        self._stored_state = state = self.task_state(context).read()
        if state and state.get("try_number") != context["ti"].try_number:
            state = {name: value for name, value in state.items() if name in self.lasting_fields}
        # Airflow counts the earlier processes of this try, and each of them polled successfully.
        polled_before = bool(context.get("task_reschedule_count"))
        return self.new_wait(state or None, polled_before=polled_before)

    def _store_state(self, context: Context) -> None:
        state = self._wait.state | {"try_number": context["ti"].try_number}
        if state != self._stored_state:
            self.task_state(context).write(state)
            self._stored_state = state

    def _log_if_due(self, decision: PollDecision, end_time: float | None) -> None:
        from airflow_provider_mail.api.flows.polling import StatusLog, status_line

        self._log_status = self._log_status or StatusLog()
        if self._log_status.is_due(decision, time.time()):
            self.log.info("%s", status_line(decision, self.poke_interval, end_time))


def seconds_of(time: float | timedelta) -> float:
    """Convert a duration to seconds.

    :param time: seconds or a timedelta.
    """
    return time.total_seconds() if isinstance(time, timedelta) else time
