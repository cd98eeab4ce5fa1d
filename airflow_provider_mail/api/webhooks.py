"""Webhook configuration (specification, "Webhook configuration"); the events are in `events`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from airflow_provider_mail.api._core.fields import OptionalWebUrl, Text, WebUrl
from airflow_provider_mail.api._core.requests import (
    Client,
    Effect,
    MailRequest,
    MailResponse,
    Records,
    RequestModel,
    Resource,
)
from airflow_provider_mail.api.errors import MailConflictError, MailValidationError

__all__ = ["EventToggles", "GetWebhook", "SaveWebhook", "SenderCallback", "configure_webhook"]


class EventToggles(RequestModel):
    """Which events the service pushes, by event; ``None`` keeps the current value."""

    dropped: bool | None = None
    bounced: bool | None = None
    delivered: bool | None = None
    spam_report: bool | None = None
    opened: bool | None = None
    clicked: bool | None = None
    unsubscribed: bool | None = None


class SenderCallback(RequestModel):
    """The callback of one sender.

    :param sender: the sender entry.
    :param url: ``http://`` or ``https://``; empty text removes the callback.
    """

    sender: Text
    url: OptionalWebUrl | None = None


class SavedToggles(EventToggles):
    """The toggles as the service returns them; unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore")


class SavedCallback(Resource):
    """A sender's callback as the service returns it."""

    sender: str
    url: str | None = None


class GetWebhookResponse(MailResponse):
    """The saved configuration; all fields are ``None`` before the first save."""

    trans_event: SavedToggles | None = None
    trans_callback_url: str | None = None
    trans_callback_url_extra: Records[SavedCallback] | None = None
    trans_enable: bool | None = None

    @property
    def callbacks(self) -> list[SavedCallback]:
        """The callbacks of single senders."""
        return self.trans_callback_url_extra or []


class GetWebhook(MailRequest[GetWebhookResponse]):
    """Read the configuration."""

    path = "/v5/webhook/get"
    effect = Effect.READ


class SaveWebhook(MailRequest[MailResponse]):
    """Change the configuration; fields that are ``None`` keep their values. Has no sandbox mode.

    :param trans_event: which events are pushed.
    :param trans_callback_url: default callback, ``http://`` or ``https://``.
    :param trans_callback_url_extra: callbacks of single senders.
    :param trans_callback_url_extra_update_mode: ``save`` (the service's default) adds or updates these callbacks,
        ``replace`` replaces all.
    :param trans_enable: whether events are delivered.
    """

    path = "/v5/webhook/save"
    effect = Effect.REPEATABLE

    trans_event: EventToggles | None = None
    trans_callback_url: WebUrl | None = None
    trans_callback_url_extra: list[SenderCallback] | None = None
    trans_callback_url_extra_update_mode: Literal["save", "replace"] | None = None
    trans_enable: bool | None = None

    def changes_to(self, saved: GetWebhookResponse) -> dict[str, Any]:
        """Return the fields that would change the configuration, as arguments of a new request."""
        changes: dict[str, Any] = {}
        toggles = saved.trans_event or SavedToggles()
        requested = self.trans_event.model_dump(exclude_none=True) if self.trans_event else {}
        if events := {name: value for name, value in requested.items() if getattr(toggles, name) is not value}:
            changes["trans_event"] = events
        for name in ("trans_callback_url", "trans_enable"):
            value = getattr(self, name)
            if value is not None and value != getattr(saved, name):
                changes[name] = value
        if self.trans_callback_url_extra is not None:
            changes |= self._callback_changes({callback.sender: callback.url or "" for callback in saved.callbacks})
        return changes

    def _callback_changes(self, saved: dict[str, str]) -> dict[str, Any]:
        replace = self.trans_callback_url_extra_update_mode == "replace"
        requested = {callback.sender: callback.url or "" for callback in self.trans_callback_url_extra or []}
        changed = {sender: url for sender, url in requested.items() if url != saved.get(sender, "")}
        if not changed and not (replace and saved.keys() - requested.keys()):
            return {}
        return {
            # Replacing sends the whole list, in which empty URLs are not needed.
            "trans_callback_url_extra": [
                {"sender": sender, "url": url}
                for sender, url in (requested if replace else changed).items()
                if url or not replace
            ],
            "trans_callback_url_extra_update_mode": "replace" if replace else "save",
        }


def configure_webhook(client: Client, wanted: SaveWebhook) -> list[str]:
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
    different = wanted.changes_to(client.send(GetWebhook()))
    if not different:
        return []
    client.send(SaveWebhook(**different))
    if unsaved := changed_fields(wanted.changes_to(client.send(GetWebhook()))):
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
