"""What every task of this provider has: a connection, its hook, and what errors mean."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_mail.api.waiting import Look
    from airflow_provider_mail.hooks.mail import MailHook


class MailTask:
    """Mixin for operators, sensors and transfers."""

    mail_conn_id: str

    @cached_property
    def hook(self) -> MailHook:
        """The hook of ``mail_conn_id``; made at first use, so in the task and not when the DAG is parsed."""
        from airflow_provider_mail.hooks.mail import MailHook

        return MailHook(self.mail_conn_id)

    def mail_errors(self) -> AbstractContextManager[None]:
        """Where errors of the service become what Airflow understands."""
        from airflow_provider_mail.hooks.errors import airflow_errors

        return airflow_errors(self.mail_conn_id)

    def look_at(self, mail_name: str) -> Look:
        """One look at a campaign, for somebody who waits for it; a failed look is a result too."""
        from airflow_provider_mail.api.errors import MailError

        try:
            return self.hook.find_campaign(mail_name)
        except MailError as error:
            return error
