"""Webhook configuration: get and save."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.emulator import codec
from airflow_provider_mail.emulator.fields import (
    Body,
    Field,
    is_boolean,
    is_text,
    is_web_address,
    list_of,
    one_of,
    record,
)
from airflow_provider_mail.emulator.operations import Context, Operation
from airflow_provider_mail.emulator.settings import EmulatorSettings
from airflow_provider_mail.emulator.store import Store

TOGGLES = ("dropped", "bounced", "delivered", "spamReport", "opened", "clicked", "unsubscribed")
_ENABLED_AT = "webhook_enabled_at"
_NOTHING_SAVED: dict[str, Any] = {
    "transEvent": None,
    "transCallbackUrl": None,
    "transCallbackUrlExtra": None,
    "transEnable": None,
}


def configuration(store: Store) -> dict[str, Any]:
    """The saved configuration; what was never saved is None."""
    saved: dict[str, Any] = codec.decode(store.recall("webhook") or "{}")
    return {**_NOTHING_SAVED, **saved}


def enabled_at(context: Context) -> int:
    """When pushing was last enabled; what happened before, while it was paused, is never pushed."""
    return int(context.store.recall(_ENABLED_AT) or 0)


def enabled_no_later_than(context: Context) -> None:
    """Keep the moment of enabling out of the future, for a clock that was moved back."""
    if enabled_at(context) > context.now:
        context.store.remember(_ENABLED_AT, str(context.now))


def get(context: Context, body: Body) -> dict[str, Any]:
    return configuration(context.store)


def save(context: Context, body: Body) -> None:
    current = configuration(context.store)
    if body["transEvent"] is not None:
        given = {name: value for name, value in body["transEvent"].items() if value is not None}
        current["transEvent"] = {**dict.fromkeys(TOGGLES, False), **(current["transEvent"] or {}), **given}
    if body["transEnable"] and not current["transEnable"]:
        context.store.remember(_ENABLED_AT, str(context.now))
    for name in ("transCallbackUrl", "transEnable"):
        if body[name] is not None:
            current[name] = body[name]
    if body["transCallbackUrlExtra"] is not None:
        replace = body["transCallbackUrlExtraUpdateMode"] == "replace"
        kept = [] if replace else current["transCallbackUrlExtra"] or []
        by_sender = {item["sender"]: item.get("url") for item in (*kept, *body["transCallbackUrlExtra"])}
        current["transCallbackUrlExtra"] = [{"sender": sender, "url": url} for sender, url in by_sender.items() if url]
    context.store.remember("webhook", codec.encode(current).decode())


def _is_override(value: Any, settings: EmulatorSettings) -> str | None:
    """An empty address removes the sender's override."""
    return None if value == "" else is_web_address(value, settings)


OPERATIONS = (
    Operation("/v5/webhook/get", (), get),
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
        save,
    ),
)
