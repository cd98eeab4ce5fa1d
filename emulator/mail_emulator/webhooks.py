"""Webhook configuration: get and save."""

from __future__ import annotations

from typing import Any

from mail_emulator import codec
from mail_emulator.fields import (
    Body,
    Field,
    is_boolean,
    is_text,
    is_web_address,
    list_of,
    one_of,
    record,
)
from mail_emulator.operations import Context, Operation
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Store

TOGGLES = ("dropped", "bounced", "delivered", "spamReport", "opened", "clicked", "unsubscribed")
_ENABLED_AT = "webhook_enabled_at"
_FIELDS = ("transEvent", "transCallbackUrl", "transCallbackUrlExtra", "transEnable")


def configuration(store: Store) -> dict[str, Any]:
    """Return the saved configuration; fields never saved are None."""
    saved: dict[str, Any] = codec.decode(store.get_meta("webhook") or "{}")
    return {**dict.fromkeys(_FIELDS), **saved}


def enabled_at(context: Context) -> int:
    """Return when pushing was last enabled, in milliseconds; earlier events are never pushed."""
    return int(context.store.get_meta(_ENABLED_AT) or 0)


def cap_enabled_at(context: Context) -> None:
    """Move the time of enabling back to the present, after the clock was moved back."""
    if enabled_at(context) > context.now:
        context.store.set_meta(_ENABLED_AT, str(context.now))


def _get(context: Context, body: Body) -> dict[str, Any]:
    return configuration(context.store)


def _save(context: Context, body: Body) -> None:
    current = configuration(context.store)
    if body["transEvent"] is not None:
        toggles = {name: value for name, value in body["transEvent"].items() if value is not None}
        current["transEvent"] = {**dict.fromkeys(TOGGLES, False), **(current["transEvent"] or {}), **toggles}
    if body["transEnable"] and not current["transEnable"]:
        context.store.set_meta(_ENABLED_AT, str(context.now))
    for name in ("transCallbackUrl", "transEnable"):
        if body[name] is not None:
            current[name] = body[name]
    if body["transCallbackUrlExtra"] is not None:
        replace = body["transCallbackUrlExtraUpdateMode"] == "replace"
        current_urls = [] if replace else current["transCallbackUrlExtra"] or []
        by_sender = {item["sender"]: item.get("url") for item in (*current_urls, *body["transCallbackUrlExtra"])}
        current["transCallbackUrlExtra"] = [{"sender": sender, "url": url} for sender, url in by_sender.items() if url]
    context.store.set_meta("webhook", codec.encode(current).decode())


def _is_override(value: Any, settings: EmulatorSettings) -> str | None:
    """An empty address removes the sender's override."""
    return None if value == "" else is_web_address(value, settings)


OPERATIONS = (
    Operation("/v5/webhook/get", (), _get),
    Operation(
        "/v5/webhook/save",
        (
            Field("transEvent", record(*(Field(name, is_boolean) for name in TOGGLES))),
            Field("transCallbackUrl", is_web_address),
            Field(
                "transCallbackUrlExtra",
                list_of(record(Field("sender", is_text, required=True), Field("url", _is_override))),
            ),
            Field("transCallbackUrlExtraUpdateMode", one_of("save", "replace"), default="save"),
            Field("transEnable", is_boolean),
        ),
        _save,
    ),
)
