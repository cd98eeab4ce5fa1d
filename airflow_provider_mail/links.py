"""Links from a task to its campaign on the platform."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

    from airflow_provider_mail._task.mixin import MailTaskMixin

__all__ = ["MailCampaignLink"]

LINK_KEY = "mail_campaign_url"

log = logging.getLogger(__name__)


class MailCampaignLink(BaseOperatorLink):
    """Link to the campaign's page, if the connection has a ``campaign_url``.

    The task pushes the link when the campaign exists (``push_campaign_link``), so that it is shown while the task
    waits. Airflow calls ``get_link`` in the worker when the task ends or defers, and stores the result under the same
    key. The API server shows the stored link and does not read the connection.
    """

    name = "Campaign"

    @property
    def xcom_key(self) -> str:
        return LINK_KEY

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the link that the task has pushed, or an empty string."""
        from airflow_provider_mail.version_compat import XCom

        try:
            # Checked first, since Airflow 3.0 logs a warning for a missing XCom.
            if not operator.hook.campaign_url_template:
                return ""
            return XCom.get_value(ti_key=ti_key, key=LINK_KEY) or ""
        except Exception as error:
            # The task may have failed for the same reason; on Airflow 3.0 an error here would prevent its callbacks.
            log.debug("There is no link to the campaign: %s", type(error).__name__)
            return ""


def push_campaign_link(task: MailTaskMixin, context: Context, mail_name: str, guid: str | None) -> None:
    """Push the link to a campaign, if the connection has a ``campaign_url``."""
    from airflow_provider_mail.hooks.connection import campaign_url

    template = task.hook.campaign_url_template
    if template and (url := campaign_url(template, mail_name=mail_name, guid=guid)):
        context["ti"].xcom_push(key=LINK_KEY, value=url)
