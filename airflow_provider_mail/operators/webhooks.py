"""The webhook configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from airflow_provider_mail._task.checks import RedactedField, unwrap
from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.operators._base import BaseMailOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments

__all__ = ["MailSaveWebhookOperator"]

UpdateMode: TypeAlias = Literal["save", "replace"]
"""Whether the URLs of senders that are not given are kept or removed."""


class MailSaveWebhookOperator(BaseMailOperator):
    """Update the webhook configuration: save the fields that differ, if any, and verify them.

    Arguments that are left out stay unchanged at the service. Callback URLs may contain a secret: Airflow neither
    stores nor shows them. There is no sandbox mode: on a connection in sandbox mode nothing is saved, and the task
    fails if something differs.

    Returns ``changed``: the names of the fields that were changed.

    .. seealso:: the guide :ref:`howto/operator:MailSaveWebhookOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param trans_event: which events are pushed: ``dropped``, ``bounced``, ``delivered``, ``spam_report``, ``opened``,
        ``clicked``, ``unsubscribed``, each true or false. Default: unchanged. (templated)
    :param trans_callback_url: the URL that they are pushed to, ``http://`` or ``https://``. Default: unchanged.
        (templated)
    :param trans_callback_url_extra: URLs for single senders, by sender; an empty URL removes that of the sender.
        Default: unchanged. (templated)
    :param trans_callback_url_extra_update_mode: ``save`` keeps the URLs of senders that are not given, ``replace``
        removes them. Used with ``trans_callback_url_extra``. Default: ``save``.
    :param trans_enable: whether events are pushed. Default: unchanged. (templated)
    """

    trans_callback_url = RedactedField()
    trans_callback_url_extra = RedactedField()
    trans_enable: Any

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        trans_event: Templated[Mapping[str, bool]] | None = None,
        trans_callback_url: Templated[str] | None = None,
        trans_callback_url_extra: Templated[Mapping[str, Templated[str]]] | None = None,
        trans_callback_url_extra_update_mode: UpdateMode = "save",
        trans_enable: Templated[bool] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def execute(self, context: Context) -> dict[str, list[str]]:
        """Read the configuration, save the fields that differ, and read it again."""
        from airflow_provider_mail.api.webhooks import SaveWebhook, configure_webhook

        urls = unwrap(self.trans_callback_url_extra)
        extra = None if urls is None else [{"sender": sender, "url": url} for sender, url in urls.items()]
        with self.mail_errors():
            request = self.build_request(SaveWebhook, trans_callback_url_extra=extra, trans_enable=self.trans_enable)
            changed = configure_webhook(self.hook.get_conn(), request)
        self.log.info("%s.", f"Saved: {', '.join(changed)}" if changed else "Nothing to do")
        return {"changed": changed}
