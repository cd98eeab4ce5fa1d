"""Links from a task to its campaign on the platform."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

    from airflow_provider_mail._task.arguments import MailTaskMixin

LINK_KEY = "mail_campaign_url"

log = logging.getLogger(__name__)


class MailCampaignLink(BaseOperatorLink):
    """The campaign's page, where the connection's ``campaign_url`` says that there is one.

    The task pushes the link as soon as there is a campaign (:func:`push_campaign_link`), so that it is there while the
    task waits. Airflow asks for it in the worker, when the task ends or defers, and keeps the answer under the same
    key. Its API server shows what it finds there, and looks up no connection.
    """

    name = "Campaign"

    @property
    def xcom_key(self) -> str:
        return LINK_KEY

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """What the task has pushed; empty when there is nothing to link to.

        :param operator: the task's.
        :param ti_key: the task instance.
        """
        from airflow_provider_mail.version_compat import XCom

        try:
            # Asked first, since Airflow 3.0 warns of an XCom that is not there.
            if not operator.hook.campaign_url_template:
                return ""
            return XCom.get_value(ti_key=ti_key, key=LINK_KEY) or ""
        except Exception as error:
            # The task may have failed for the same reason; on Airflow 3.0 an error here would keep its callbacks back.
            log.debug("There is no link to the campaign: %s", type(error).__name__)
            return ""


def push_campaign_link(
    task: MailTaskMixin, context: Context, mail_name: str, *, id: int | None = None, guid: str | None = None
) -> None:
    """Let the task link to its campaign, if the connection says where to.

    :param mail_name: the campaign's name.
    :param id: the service's number, if it is known.
    :param guid: the service's unique identifier, if it is known.
    """
    from airflow_provider_mail.hooks.connection import campaign_url

    template = task.hook.campaign_url_template
    if template and (url := campaign_url(template, mail_name=mail_name, id=id, guid=guid)):
        context["ti"].xcom_push(key=LINK_KEY, value=url)
