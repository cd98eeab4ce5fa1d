"""What is checked right before each request that mails many people, and the opening of the send window."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.mixin import MailTaskMixin

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.hold import HoldCheck
    from airflow_provider_mail.hooks.mail import MailHook
    from airflow_provider_mail.send_window import SendWindow

TASK_STATE_KEY = "airflow_provider_mail.send_window"


class SendGuardMixin(MailTaskMixin):
    """Mixin of tasks that create campaigns or send batches: no such request is sent while a hold is set.

    Nor is one sent after the send window closed. The check is made right before the first byte of each HTTP request,
    also of one that is repeated: by then the rate and a connection have been waited for. Lookups and waits are not
    held: a task still finds, and waits for, a campaign that was created before.
    """

    send_window: SendWindow | None = None
    log: Any
    _closes: datetime | None = None

    @cached_property
    def hook(self) -> MailHook:
        """The hook of ``mail_conn_id``, whose requests are checked."""
        from airflow_provider_mail.hooks.mail import MailHook

        return MailHook(self.mail_conn_id, before_write=self.check_request)

    @cached_property
    def _check_hold(self) -> HoldCheck:
        from airflow_provider_mail.hold import HoldCheck

        return HoldCheck()

    def check_request(self, operation: str) -> None:
        """Check whether a request may be sent now; in sandbox mode, every one may.

        :param operation: its path.
        :raises MailHeldError: a hold is set, or could not be read.
        :raises MailValidationError: the send window has closed.
        """
        from airflow_provider_mail.api.campaigns import CreateCampaign
        from airflow_provider_mail.api.errors import MailValidationError
        from airflow_provider_mail.api.transactional import SendBatch

        if operation not in (CreateCampaign.path, SendBatch.path):
            return
        if self.sandbox_mode or self.hook.config.sandbox:
            return
        if self._closes is not None and self.hook.get_conn().service_clock.now() >= self._closes:
            raise MailValidationError(
                f"send_window: closed at {self._closes:%Y-%m-%dT%H:%M:%SZ}: this request was not sent. To send it in "
                "the next opening, clear the task",
                operation=operation,
            )
        self._check_hold(operation)

    def fit_window(self, send_date: datetime | None, context: Context) -> datetime | None:
        """Return the send time within the send window, the same in every try; ``send_date`` if there is no window.

        The first try determines the opening: that of ``send_date``, or else the one that is open or opens next. It is
        stored (Airflow 3.3), so that a retry does not send in a later one. Before Airflow 3.3 a retry determines the
        opening from the start of the DAG run. Clearing the task begins again.

        :param send_date: the send time that the user gave, in UTC; ``None`` for now.
        :raises MailValidationError: the window does not open for more than a year.
        """
        from airflow_provider_mail._task.state import task_state
        from airflow_provider_mail.api.errors import MailValidationError

        if self.send_window is None:
            return send_date
        state = task_state(context, TASK_STATE_KEY)
        ti = context["ti"]
        # Clearing a task changes the number; a retry keeps it.
        begun = {"max_tries": getattr(ti, "max_tries", None), "asked": send_date and send_date.isoformat()}
        record = state.read()
        if record is None or {name: record.get(name) for name in begun} != begun:
            moment = send_date or self.hook.get_conn().service_clock.now()
            if send_date is None and not state.durable and ti.try_number > 1:
                moment = context["dag_run"].start_date or moment
            try:
                opening = self.send_window.opening(moment)
            except ValueError as error:
                raise MailValidationError(str(error)) from None
            first = opening.opens if opening.opens > moment else send_date
            record = begun | {"closes": opening.closes.isoformat(), "send_date": first and first.isoformat()}
            state.write(record)
        self._closes = datetime.fromisoformat(record["closes"])
        first = record["send_date"] and datetime.fromisoformat(record["send_date"])
        self.log.info(
            "Send window: %s, not after %s.", f"to be sent at {first:%Y-%m-%dT%H:%M:%SZ}" if first else "open",
            f"{self._closes:%Y-%m-%dT%H:%M:%SZ}",
        )  # fmt: skip
        return first
