"""Verified senders: get, add, verify, delete, and the DNS they depend on."""

from __future__ import annotations

from typing import Any

from mail_emulator import check
from mail_emulator.check import EMAIL, Body, Field
from mail_emulator.operations import SANDBOX, Context, Operation, texts
from mail_emulator.responses import ServiceError
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Row

MARKETING, TRANSACTIONAL = 1, 2
CHECKS = ("mx", "spf", "dkim", "dmarc")


def domain_of(entry: str) -> str:
    return entry.rpartition("@")[2].lower()


def _dns(context: Context, entry: str) -> Row:
    """Return the DNS checks of an entry's domain: 1 or 0 each, and the DKIM selector (None: any)."""
    row = context.store.row("SELECT * FROM dns WHERE entry = ?", [domain_of(entry)])
    default = int(context.settings.dns_default)
    return row or {**dict.fromkeys(CHECKS, default), "selector": None}


def _statuses(context: Context, row: Row) -> Row:
    """Return the four checks of a sender as the service reports them."""
    if row["service"]:
        return dict.fromkeys(CHECKS, 1)
    return _dns(context, row["entry"]) if context.settings.dns_live else row


def state(context: Context, sender: str, sender_type: int) -> str | None:
    """Return why this address cannot send mail of a type: "unknown", "unverified", or None when it can."""
    rows = context.store.rows("SELECT * FROM senders WHERE lower(entry) IN (?, ?)", [sender.lower(), domain_of(sender)])
    if context.settings.sender_type_matters:
        rows = [row for row in rows if row["type"] == sender_type]
    if not rows:
        return "unknown"
    return None if any(all(_statuses(context, row)[check] for check in CHECKS) for row in rows) else "unverified"


def _get(context: Context, body: Body) -> dict[str, Any]:
    sender_email = body["senderEmail"]
    rows = context.store.rows(
        "SELECT * FROM senders WHERE ? IS NULL OR lower(entry) = lower(?) ORDER BY id", [sender_email, sender_email]
    )
    return {"mailFromDomains": [_to_json(context, row) for row in rows]}


def _to_json(context: Context, row: Row) -> dict[str, Any]:
    statuses = _statuses(context, row)
    return {
        "fromDomain": row["entry"],
        **{f"{check}Status": statuses[check] for check in CHECKS},
        "isValidate": int(all(statuses[check] for check in CHECKS)),
        "isServiceDomain": row["service"],
        "senderType": row["type"],
    }


def _add(context: Context, body: Body) -> None:
    entry, sender_type = body["senderEmail"], int(body["senderType"])
    if context.store.row("SELECT 1 FROM senders WHERE lower(entry) = lower(?) AND type = ?", [entry, sender_type]):
        raise ServiceError(context.settings.duplicate_code, f"sender {entry} of type {sender_type} exists already")
    looked_up = _dns(context, entry)
    context.store.insert("senders", entry=entry, type=sender_type, **{check: looked_up[check] for check in CHECKS})


def _verify(context: Context, body: Body) -> dict[str, Any]:
    entry = body["fromDomain"]
    # An entry may be an address, while DNS has its domain; the request may name either.
    sender_ids = [
        row["id"]
        for row in context.store.rows("SELECT id, entry FROM senders")
        if entry.lower() in (row["entry"].lower(), domain_of(row["entry"]))
    ]
    if not sender_ids:
        context.not_found(f"sender {entry}")
    looked_up = _dns(context, entry)
    statuses = {check: looked_up[check] for check in CHECKS}
    if looked_up["selector"] not in (None, body["selector"]):
        statuses["dkim"] = 0
    context.store.run_many(
        "UPDATE senders SET mx = ?, spf = ?, dkim = ?, dmarc = ? WHERE id = ?",
        [(*statuses.values(), sender_id) for sender_id in sender_ids],
    )
    return {
        "valid": all(statuses.values()),
        **{f"good{check.upper()}": bool(status) for check, status in statuses.items()},
    }


def _delete(context: Context, body: Body) -> None:
    if not context.store.run("DELETE FROM senders WHERE lower(entry) = lower(?)", [body["senderEmail"]]):
        context.not_found(f"sender {body['senderEmail']}")


def _is_sender(value: Any, settings: EmulatorSettings) -> str | None:
    if not isinstance(value, str) or not EMAIL.fullmatch(value if "@" in value else f"any@{value}"):
        return "must be an address or a domain below a top-level domain"
    return None


OPERATIONS = (
    Operation("/v5/verified_senders/get", (Field("senderEmail", check.text),), _get),
    Operation(
        "/v5/verified_senders/add",
        (
            Field("senderEmail", _is_sender, required=True),
            Field("senderType", check.one_of("1", "2"), required=True),
            SANDBOX,
        ),
        _add,
    ),
    Operation("/v5/verified_senders/verify", texts("fromDomain", "selector", required=True), _verify),
    Operation("/v5/verified_senders/delete", (*texts("senderEmail", required=True), SANDBOX), _delete),
)
