"""The webhook configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin
from airflow_provider_mail._task.redacted_field import HiddenField, unwrap
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

UPDATE_MODES = ("save", "replace")


class MailSaveWebhookOperator(MailTaskMixin, BaseOperator):
    """Brings the webhook configuration to what is given: saves what differs, nothing when nothing does, and reads back.

    What is left out stays as it is. Callback URLs may hold a secret: Airflow does not get to see them. There is no
    sandbox mode: on a connection in sandbox mode nothing is saved, and the task fails and says so if something differs.

    Returns ``changed``: the names of the fields that were changed.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/resources.md``.

    :param mail_conn_id: the connection.
    :param trans_event: which events are pushed: ``dropped``, ``bounced``, ``delivered``, ``spam_report``, ``opened``,
        ``clicked``, ``unsubscribed``, true or false.
    :param trans_callback_url: where they are pushed to: ``http://`` or ``https://``.
    :param trans_callback_url_extra: URLs for single senders, by sender; an empty one removes that sender's.
    :param trans_callback_url_extra_update_mode: ``save`` (default) keeps the senders that are not given, ``replace``
        removes them.
    :param trans_enable: whether anything is pushed.
    """

    template_fields: Sequence[str] = (
        "mail_conn_id",
        "trans_event",
        "trans_callback_url",
        "trans_callback_url_extra",
        "trans_enable",
    )
    ui_color = "#e6f1f2"
    trans_callback_url = HiddenField()
    trans_callback_url_extra = HiddenField()

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        trans_event: Mapping[str, bool] | None = None,
        trans_callback_url: str | None = None,
        trans_callback_url_extra: Mapping[str, str] | None = None,
        trans_callback_url_extra_update_mode: str = "save",
        trans_enable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if trans_callback_url_extra_update_mode not in UPDATE_MODES:
            raise ValueError(
                f"trans_callback_url_extra_update_mode: {trans_callback_url_extra_update_mode!r} is none of "
                f"{', '.join(UPDATE_MODES)}"
            )
        self.mail_conn_id = mail_conn_id
        self.trans_event = trans_event
        self.trans_callback_url = trans_callback_url
        self.trans_callback_url_extra = trans_callback_url_extra
        self.trans_callback_url_extra_update_mode = trans_callback_url_extra_update_mode
        self.trans_enable = trans_enable

    def execute(self, context: Context) -> dict[str, list[str]]:
        """Read, save what differs, read back."""
        from airflow_provider_mail.api.flows.configure_webhook import configure_webhook
        from airflow_provider_mail.api.webhooks import SaveWebhook

        by_sender = unwrap(self, self.trans_callback_url_extra, context)
        if by_sender is not None and not isinstance(by_sender, Mapping):
            raise AirflowFailException("trans_callback_url_extra: a dictionary of URLs by sender is needed")
        with self.mail_errors():
            fields: dict[str, Any] = {
                "trans_event": self.trans_event,
                "trans_callback_url": unwrap(self, self.trans_callback_url, context),
                "trans_callback_url_extra": by_sender
                if by_sender is None
                else [{"sender": sender, "url": url} for sender, url in by_sender.items()],
                "trans_callback_url_extra_update_mode": self.trans_callback_url_extra_update_mode,
                "trans_enable": self.trans_enable,
            }
            changed = self.hook.run(configure_webhook(SaveWebhook(**fields)))
        self.log.info("Saved: %s.", ", ".join(changed)) if changed else self.log.info("Nothing to do.")
        return {"changed": changed}
