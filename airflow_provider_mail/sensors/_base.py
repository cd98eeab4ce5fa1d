"""Base class of the sensors: one poll, the decision about it, and continuing in the triggerer or another process."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_mail._task.mixin import MailTaskMixin, seconds_of
from airflow_provider_mail.version_compat import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    conf,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.state import TaskState
    from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget, Wait
    from airflow_provider_mail.triggers._base import BaseWaitTrigger

DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)
TIMEOUT = conf.getfloat("sensors", "default_timeout", fallback=7 * 86_400.0)


class BaseWaitSensor(MailTaskMixin, BaseSensorOperator):
    """Waits for a state at the service in one of three ways, and returns what the last poll found.

    A rejected key fails the task at once. After a successful poll a rejection counts as a failed poll, and the
    connection is read again: keys may be rotated while tasks wait. On a connection in sandbox mode, where the awaited
    object was never created, the sensor succeeds at once and logs it.
    """

    identity: ClassVar[str]
    """The argument that names the awaited object."""

    absent: ClassVar[str]
    """The object that does not exist in sandbox mode, as a format string for its name."""

    state_key: ClassVar[str] = "mail_wait"
    """The key in the task state store (Airflow 3.3) of the state of the wait."""

    lasting_fields: ClassVar[frozenset[str]] = frozenset()
    """The fields of the state that are also kept for the next try."""

    deferrable: bool
    poll_error_timeout: float

    _wait: Any = None
    _polls: Iterator[tuple[object, PollDecision]] | None = None
    _decision: PollDecision | None = None
    _next_poll = 0.0
    _end_time = 0.0
    _stored_state: dict[str, Any] | None = None

    def set_arguments(self, **arguments: Any) -> None:
        super().set_arguments(**arguments)
        self.poke_interval = seconds_of(self.poke_interval)
        self.timeout = seconds_of(self.timeout)
        self.poll_error_timeout = seconds_of(self.poll_error_timeout)

    @property
    def conn_id(self) -> str:
        """The connection that is polled."""
        return self.mail_conn_id

    @abstractmethod
    def poll(self, context: Context) -> object:
        """Poll once; return the object that was found, ``None`` if there is none, or the error of the poll."""

    @abstractmethod
    def new_wait(self, errors: PollErrorBudget, state: dict[str, Any] | None) -> Wait:
        """Return the wait, which decides after each poll.

        :param state: the state of the wait in another process; ``None`` if there is none, or it was not stored.
        """

    @abstractmethod
    def trigger(self, end_time: float) -> BaseWaitTrigger:
        """Return the trigger that continues the wait.

        :param end_time: Unix time of the deadline, by the service's clock.
        """

    def hold_seconds(self, context: Context) -> float:
        """Return the seconds until this process must poll again, because the next one cannot continue; 0 if it can."""
        return 0.0

    @property
    def continues_elsewhere(self) -> bool:
        """Whether other processes also poll for this wait."""
        return self.reschedule and not self.deferrable

    def execute(self, context: Context) -> Any:
        """Wait."""
        from airflow_provider_mail.api.flows.polling import WaitStatus
        from airflow_provider_mail.triggers._base import end_wait

        with self._skip_only_if_seen():
            try:
                return super().execute(context)
            except AirflowSensorTimeout:
                if self._decision is None or self._decision.status is not WaitStatus.WAITING:
                    raise
                decision = self._decision.at_deadline(f" (timeout: {self.timeout:g} s)")
            return end_wait(decision, task=self, timeout_error=AirflowSensorTimeout)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after the trigger."""
        with self._skip_only_if_seen():
            return super().resume_execution(next_method, next_kwargs, context)

    @contextmanager
    def _skip_only_if_seen(self) -> Iterator[None]:
        """Prevent ``soft_fail`` from skipping the task when the last poll failed: then the state is unknown."""
        try:
            yield
            return
        except AirflowSkipException as skip:
            decision = self._decision
            if not self.soft_fail or (decision and decision.is_seen):
                raise
            message = decision.message if decision else str(skip.__cause__ or skip)
        rejected = decision is not None and decision.status == "refused"
        raise (AirflowFailException if rejected else AirflowException)(message)

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Poll once; if the wait continues and ``deferrable`` is set, defer."""
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.api.flows.polling import WaitStatus
        from airflow_provider_mail.triggers._base import end_wait

        if time.monotonic() < self._next_poll:
            return False
        if self._polls is None:
            self._polls = self._start_polls(context)
        result, self._decision = next(self._polls)
        while (
            self._decision.status is WaitStatus.WAITING
            and self.continues_elsewhere
            and (seconds := self.hold_seconds(context))
        ):
            time.sleep(seconds)
            result, self._decision = next(self._polls)
        if self._decision.status is not WaitStatus.WAITING:
            decision = self._decision.for_connection(self.conn_id)
            result = end_wait(decision, task=self, timeout_error=AirflowSensorTimeout)
            return PokeReturnValue(is_done=True, xcom_value=result)
        if isinstance(result, MailError):
            # Only failed polls slow down: the sensor occupies its worker slot anyway.
            self._next_poll = time.monotonic() + self._decision.pause
        if self.deferrable:
            # Only after this poll: a trigger that fires immediately could be faster than the scheduler.
            self.defer(
                trigger=self.trigger(self._end_time + self.clock_offset),
                method_name="execute_complete",
                # The trigger has the same deadline; this one applies when no triggerer runs.
                timeout=timedelta(seconds=self.timeout + self.poke_interval + 60),
            )
        if self.continues_elsewhere:
            self._store_state(context)
        return False

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event."""
        from airflow_provider_mail.triggers._base import decision_of, end_wait

        self._decision = decision_of(event)
        return end_wait(self._decision, task=self, timeout_error=AirflowSensorTimeout)

    def last_look(self, context: Context) -> PollDecision:
        _, decision = next(self._start_polls(context))
        return decision

    def task_state(self, context: Context) -> TaskState:
        """Return the stored state of the wait."""
        from airflow_provider_mail._task.state import task_state

        return task_state(context, self.state_key)

    def _start_polls(self, context: Context) -> Iterator[tuple[object, PollDecision]]:
        """Start or continue the wait."""
        from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget, Polls, WaitStatus

        errors, state = PollErrorBudget(timeout=self.poll_error_timeout), None
        if self.continues_elsewhere:
            # Airflow counts the earlier processes of this try, each of which polled successfully.
            errors.polled_before = bool(context.get("task_reschedule_count"))
            self._stored_state = state = self.task_state(context).read()
            if state and state.get("try_number") != context["ti"].try_number:
                state = {name: value for name, value in state.items() if name in self.lasting_fields}
        self._wait = self.new_wait(errors, state or None)
        self._end_time = time.time() + self.timeout

        def poll() -> tuple[object, float]:
            result = self.poll(context)
            if result is None and self.hook.config.sandbox:
                absent = self.absent.format(getattr(self, self.identity))
                result = PollDecision(WaitStatus.COMPLETE, f"Sandbox: there is no {absent}.")
            return result, self.clock_offset

        return Polls(self._wait, poll, log=self._log_status)

    def _store_state(self, context: Context) -> None:
        state = self._wait.state | {"try_number": context["ti"].try_number}
        if state != self._stored_state:
            self.task_state(context).write(state)
            self._stored_state = state

    def _log_status(self, decision: PollDecision) -> None:
        from airflow_provider_mail.api.flows.polling import status_line

        # The timeout of a rescheduled sensor began in another process.
        end_time = None if self.reschedule and not self.deferrable else self._end_time
        self.log.info("%s", status_line(decision, self.poke_interval, end_time))
