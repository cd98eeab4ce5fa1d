"""The wait of a task: its polls, the deferral to a trigger, its end, also when the task is killed; and of a sensor."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_mail._task.mixin import MailTaskMixin
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.waits import PollDecision, Polls, Wait, WaitStatus, status_line
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
    from airflow_provider_mail.triggers.campaigns import BaseWaitTrigger


ENDED = frozenset({"success", "failed", "skipped"})
"""States in which no other process and no other try continues a task."""

TRIGGER_FAILED, TRIGGER_TIMEOUT = "__fail__", "Trigger timeout"
"""The method that Airflow calls when a trigger failed, and the error that it passes when the trigger timed out."""

ON_KILL_SHARE = 0.8
"""Share of the time that Airflow allows a trigger whose task was killed; the rest is for logging a timeout."""


class WaitingMixin(MailTaskMixin):
    """Mixin for tasks that wait for a state at the service: in their own process, or deferred to the triggerer."""

    timeout_error: type[AirflowException] = AirflowException
    """Raised when the wait times out."""

    deferrable: bool
    poke_interval: float
    poll_error_timeout: float
    timeout: float
    execution_timeout: timedelta | None
    log: Any
    defer: Callable[..., NoReturn]

    _wait: Any = None
    _polls: Polls | None = None
    _result: object = None
    _decision: PollDecision | None = None
    _end_time = 0.0

    @abstractmethod
    def poll(self, context: Context) -> object:
        """Poll once; return the object that was found, ``None`` if there is none, or the error of the poll."""

    @abstractmethod
    def new_wait(self, **options: Any) -> Wait:
        """Return the wait, which decides after each poll.

        :param options: arguments of every wait; see `Wait`.
        """

    @abstractmethod
    def trigger(self, **options: Any) -> BaseWaitTrigger:
        """Return the trigger that continues the wait.

        :param options: arguments of every trigger; see `BaseWaitTrigger`.
        """

    @property
    def conn_id(self) -> str:
        """The connection that is polled."""
        return self.mail_conn_id

    @property
    def logged_deadline(self) -> float | None:
        """The Unix time of the deadline for the log, if it is known."""
        return self._end_time

    def absent_decision(self) -> PollDecision | None:
        """Return the decision about an object that was not found, where it does not depend on the wait."""
        return None

    def restored(self, context: Context) -> dict[str, Any]:
        """Return what is known of the wait in an earlier process, as arguments of `Wait`."""
        return {}

    def next_decision(self, context: Context) -> PollDecision:
        """Poll once and return the decision; the first call starts the wait, or continues it.

        Polling can continue after an exception, as it does for sensors with ``silent_fail``.
        """
        if self._polls is None:
            self._polls = self._new_polls(context)
        self._result, self._decision = next(self._polls)
        return self._decision

    def defer_wait(self, context: Context) -> NoReturn:
        """Continue in the triggerer; only after a poll: a trigger that fires at once could outrun the scheduler."""
        end_time = self._end_time
        if self.execution_timeout is not None:
            # Airflow itself does not watch it while a task is deferred.
            began = getattr(context["ti"], "start_date", None) or datetime.now(UTC)
            end_time = min(end_time, (began + self.execution_timeout).timestamp())
        options = {"poke_interval": self.poke_interval, "poll_error_timeout": self.poll_error_timeout}
        self.defer(
            trigger=self.trigger(end_time=end_time + self.clock_offset, **options),
            method_name="execute_complete",
            # The trigger has the same deadline; this one applies when no triggerer runs.
            timeout=timedelta(seconds=max(end_time - time.time(), 0) + self.poke_interval + 60),
        )

    def end_wait(self, decision: PollDecision) -> dict[str, Any]:
        """Count the wait; return its result or raise its error."""
        from airflow_provider_mail._metrics import WAITS, WAITS_FAILED, emit, task_tags

        failed = decision.status != "complete"
        emit({WAITS: 1, WAITS_FAILED: int(failed)}, {**task_tags(self), "status": str(decision.status)})
        return result_of(decision, timeout_error=self.timeout_error)

    def end_deferral(self, event: object) -> dict[str, Any]:
        """Parse the trigger's event; return the result of the wait or raise its error."""
        self._decision = decision_of(event)
        limit = self.execution_timeout.total_seconds() if self.execution_timeout is not None else inf
        if self._decision.status == "timeout" and limit < self.timeout:
            self.timeout_error = AirflowException  # As when the task is not deferred: it may be retried.
            message = f"{self._decision.message} (execution_timeout: {limit:g} s)"
            self._decision = replace(self._decision, message=message)
        return self.end_wait(self._decision)

    def last_look(self, context: Context) -> PollDecision:
        """Poll once more after Airflow's own deadline of the deferral."""
        return self.next_decision(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after a deferral.

        When no triggerer ran until Airflow's own deadline, the awaited state may have been reached meanwhile.
        """
        error = (next_kwargs or {}).get("error")
        if next_method == TRIGGER_FAILED and getattr(error, "value", error) == TRIGGER_TIMEOUT:
            decision = self.last_look(context)
            if decision.status == "waiting":
                decision = decision.at_deadline(", and no triggerer ended it")
            event = {"status": decision.status.value, "message": decision.message, "result": decision.result}
            next_method, next_kwargs = "execute_complete", {"event": event}
        return super().resume_execution(next_method, next_kwargs, context)  # type: ignore[misc]

    def _new_polls(self, context: Context) -> Polls:
        self._wait = self.new_wait(poll_error_timeout=self.poll_error_timeout, **self.restored(context))
        self._end_time = self._end_time or time.time() + self.timeout

        def poll() -> tuple[object, float]:
            result = self.poll(context)
            return self.absent_decision() if result is None else result, self.clock_offset

        def log(decision: PollDecision) -> None:
            self.log.info("%s", status_line(decision, self.poke_interval, self.logged_deadline))

        return Polls(self._wait, poll, log=log)


def decision_of(event: object) -> PollDecision:
    """Parse the event of a trigger.

    :raises AirflowException: it is not an event of these triggers.
    """
    match event:
        case {"status": str() as status, "message": str() as message, "result": dict() as result}:
            pass
        case _:
            status = ""
    if status not in set(WaitStatus) - {WaitStatus.WAITING}:
        raise AirflowException(f"not an event of a mail trigger: {event!r}")
    return PollDecision(WaitStatus(status), message, result, is_seen=status not in ("error", "refused"))


def result_of(decision: PollDecision, *, timeout_error: type[AirflowException]) -> dict[str, Any]:
    """Return the result of a wait that has ended, such as the ``mailStats`` of a sent campaign.

    :raises AirflowFailException: the awaited state cannot be reached, or the service rejects the polls: a retry does
        not help.
    :raises AirflowException: the polls failed.
    """
    if decision.status == "complete":
        return decision.result
    if decision.status in ("failed", "refused"):
        raise AirflowFailException(decision.message)
    raise (timeout_error if decision.status == "timeout" else AirflowException)(decision.message)


def was_ended(ti: Any) -> bool:
    """Return whether the task instance was marked failed or successful, or skipped by a run that timed out.

    Airflow also ends the process of a task when a worker is drained, and a trigger when another triggerer takes over or
    the task is cleared: another process then continues with the same campaign.
    """
    return task_instance_state(ti) in ENDED


def task_instance_state(ti: Any) -> str | None:
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


async def cancel_if_ended(ti: Any, mail_conn_id: str, mail_name: str) -> str:
    """Cancel the campaign that a deferred task waits for, if the task was ended.

    :return: the result, for the log: a predicate whose subject is the campaign's name.
    """
    work = asyncio.create_task(_cancel_if_ended(ti, mail_conn_id, mail_name))
    while not work.done():
        # Airflow cancels this call again every second (3.3.2), which must not cancel the work.
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return work.result()


async def _cancel_if_ended(ti: Any, mail_conn_id: str, mail_name: str) -> str:
    from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
    from airflow_provider_mail.hooks.mail import MailHook

    seconds = ON_KILL_SHARE * conf.getint("triggerer", "on_kill_timeout", fallback=30)
    try:
        async with asyncio.timeout(seconds):
            if ti is None or not await asyncio.to_thread(was_ended, ti):
                return "was not cancelled: the task was not ended, another process continues to wait"
            async with await MailHook(mail_conn_id).get_async_conn() as client:
                return (await client.run(cancel_campaign, mail_name)).text
    except TimeoutError:
        return f"may not have been cancelled: the request took longer than {seconds:g} s"


DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)
TIMEOUT = conf.getfloat("sensors", "default_timeout", fallback=7 * 86_400.0)


class BaseWaitSensor(WaitingMixin, BaseSensorOperator):
    """Waits for a state at the service in one of three ways, and returns what the last poll found."""

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

    def restored(self, context: Context) -> dict[str, Any]:
        if not self.continues_elsewhere:
            return {}
        self._stored_state = state = self.task_state(context).read()
        if state and state.get("try_number") != context["ti"].try_number:
            state = {name: value for name, value in state.items() if name in self.lasting_fields}
        # Airflow counts the earlier processes of this try, each of which polled successfully.
        return {"polled_before": bool(context.get("task_reschedule_count")), "state": state}

    def _store_state(self, context: Context) -> None:
        state = self._wait.state | {"try_number": context["ti"].try_number}
        if state != self._stored_state:
            self.task_state(context).write(state)
            self._stored_state = state
