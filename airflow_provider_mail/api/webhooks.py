"""Webhook configuration (document, "Webhook configuration"). What is pushed is in `events`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from airflow_provider_mail.api._core.fields import OptionalWebUrl, Text, WebUrl
from airflow_provider_mail.api._core.requests import Effect, MailRequest, MailResponse, Part, Records, Resource


class EventToggles(Part):
    """Which events are pushed; what is left out keeps its value."""

    dropped: bool | None = None
    bounced: bool | None = None
    delivered: bool | None = None
    spam_report: bool | None = None
    opened: bool | None = None
    clicked: bool | None = None
    unsubscribed: bool | None = None


class SenderCallback(Part):
    """The callback of one sender; an empty ``url`` removes it."""

    sender: Text
    url: OptionalWebUrl | None = None


class SavedToggles(EventToggles):
    """The toggles as they read back: keys that we do not know are ignored."""

    model_config = ConfigDict(extra="ignore")


class SavedCallback(Resource):
    """A sender's callback as it reads back."""

    sender: str
    url: str | None = None


class GetWebhookResponse(MailResponse):
    """All ``None`` when nothing has been saved."""

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
    """Change the configuration; only what is given changes. There is no sandbox mode."""

    path = "/v5/webhook/save"
    effect = Effect.REPEATABLE

    trans_event: EventToggles | None = None
    trans_callback_url: WebUrl | None = None
    trans_callback_url_extra: list[SenderCallback] | None = None
    trans_callback_url_extra_update_mode: Literal["save", "replace"] | None = None
    trans_enable: bool | None = None

    def what_differs(self, saved: GetWebhookResponse) -> dict[str, Any]:
        """Those of the fields that would change something, as arguments of a request that saves only them."""
        different: dict[str, Any] = {}
        toggles = saved.trans_event or SavedToggles()
        wanted = self.trans_event.model_dump(exclude_none=True) if self.trans_event else {}
        if events := {name: value for name, value in wanted.items() if getattr(toggles, name) is not value}:
            different["trans_event"] = events
        for name in ("trans_callback_url", "trans_enable"):
            value = getattr(self, name)
            if value is not None and value != getattr(saved, name):
                different[name] = value
        if self.trans_callback_url_extra is not None:
            different |= self._different_callbacks({each.sender: each.url or "" for each in saved.callbacks})
        return different

    def _different_callbacks(self, saved: dict[str, str]) -> dict[str, Any]:
        replace = self.trans_callback_url_extra_update_mode == "replace"
        wanted = {each.sender: each.url or "" for each in self.trans_callback_url_extra or []}
        changed = {sender: url for sender, url in wanted.items() if url != saved.get(sender, "")}
        if not changed and not (replace and saved.keys() - wanted.keys()):
            return {}
        return {
            # Replacing takes the whole list, and there is nothing to be removed from it.
            "trans_callback_url_extra": [
                {"sender": sender, "url": url}
                for sender, url in (wanted if replace else changed).items()
                if url or not replace
            ],
            "trans_callback_url_extra_update_mode": "replace" if replace else "save",
        }
