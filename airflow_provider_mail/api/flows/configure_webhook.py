"""Save a webhook configuration and verify it (specification, "Webhook configuration")."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.errors import MailConflictError, MailValidationError
from airflow_provider_mail.api.webhooks import GetWebhook, SaveWebhook

__all__ = ["configure_webhook"]


def configure_webhook(wanted: SaveWebhook) -> Flow[list[str]]:
    """Save the fields that differ and read them back; return the names of the changed fields.

    :param wanted: the configuration; fields that it leaves out stay unchanged.
    :raises MailConflictError: the service reports success, but has saved other values; the message names the fields.
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
    if unsaved := changed_fields(wanted.changes_to((yield GetWebhook()))):
        raise MailConflictError(
            f"{wanted.path}: the service reports success, but these fields read back differently: {', '.join(unsaved)}",
            operation=wanted.path,
        )
    return changed_fields(different)


def changed_fields(different: dict[str, Any]) -> list[str]:
    """Return the names of fields, without values: callback URLs may contain a secret."""
    events = [f"trans_event.{name}" for name in different.get("trans_event", ())]
    others = [name for name in different if name not in ("trans_event", "trans_callback_url_extra_update_mode")]
    return [*events, *others]
