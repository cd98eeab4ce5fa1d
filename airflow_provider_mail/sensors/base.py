"""What the sensors share: one look, what it means, and going on in the triggerer."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider_mail.hooks.task import MailTask, check_flags

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_mail.api.waiting import Verdict
    from airflow_provider_mail.triggers.base import BaseWaitTrigger


class BaseWaitSensor(MailTask, BaseSensorOperator):
    """Waits for something at the service, in one of three ways, and returns what it saw in the end.

    A refused key fails the task at once. When looking has worked before, it counts as one of the ten failed looks in a
    row that are borne, and the connection is read again: keys may be exchanged while tasks wait. On a connection in
    sandbox mode, where nothing was made that could be waited for, it succeeds at once and says so.

    :param mail_conn_id: the connection.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: seconds from one look to the next.
    """

    template_fields: Sequence[str] = ("mail_conn_id",)

    identity: str
    """The argument that names what is waited for."""

    absent: str
    """What is not there in sandbox mode."""

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(deferrable=deferrable)
        self.mail_conn_id = mail_conn_id
        self.deferrable = deferrable

    @abstractmethod
    def look(self, context: Context) -> object:
        """One look; ``None`` when there is nothing, and why it failed when it did."""

    @abstractmethod
    def judge(self, look: Any) -> Verdict:
        """What it means, after those before it."""

    @abstractmethod
    def trigger(self, end_time: float) -> BaseWaitTrigger:
        """What goes on in the triggerer, from where the looks before it have led.

        :param end_time: Unix time.
        """

    def keep(self, context: Context) -> None:
        """Keep what must outlive this look, when another one follows in a worker."""

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Look once; when it is deferrable and there is something to wait for, go on in the triggerer."""
        from airflow_provider_mail.api.waiting import Outcome
        from airflow_provider_mail.triggers.base import event_of, mail_stats_of

        awaited = getattr(self, self.identity)
        if not awaited:
            raise AirflowFailException(f"{self.identity}: is empty")
        look = self.look(context)
        if look is None and self.hook.config.sandbox:
            self.log.info("Sandbox: there is no %s.", self.absent.format(awaited))
            return PokeReturnValue(is_done=True, xcom_value={})
        verdict = self.judge(look)
        self.log.info("%s", verdict.message)
        if verdict.outcome is not Outcome.WAITING:
            event = event_of(self.mail_conn_id, awaited, verdict)
            return PokeReturnValue(is_done=True, xcom_value=mail_stats_of(event, time_up=AirflowSensorTimeout))
        if self.deferrable:
            # Not before this look: a trigger that fires at once could overtake the scheduler.
            self.defer(
                trigger=self.trigger(time.time() + self.timeout),
                method_name="execute_complete",
                # The trigger keeps the time itself; this one is for a triggerer that is not there.
                timeout=timedelta(seconds=self.timeout + self.poke_interval + 60),
            )
        self.keep(context)
        return False

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event."""
        from airflow_provider_mail.triggers.base import mail_stats_of

        return mail_stats_of(event, time_up=AirflowSensorTimeout)
