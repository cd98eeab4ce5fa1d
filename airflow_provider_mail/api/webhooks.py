"""Webhook configuration (document, "Webhook configuration"). What is pushed is in :mod:`.events`."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from airflow_provider_mail.api.base import Effect, MailRequest, MailResponse, Part, Records, Resource
from airflow_provider_mail.api.types import Text, WebUrl, WebUrlOrNothing


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
    url: WebUrlOrNothing | None = None


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
