"""Base class of the sensors: Airflow's loop around the polls, and continuing in another process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_mail._task.waiting import WaitingMixin
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
    from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget

DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)
TIMEOUT = conf.getfloat("sensors", "default_timeout", fallback=7 * 86_400.0)


class BaseWaitSensor(WaitingMixin, BaseSensorOperator):
    """Waits for a state at the service in one of three ways, and returns what the last poll found.

    A rejected key fails the task at once. After a successful poll a rejection counts as a failed poll, and the
    connection is read again: keys may be rotated while tasks wait. On a connection in sandbox mode, where the awaited
    object was never created, the sensor succeeds at once and logs it.
    """

    timeout_error = AirflowSensorTimeout

    identity: ClassVar[str]
    """The argument that names the awaited object."""

    absent: ClassVar[str]
    """The object that does not exist in sandbox mode, as a format string for its name."""

    state_key: ClassVar[str] = "mail_wait"
    """The key in the task state store (Airflow 3.3) of the state of the wait."""

    lasting_fields: ClassVar[frozenset[str]] = frozenset()
    """The fields of the state that are also kept for the next try."""

    _next_poll = 0.0
    _stored_state: dict[str, Any] | None = None

    def hold_seconds(self, context: Context) -> float:
        """Return the seconds until this process must poll again, because the next one cannot continue; 0 if it can."""
        return 0.0

    @property
    def continues_elsewhere(self) -> bool:
        """Whether other processes also poll for this wait."""
        return self.reschedule and not self.deferrable

    @property
    def logged_deadline(self) -> float | None:
        """The Unix time of the deadline; ``None`` for a rescheduled sensor, whose timeout began in another process."""
        return None if self.reschedule and not self.deferrable else self._end_time

    def execute(self, context: Context) -> Any:
        from airflow_provider_mail.api.flows.polling import WaitStatus

        with self._skip_only_if_seen():
            try:
                return super().execute(context)
            except AirflowSensorTimeout:
                if self._decision is None or self._decision.status is not WaitStatus.WAITING:
                    raise
                decision = self._decision.at_deadline(f" (timeout: {self.timeout:g} s)")
            return self.end_wait(decision)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
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

        if time.monotonic() < self._next_poll:
            return False
        ends_at = time.monotonic() + self._seconds_left(context)
        decision = self.next_decision(context)
        while (
            decision.status is WaitStatus.WAITING
            and self.continues_elsewhere
            and (seconds := self.hold_seconds(context))
            # Airflow looks at the timeout only between two calls.
            and (left := ends_at - time.monotonic()) > 0
        ):
            time.sleep(min(seconds, left))
            decision = self.next_decision(context)
        if decision.status is not WaitStatus.WAITING:
            return PokeReturnValue(is_done=True, xcom_value=self.end_wait(decision.for_connection(self.conn_id)))
        if isinstance(self._result, MailError):
            # Only failed polls slow down: the sensor occupies its worker slot anyway.
            self._next_poll = time.monotonic() + decision.pause
        if self.deferrable and self.may_defer():
            self.defer_wait(context)
        if self.continues_elsewhere:
            self._store_state(context)
        return False

    def may_defer(self) -> bool:
        """Return whether the wait can continue in the triggerer."""
        return True

    def _seconds_left(self, context: Context) -> float:
        """Return the seconds until the sensor's timeout, which began in the first of its processes."""
        first = context["ti"].get_first_reschedule_date(context)
        return float(self.timeout) - ((datetime.now(UTC) - first).total_seconds() if first else 0.0)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.end_deferral(event)

    def absent_decision(self) -> PollDecision | None:
        """Return the decision about an object that was not found, if it is that of the sandbox."""
        from airflow_provider_mail.api.flows.polling import PollDecision, WaitStatus

        if not self.hook.config.sandbox:
            return None
        absent = self.absent.format(getattr(self, self.identity))
        return PollDecision(WaitStatus.COMPLETE, f"Sandbox: there is no {absent}.", self.sandbox_result())

    def sandbox_result(self) -> dict[str, Any]:
        """Return what the tasks after this one get in sandbox mode, in the form of the usual result."""
        return {"sandbox": True}

    def task_state(self, context: Context) -> TaskState:
        from airflow_provider_mail._task.state import task_state

        return task_state(context, self.state_key)

    def restore(self, context: Context, errors: PollErrorBudget) -> dict[str, Any] | None:
        """Return the state of the wait in an earlier process, and restore the errors that were counted there."""
        if not self.continues_elsewhere:
            return None
        # Airflow counts the earlier processes of this try, each of which polled successfully.
        errors.polled_before = bool(context.get("task_reschedule_count"))
        self._stored_state = state = self.task_state(context).read()
        if state and state.get("try_number") != context["ti"].try_number:
            state = {name: value for name, value in state.items() if name in self.lasting_fields}
        return state or None

    def _store_state(self, context: Context) -> None:
        state = self._wait.state | {"try_number": context["ti"].try_number}
        if state != self._stored_state:
            self.task_state(context).write(state)
            self._stored_state = state
