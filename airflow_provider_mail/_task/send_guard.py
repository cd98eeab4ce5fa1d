"""What is checked right before each request that mails many people."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_mail._task.arguments import MailTaskMixin

if TYPE_CHECKING:
    from airflow_provider_mail.api._core.exchange import RequestAttempt
    from airflow_provider_mail.hold import HoldCheck
    from airflow_provider_mail.hooks.mail import MailHook


class SendGuardMixin(MailTaskMixin):
    """Mixin of tasks that create campaigns or send batches: no such request is sent while a hold is set.

    The check is made before each HTTP request, also before one that is repeated. Lookups and waits are not held: a task
    still finds, and waits for, a campaign that was created before.
    """

    @cached_property
    def hook(self) -> MailHook:
        """The hook of ``mail_conn_id``, whose requests are checked."""
        from airflow_provider_mail.hooks.mail import MailHook

        return MailHook(self.mail_conn_id, before_request=self.check_request)

    @cached_property
    def _check_hold(self) -> HoldCheck:
        from airflow_provider_mail.hold import HoldCheck

        return HoldCheck()

    def check_request(self, request: RequestAttempt) -> None:
        """Check whether a request may be sent now; in sandbox mode, every one may.

        :raises MailHeldError: a hold is set, or could not be read.
        """
        from airflow_provider_mail.api.campaigns import CreateCampaign
        from airflow_provider_mail.api.transactional import SendBatch

        if request.operation not in (CreateCampaign.path, SendBatch.path):
            return
        if not (self.sandbox_mode or self.hook.config.sandbox):
            self._check_hold(request.operation)
