"""A task that fails in the triggerer, and mails.

In a file of its own: the dag-processor may lose a callback of a file that arrives while it runs another one of it.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, BaseOperator

from airflow_provider_mail.notifications.mail import MailNotifier
from tests.real.airflow.failing_trigger import FailingTrigger


class Defer(BaseOperator):
    """Fails in the triggerer; the dag-processor calls its callbacks, with less to tell."""

    def execute(self, context: Any) -> None:
        self.defer(trigger=FailingTrigger(), method_name="execute")


with DAG("triggerer", schedule=None):
    Defer(
        task_id="wait",
        on_failure_callback=MailNotifier(to="triggerer@example.com", sender_name="{{ exception.at.all }}"),
    )
