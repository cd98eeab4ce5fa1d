"""A campaign as a task's arguments, shared by whoever creates it and whoever looks at it before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_flags, task_instance_name
from airflow_provider_mail._task.content_file import from_file
from airflow_provider_mail._task.redacted_field import unwrap
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.campaigns import CreateCampaign

MAX_NAME_BYTES = 200


class BaseCampaignOperator(MailTaskMixin, BaseOperator):
    """Knows all of a campaign that the service needs to create it (document, ``/v5/campaign/mail/sends``).

    :param mail_conn_id: the connection.
    :param mail_name: the campaign's name, 200 bytes. Default: made of dag id, task id, run id and map index.
    :param sender_mail: a verified sender of the account.
    :param sender_name: its display name. Default: ``sender_mail``.
    :param subject: may hold tags such as ``{{tag}}`` (in a template field written ``{% raw %}{{tag}}{% endraw %}``).
    :param content: HTML, with tags likewise; or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's folder
        or in ``template_searchpath``, which is rendered as well.
    :param send_date: when to send: a datetime with a zone or ISO 8601 text with one. Default: now. A campaign that
        would have to be created more than five minutes after it fails the task, unless ``allow_past_send_date``.
    :param only_save: save a draft and send nothing.
    :param send_list_names: target lists; needed unless ``only_save``. One name may be given as text, and a template
        such as ``"{{ params.lists }}"`` may make a list of them.
    :param repel_list_names: exclusion lists, in the same forms.
    :param reply_to: where answers go. Default: ``sender_mail``.
    :param attachment: one file: ``{"file_name": ..., "file_data": <Base64>}``.
    :param language_code: language of system modules such as the unsubscribe link.
    :param market_name: activity the campaign belongs to; created when missing.
    :param subscript_name: subscription type; must exist.
    :param project_code: created when missing.
    :param editor_type: ``CLASSIC`` or ``DRAG``.
    :param sandbox_mode: let the service check and create nothing.
    :param ignore_differences: fields that need not agree when an existing campaign is adopted, for instance
        ``["content"]`` where the service rewrites it.
    :param adopt_older: adopt an equal campaign of that name also when it has gone out before this DAG run began.
        Default: no, the task fails; with a constant ``mail_name`` every run but the first would succeed and mail
        nobody.
    :param allow_past_send_date: create the campaign although its ``send_date`` lies in the past: the service sends it
        at once. Default: no.
    """

    template_fields: Sequence[str] = (
        "mail_conn_id",
        "mail_name",
        "sender_mail",
        "sender_name",
        "subject",
        "content",
        "send_date",
        "send_list_names",
        "repel_list_names",
        "reply_to",
        "attachment",
        "language_code",
        "market_name",
        "subscript_name",
        "project_code",
        "editor_type",
    )
    template_fields_renderers = {"content": "html"}  # noqa: RUF012 - Airflow's own attribute
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        mail_name: str | None = None,
        sender_mail: str,
        sender_name: str | None = None,
        subject: str | None = None,
        content: str | None = None,
        send_date: datetime | str | None = None,
        only_save: bool = False,
        send_list_names: Sequence[str] | str | None = None,
        repel_list_names: Sequence[str] | str | None = None,
        reply_to: str | None = None,
        attachment: Mapping[str, str] | None = None,
        language_code: str | None = None,
        market_name: str | None = None,
        subscript_name: str | None = None,
        project_code: str | None = None,
        editor_type: str | None = None,
        sandbox_mode: bool = False,
        ignore_differences: Collection[str] = (),
        adopt_older: bool = False,
        allow_past_send_date: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(
            only_save=only_save,
            sandbox_mode=sandbox_mode,
            adopt_older=adopt_older,
            allow_past_send_date=allow_past_send_date,
        )
        if isinstance(ignore_differences, str):
            raise ValueError("ignore_differences: a list of fields is needed, not text")
        self.mail_conn_id = mail_conn_id
        self.mail_name = mail_name
        self.sender_mail = sender_mail
        self.sender_name = sender_name
        self.subject = subject
        self.content = from_file(content)
        self.send_date = send_date
        self.only_save = only_save
        self.send_list_names = send_list_names
        self.repel_list_names = repel_list_names
        self.reply_to = reply_to
        self.attachment = attachment
        self.language_code = language_code
        self.market_name = market_name
        self.subscript_name = subscript_name
        self.project_code = project_code
        self.editor_type = editor_type
        self.sandbox_mode = sandbox_mode
        self.ignore_differences = ignore_differences
        self.adopt_older = adopt_older
        self.allow_past_send_date = allow_past_send_date

    def request(self, context: Context) -> CreateCampaign:
        """The request that creates the campaign.

        :raises MailValidationError: naming each field that is wrong.
        :raises AirflowFailException: when ``ignore_differences`` names a field that does not exist.
        """
        from airflow_provider_mail._task.list_names import list_names
        from airflow_provider_mail.api.campaigns import CreateCampaign

        given: dict[str, Any] = {
            "mail_name": default_mail_name(context) if self.mail_name is None else self.mail_name,
            "sender_mail": self.sender_mail,
            "sender_name": self.sender_name,
            "subject": self.subject,
            "content": self.content,
            "send_date": self.send_date,
            "only_save": self.only_save or None,
            "send_list_names": list_names("send_list_names", self.send_list_names),
            "repel_list_names": list_names("repel_list_names", self.repel_list_names),
            "reply_to": self.reply_to,
            "attachment": self.attachment,
            "language_code": self.language_code,
            "market_name": self.market_name,
            "subscript_name": self.subscript_name,
            "project_code": self.project_code,
            "editor_type": self.editor_type,
            "sandbox_mode": self.sandbox_mode or None,
        }
        unknown = set(self.ignore_differences) - given.keys()
        if unknown:
            raise AirflowFailException(f"ignore_differences: there is no field {', '.join(sorted(unknown))}")
        return CreateCampaign(**{name: unwrap(self, value, context) for name, value in given.items()})

    def not_older_than(self, context: Context) -> datetime | None:
        """The moment before which a campaign of that name is not this run's; ``None`` if any may be adopted."""
        # The default name is made of the run's id.
        return None if self.adopt_older or self.mail_name is None else run_began(context)


def run_began(context: Context) -> datetime:
    """The latest moment at which the DAG run had surely not sent anything yet, whatever try of it this is.

    ``start_date`` is when the scheduler started the run, also for a backfill and a run that catches up, whose
    ``run_after`` lies far in the past. Retries and deferral keep it, and clearing sets it anew. A run that was cleared
    has sent nothing before ``run_after``; for a backfill that would take in the campaigns of the runs beside it.
    """
    dag_run = context["dag_run"]
    began = dag_run.start_date or dag_run.run_after
    if dag_run.clear_number and dag_run.run_type != "backfill":
        began = min(began, dag_run.run_after)
    return began


def default_mail_name(context: Context) -> str:
    """The name of a task instance's campaign: the same for every try."""
    return task_instance_name(context, MAX_NAME_BYTES)
