"""Campaign send tasks: sends, cancel, get, delete, stats/get."""

from __future__ import annotations

import unicodedata
import uuid
from typing import Any

from mail_emulator import check, lists, senders
from mail_emulator.campaign_life import (
    CANCELLED,
    DONE,
    DRAFT,
    FAILED,
    SCHEDULED,
    SENDING,
    apply_due_changes,
    counts,
    mail_status,
    queue_task_status,
)
from mail_emulator.check import Body, Field
from mail_emulator.clock import DAY_MS, parse_date, parse_iso, to_ms
from mail_emulator.operations import (
    ATTACHMENT,
    LANGUAGES,
    SANDBOX,
    WINDOW,
    Context,
    Operation,
    attachment_bytes,
    paging,
    texts,
)  # fmt: skip
from mail_emulator.responses import ServiceError, decode_json, encode_json
from mail_emulator.store import Row

STATES = (DRAFT, SCHEDULED, SENDING, DONE, FAILED, CANCELLED)


def _find(context: Context, name: str) -> Row | None:
    """Return the newest task of exactly this name that was not removed."""
    return context.store.row(
        "SELECT * FROM campaigns WHERE name = ? AND team = ? AND deleted_at IS NULL ORDER BY id DESC",
        [name, context.settings.team_name],
    )


def _stored_name(name: str, form: str) -> str:
    if form in ("nfc", "all"):
        name = unicodedata.normalize("NFC", name)
    if form in ("spaces", "all"):
        name = " ".join(name.split())
    return name.lower() if form in ("lower", "all") else name


def _sends(context: Context, body: Body) -> dict[str, Any]:
    settings = context.settings
    name = body["mailName"] = _stored_name(body["mailName"], settings.stored_mail_name)
    if not body["onlySave"] and not body["sendListNames"]:
        raise ServiceError(400, "missing parameter: sendListNames is empty while onlySave is not true")
    if senders.state(context, body["senderMail"], senders.MARKETING):
        raise ServiceError(settings.unverified_sender_code, f"senderMail {body['senderMail']} is not verified")
    for field in ("sendListNames", "repelListNames"):
        for list_name in body[field] or ():
            if lists.find(context, list_name) is None:
                raise ServiceError(403, f"{field}: list {list_name} does not exist")
    is_known = "SELECT 1 FROM labels WHERE kind = 'subscription' AND name = ?"
    if body["subscriptName"] and not context.store.row(is_known, [body["subscriptName"]]):
        raise ServiceError(settings.unknown_subscription_code, f"subscriptName {body['subscriptName']} does not exist")
    if settings.enforce_unique_mail_name and _find(context, name):
        raise ServiceError(settings.duplicate_mail_name_code, f"mailName {name} exists already")
    kept_because = context.plan.kept_because
    size = 0
    try:
        size = attachment_bytes(body.pop("attachment")) or 0
    except ValueError:
        kept_because = kept_because or "adding the attachment failed: fileData is not Base64"
    for label_kind, label in (("market", body["marketName"]), ("project", body["projectCode"])):
        if label:
            context.store.run("INSERT OR IGNORE INTO labels VALUES (?, ?)", [label_kind, label])
    campaign_id, guid = _create(context, body, kept_because, size)
    if kept_because:
        raise ServiceError(500, kept_because, keep=True)
    if context.sandbox and settings.sandbox_ids == "null":
        return {"id": None, "guid": None}
    return {"id": campaign_id, "guid": guid}


def _create(context: Context, body: Body, kept_because: str | None, attachment_bytes: int) -> tuple[int, str]:
    settings = context.settings
    scheduled = parse_iso(body["sendDate"]) if body["sendDate"] else None
    state = DRAFT if body["onlySave"] else settings.kept_task_state if kept_because else SCHEDULED
    campaign_id = context.store.insert(
        "campaigns",
        team=settings.team_name,
        name=body["mailName"],
        type="MailList",
        state=state,
        created=context.now,
        send_at=max(scheduled or 0, context.now),
        visible_at=context.now + int(settings.visible_after_seconds * 1000),
        hidden_looks=settings.visible_after_looks,
        sender=body["senderMail"],
        subject=body["subject"],
        request=encode_json(body).decode(),
        kept_because=kept_because,
        attachment_bytes=attachment_bytes,
    )
    guid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{settings.seed}/{settings.team_name}/{campaign_id}"))
    context.store.update("campaigns", campaign_id, guid=guid)
    queue_task_status(context, campaign_id, context.now, "Created")
    apply_due_changes(context)
    return campaign_id, guid


def _cancel(context: Context, body: Body) -> None:
    row = _find(context, body["mailName"])
    if row is None:
        context.not_found(f"mailName {body['mailName']}")
        return
    if row["state"] != SCHEDULED:
        raise ServiceError(
            context.settings.wrong_state_code,
            f"mailName {body['mailName']} is not scheduled or its send time has passed",
        )
    after = context.settings.state_after_cancel
    context.store.update(
        "campaigns",
        row["id"],
        cancelled_at=context.now,
        deleted_at=context.now if after == "removed" else None,
        state=after if after in (FAILED, CANCELLED) else DRAFT,
    )


def _get(context: Context, body: Body) -> dict[str, Any]:
    settings = context.settings
    conditions = ["coalesce(deleted_at, ?) > ?", "hidden_looks = 0", "visible_at <= ?"]
    shown_since = context.now - int(settings.removed_shown_seconds * 1000)
    values: list[object] = [
        context.now + 1,
        shown_since if settings.removed_shown_seconds else context.now,
        context.now,
    ]
    if body["allTeam"]:
        if not settings.cross_team_permission:
            raise ServiceError(settings.forbidden_team_code, "no permission for allTeam")
    else:
        conditions.append("team = ?")
        values.append(settings.team_name)
    for field, condition in (
        ("mailName", context.contains("name")),
        ("subject", context.contains("subject")),
        ("senderMail", "lower(sender) = lower(?)"),
        ("type", "type = ?"),
    ):
        if body[field]:
            conditions.append(condition)
            values.append(body[field])
    if body["mailStatus"] is not None:
        states = [state for state in STATES if mail_status(state, settings) in body["mailStatus"]]
        conditions.append("state IN (SELECT value FROM json_each(?))")
        values.append(encode_json(states).decode())
    rows, total = context.select_page(
        body, "campaigns", conditions, values, order="id", descending=settings.newest_first
    )
    context.store.run("UPDATE campaigns SET hidden_looks = hidden_looks - 1 WHERE hidden_looks > 0")
    for row in rows:
        if row["state"] == SENDING:
            context.store.update("campaigns", row["id"], looks=row["looks"] + 1)
    return {"mailList": [_to_json(context, row) for row in rows], "totalRecords": total}


def _to_json(context: Context, row: Row) -> dict[str, Any]:
    """Return a task in the form of the specification's section "Campaign send task"."""
    request = decode_json(row["request"])
    seconds = context.settings.draft_at_first_seconds
    is_new = seconds > 0 and context.now < row["created"] + int(seconds * 1000)
    state = DRAFT if is_new else row["state"]
    task = {
        "mailName": row["name"],
        "subject": row["subject"],
        # Without any content, an empty text or null, as it was given.
        "mailContent": (request["content"] or "") + context.settings.added_content or request["content"],
        "senderName": request["senderName"] or row["sender"],
        "senderMail": row["sender"],
        "replyTo": request["replyTo"] or row["sender"],
        "rcptEmails": [],
        "repelEmails": [],
        "rcptListNames": request["sendListNames"] or [],
        "repelListNames": request["repelListNames"] or [],
        "sendByDateTime": row["send_at"] - row["send_at"] % (60_000 if context.settings.send_time_in_minutes else 1),
        "taskType": row["type"],
        "mailStatus": mail_status(state, context.settings),
        "guid": row["guid"],
        "teamName": row["team"],
        **{name: request[name] for name in ("languageCode", "marketName", "subscriptName", "projectCode")},
        "reviewerName": None,
    }
    if state == DONE:
        task["mailStats"] = counts(row, context.now, context.settings)
    return task


def _delete(context: Context, body: Body) -> None:
    row = _find(context, body["mailName"])
    if row is None:
        context.not_found(f"mailName {body['mailName']}")
        return
    if row["state"] not in context.settings.deletable_states:
        raise ServiceError(
            context.settings.wrong_state_code, f"mailName {body['mailName']} is {row['state']} and cannot be deleted"
        )
    context.store.update("campaigns", row["id"], deleted_at=context.now)


def period(context: Context, body: Body) -> tuple[int, int]:
    """Return the start of startDate and the end of endDate in milliseconds; ServiceError in the wrong order."""
    first, last = parse_date(body["startDate"]), parse_date(body["endDate"])
    assert first is not None
    assert last is not None
    if first > last:
        raise ServiceError(400, "invalid parameter: startDate is after endDate")
    offset = int(context.settings.stats_utc_offset_hours * 3_600_000)
    return to_ms(first) - offset, to_ms(last) + DAY_MS - offset


def _stats_get(context: Context, body: Body) -> dict[str, Any]:
    begin, end = period(context, body)
    name = body["mailName"] or ""
    matches = "name = ?" if context.settings.stats_mail_name_match == "exact" else context.contains("name")
    rows = context.store.rows(
        "SELECT * FROM campaigns WHERE team = ? AND deleted_at IS NULL AND state = ? AND send_at >= ? AND send_at < ? "
        f"AND (? = '' OR {matches}) AND (? IS NULL OR type = ?) ORDER BY send_at, id",
        [context.settings.team_name, DONE, begin, end, name, name, body["type"], body["type"]],
    )
    records = []
    for row in rows:
        counters = counts(row, context.now, context.settings)
        del counters["deliveredCount"]
        records.append({"mailName": row["name"], "mailSendDate": row["send_at"], **counters})
    return {"mailStatsList": records, "totalRecords": len(records)}


_NAME = Field("mailName", check.text, required=True)
_TYPE = Field("type", check.one_of("MailList", "ABTest"))

OPERATIONS = (
    Operation(
        "/v5/campaign/mail/sends",
        (
            Field("mailName", check.up_to_bytes(200), required=True),
            *texts("senderMail", required=True),
            *texts("senderName", "subject", "content"),
            Field("sendDate", check.moment),
            Field("onlySave", check.boolean, default=False),
            Field("sendListNames", check.list_of(check.text)),
            Field("repelListNames", check.list_of(check.text)),
            Field("replyTo", check.text),
            ATTACHMENT,
            Field("languageCode", check.one_of(*LANGUAGES)),
            *texts("marketName", "subscriptName", "projectCode"),
            Field("editorType", check.one_of("CLASSIC", "DRAG"), default="DRAG"),
            SANDBOX,
        ),
        _sends,
    ),
    Operation("/v5/campaign/mail/cancel", (_NAME, SANDBOX), _cancel),
    Operation(
        "/v5/campaign/mail/get",
        (
            *texts("mailName", "subject", "senderMail"),
            _TYPE,
            Field("allTeam", check.boolean, default=False),
            Field("mailStatus", check.list_of(check.one_of(-1, 1, 2, 4))),
            *paging(10),
        ),
        _get,
    ),
    Operation("/v5/campaign/mail/delete", (_NAME, SANDBOX), _delete),
    Operation("/v5/campaign/mail/stats/get", (*WINDOW, Field("mailName", check.text), _TYPE), _stats_get),
)
