"""Base class of the operators that take the arguments of a campaign."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, task_instance_name
from airflow_provider_mail._task.content_file import from_file
from airflow_provider_mail._task.redacted_field import unwrap
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.campaigns import CreateCampaign


class BaseCampaignOperator(MailTaskMixin, BaseOperator):
    """Take the arguments of a campaign (document, ``/v5/campaign/mail/sends``), by the names of ``CreateCampaign``."""

    template_fields_renderers = {"content": "html"}  # noqa: RUF012 - Airflow's own attribute
    ui_color = "#e6f1f2"

    mail_name: str | None
    content: Any
    only_save: bool
    ignore_differences: Collection[str]
    adopt_older: bool
    allow_past_send_date: bool

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        super().set_arguments(arguments)
        if isinstance(self.ignore_differences, str):
            raise ValueError("ignore_differences: a list of fields is needed, not text")
        self.content = from_file(self.content)

    def request(self, context: Context) -> CreateCampaign:
        """Build the request that creates the campaign.

        :param context: of the task.
        :raises MailValidationError: naming each field that is wrong.
        :raises AirflowFailException: when ``ignore_differences`` names a field that does not exist.
        """
        from airflow_provider_mail._task.list_names import list_names
        from airflow_provider_mail.api.campaigns import CreateCampaign

        if unknown := sorted(set(self.ignore_differences) - CreateCampaign.model_fields.keys()):
            raise AirflowFailException(f"ignore_differences: there is no field {', '.join(unknown)}")
        lists = ("send_list_names", "repel_list_names")
        given: dict[str, Any] = {name: list_names(name, unwrap(self, getattr(self, name), context)) for name in lists}
        if self.mail_name is None:
            given["mail_name"] = default_mail_name(context)
        return self.build_request(CreateCampaign, context, **given)

    def not_older_than(self, context: Context) -> datetime | None:
        """Return the earliest send time of a campaign that this run may adopt; ``None`` if it may adopt any.

        :param context: of the task.
        """
        # The default name is made of the run's id.
        return None if self.adopt_older or self.mail_name is None else run_began(context)


def run_began(context: Context) -> datetime:
    """Return the latest time at which no try of the DAG run can have sent anything yet.

    ``start_date`` is when the scheduler started the run, also for backfill and catch-up runs, whose ``run_after`` lies
    far in the past. Retries and deferral keep it, and clearing sets it anew. A cleared run has sent nothing before
    ``run_after``; for a backfill, that would include the campaigns of the other runs.

    :param context: of the task.
    """
    dag_run = context["dag_run"]
    began = dag_run.start_date or dag_run.run_after
    if dag_run.clear_number and dag_run.run_type != "backfill":
        began = min(began, dag_run.run_after)
    return began


def default_mail_name(context: Context) -> str:
    """Return the name of a task instance's campaign, the same for every try.

    :param context: of the task.
    """
    from airflow_provider_mail.api._core.fields import MAX_MAIL_NAME_BYTES

    return task_instance_name(context, MAX_MAIL_NAME_BYTES)
