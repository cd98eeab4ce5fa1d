"""What the sensors share: one poll, what it means, and continuing in the triggerer or in another process."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_mail._task.arguments import MailTaskMixin, check_flags, check_number
from airflow_provider_mail.version_compat import AirflowFailException, AirflowSensorTimeout, conf

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.state import TaskState
    from airflow_provider_mail.api.flows.wait_campaign import PollDecision, StatusLog
    from airflow_provider_mail.triggers._base import BaseWaitTrigger


class Wait(Protocol):
    """Judges poll after poll."""

    @property
    def memory(self) -> dict[str, Any]: ...

    def judge(self, look: Any, at: float, offset: float = 0.0) -> PollDecision: ...


class BaseWaitSensor(MailTaskMixin, BaseSensorOperator):
    """Waits for something at the service, in one of three ways, and returns what it saw in the end.

    A refused key fails the task at once. When a poll has worked before, it counts as a failed poll, and the connection
    is read again: keys may be exchanged while tasks wait. On a connection in sandbox mode, where nothing was made that
    could be waited for, it succeeds at once and says so.

    :param mail_conn_id: the connection.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: seconds from one poll to the next.
    :param poll_error_timeout: polls may fail in a row for so long before the wait is given up and the task is retried
        according to its ``retries``; seconds or a timedelta. In ``mode="reschedule"`` before Airflow 3.3, ``timeout``
        alone ends the wait.
    """

    template_fields: Sequence[str] = ("mail_conn_id",)

    identity: str
    """The argument that names what is waited for."""

    absent: str
    """What is not there in sandbox mode."""

    memory_key: ClassVar[str] = "mail_wait"
    """Where the task state store (Airflow 3.3) keeps what the polls have shown."""

    lasting: ClassVar[frozenset[str]] = frozenset()
    """The part of a wait's memory that holds for another try as well."""

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_error_timeout: float | timedelta = 600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(deferrable=deferrable)
        self.mail_conn_id = mail_conn_id
        self.deferrable = deferrable
        self.poll_error_timeout = seconds_of(poll_error_timeout)
        check_number("poll_error_timeout", self.poll_error_timeout)
        self._wait: Any = None
        self._verdict: PollDecision | None = None
        self._next_poll = 0.0
        self._end_time: float | None = None
        self._written: dict[str, Any] | None = None
        self._log_status: StatusLog | None = None

    @abstractmethod
    def look(self, context: Context) -> object:
        """One poll; ``None`` when there is nothing, and why it failed when it did."""

    @abstractmethod
    def new_wait(self, memory: dict[str, Any] | None, *, polled: bool) -> Wait:
        """What judges the polls.

        :param memory: what the polls in other processes have shown; ``None`` when there was none or it is not known.
        :param polled: whether there were polls in other processes.
        """

    @abstractmethod
    def trigger(self, end_time: float) -> BaseWaitTrigger:
        """What continues in the triggerer, from where the polls before it have led.

        :param end_time: Unix time.
        """

    def judge(self, look: Any, context: Context) -> PollDecision:
        """What a poll means, after those before it."""
        verdict: PollDecision = self._wait.judge(look, time.time(), self.clock_offset)
        return verdict

    @property
    def remembers(self) -> bool:
        """Whether other processes of this wait have polled, or will."""
        return self.reschedule and not self.deferrable

    def execute(self, context: Context) -> Any:
        """Wait."""
        try:
            return super().execute(context)
        except AirflowSensorTimeout:
            if self._verdict is None:
                raise
            known = self._verdict.message
        raise AirflowSensorTimeout(f"the time is up (timeout: {self.timeout:g} s): {known}")

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Poll once; when it is deferrable and there is something to wait for, continue in the triggerer."""
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.api.flows.wait_campaign import WaitStatus
        from airflow_provider_mail.triggers._base import event_of, mail_stats_of

        awaited = getattr(self, self.identity)
        if not awaited:
            raise AirflowFailException(f"{self.identity}: is empty")
        if time.monotonic() < self._next_poll:
            return False
        if self._wait is None:
            self._wait = self._restored(context)
        look = self.look(context)
        if look is None and self.hook.config.sandbox:
            self.log.info("Sandbox: there is no %s.", self.absent.format(awaited))
            return PokeReturnValue(is_done=True, xcom_value={})
        verdict = self._verdict = self.judge(look, context)
        if isinstance(look, MailError):
            # Failed polls are repeated more slowly; otherwise a worker slot is held anyway.
            self._next_poll = time.monotonic() + verdict.pause
        self._end_time = end_time = self._end_time or time.time() + self.timeout
        # The time of a rescheduled sensor began in another process.
        self._log_if_due(verdict, None if self.reschedule and not self.deferrable else end_time)
        if verdict.outcome is not WaitStatus.WAITING:
            event = event_of(self.mail_conn_id, awaited, verdict)
            return PokeReturnValue(is_done=True, xcom_value=mail_stats_of(event, time_up=AirflowSensorTimeout))
        if self.deferrable:
            # Not before this poll: a trigger that fires at once could overtake the scheduler.
            self.defer(
                trigger=self.trigger(end_time),
                method_name="execute_complete",
                # The trigger keeps the time itself; this one is for a triggerer that is not there.
                timeout=timedelta(seconds=self.timeout + self.poke_interval + 60),
            )
        if self.remembers:
            self._keep(context)
        return False

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event."""
        from airflow_provider_mail.triggers._base import mail_stats_of

        return mail_stats_of(event, time_up=AirflowSensorTimeout)

    def ledger(self, context: Context) -> TaskState:
        """What outlives the process."""
        from airflow_provider_mail._task.state import task_state

        return task_state(context, self.memory_key)

    def _restored(self, context: Context) -> Wait:
        if not self.remembers:
            return self.new_wait(None, polled=False)
        self._written = memory = self.ledger(context).read()
        if memory and memory.get("try_number") != context["ti"].try_number:
            memory = {name: value for name, value in memory.items() if name in self.lasting}
        # Airflow counts the processes of this try before this one: of those, each has polled and gone on waiting.
        polled = bool(context.get("task_reschedule_count"))
        return self.new_wait(memory or None, polled=polled)

    def _keep(self, context: Context) -> None:
        memory = self._wait.memory | {"try_number": context["ti"].try_number}
        if memory != self._written:
            self.ledger(context).write(memory)
            self._written = memory

    def _log_if_due(self, verdict: PollDecision, end_time: float | None) -> None:
        from airflow_provider_mail.api.flows.wait_campaign import StatusLog, status_line

        self._log_status = self._log_status or StatusLog()
        if self._log_status.is_due(verdict, time.time()):
            self.log.info("%s", status_line(verdict, self.poke_interval, end_time))


def seconds_of(time: float | timedelta) -> float:
    """A time as seconds."""
    return time.total_seconds() if isinstance(time, timedelta) else time
