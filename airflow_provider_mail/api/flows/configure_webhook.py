"""Saving a webhook configuration once, and reading it back (document, "Webhook configuration")."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.errors import MailConflictError, MailValidationError
from airflow_provider_mail.api.webhooks import GetWebhook, SaveWebhook


def configure_webhook(wanted: SaveWebhook) -> Flow[list[str]]:
    """Save what differs from what is saved, and read it back; the names of the fields that were changed.

    :param wanted: the configuration; what it leaves out stays as it is.
    :raises MailConflictError: the service reports success and has something else saved; the fields are named.
    :raises MailValidationError: ``wanted`` is empty.
    """
    if not wanted.model_dump(exclude_none=True, exclude={"trans_callback_url_extra_update_mode"}):
        raise MailValidationError(
            "nothing to save: give trans_event, trans_callback_url, trans_callback_url_extra or trans_enable",
            operation=wanted.path,
        )
    different = wanted.changes_to((yield GetWebhook()))
    if not different:
        return []
    yield SaveWebhook(**different)
    if still := changed_fields(wanted.changes_to((yield GetWebhook()))):
        raise MailConflictError(
            f"{wanted.path}: the service reports success, but what reads back is not what was saved: "
            f"{', '.join(still)}",
            operation=wanted.path,
        )
    return changed_fields(different)


def changed_fields(different: dict[str, Any]) -> list[str]:
    """Names of what differs, without values: callback URLs may hold a secret."""
    events = [f"trans_event.{name}" for name in different.get("trans_event", ())]
    others = [name for name in different if name not in ("trans_event", "trans_callback_url_extra_update_mode")]
    return [*events, *others]
