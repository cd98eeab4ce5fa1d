"""Email templates: add, get, delete."""

from __future__ import annotations

from typing import Any

from mail_emulator import check
from mail_emulator.check import Body, Field
from mail_emulator.clock import from_ms
from mail_emulator.operations import Context, Operation, paging, texts
from mail_emulator.responses import ServiceError
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Row

MAX_NAME_LENGTH = 250


def find(context: Context, name: str) -> Row | None:
    return context.store.row("SELECT * FROM templates WHERE name = ?", [name])


def add(context: Context, body: Body) -> None:
    """Add a template (``template/add``); ServiceError if one of that name exists."""
    name = body["templateName"]
    if find(context, name):
        raise ServiceError(context.settings.duplicate_code, f"template {name} exists already")
    context.store.insert(
        "templates",
        name=name,
        content=body["templateContent"],
        subject=body["templateSubject"],
        editor=body["editorType"],
        created=context.now,
    )


def _get(context: Context, body: Body) -> dict[str, Any]:
    name = body["templateName"] or ""
    condition = f"(? = '' OR {context.contains('name')})"
    rows, total = context.select_page(
        body, "templates", [condition], [name, name], order="id", descending=context.settings.newest_first
    )
    return {"templateList": [_to_json(row) for row in rows], "totalRecords": total}


def _to_json(row: Row) -> dict[str, Any]:
    return {
        "templateName": row["name"],
        "templateContent": row["content"],
        "templateSubject": row["subject"],
        "createDate": f"{from_ms(row['created']):%Y-%m-%d %H:%M:%S}.{row['created'] % 1000:03d}",
    }


def _delete(context: Context, body: Body) -> None:
    if not context.store.run("DELETE FROM templates WHERE name = ?", [body["templateName"]]):
        context.not_found(f"template {body['templateName']}")


def _is_name(value: Any, settings: EmulatorSettings) -> str | None:
    if not isinstance(value, str):
        return "must be a string"
    length = len(value.encode()) if settings.template_name_unit == "bytes" else len(value)
    return f"exceeds {MAX_NAME_LENGTH} {settings.template_name_unit}" if length > MAX_NAME_LENGTH else None


OPERATIONS = (
    Operation(
        "/v5/campaign/mail/template/add",
        (
            Field("templateName", _is_name, required=True),
            *texts("templateContent", "templateSubject", required=True),
            Field("editorType", check.one_of("DRAG", "CLASSIC"), default="DRAG"),
        ),
        add,
    ),
    Operation("/v5/campaign/mail/template/get", (Field("templateName", check.text), *paging(10)), _get),
    Operation("/v5/campaign/mail/template/delete", (Field("templateName", check.text, required=True),), _delete),
)
