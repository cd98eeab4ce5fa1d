"""Contact lists: add, get, delete."""

from __future__ import annotations

from typing import Any

from mail_emulator import check
from mail_emulator.check import Body, Field
from mail_emulator.clock import iso
from mail_emulator.operations import SANDBOX, Context, Operation, paging
from mail_emulator.responses import ServiceError
from mail_emulator.store import Row

DYNAMIC, STATIC = 0, 1


def find(context: Context, name: str, team: str | None = None) -> Row | None:
    return context.store.row(
        "SELECT * FROM lists WHERE team = ? AND name = ?", [team or context.settings.team_name, name]
    )


def create(context: Context, name: str, description: str | None) -> int:
    """Create a static list in the account's team; return its id."""
    settings = context.settings
    return context.store.insert(
        "lists",
        team=settings.team_name,
        team_id=settings.team_id,
        name=name,
        description=description,
        type=STATIC,
        creator=settings.user_id,
        created=context.now,
        modified=context.now,
    )


def _add(context: Context, body: Body) -> None:
    if find(context, body["listName"]):
        raise ServiceError(context.settings.duplicate_code, f"list {body['listName']} exists already")
    create(context, body["listName"], body["listDescription"])


def _get(context: Context, body: Body) -> dict[str, Any]:
    conditions = ["team = ?"]
    values: list[object] = [context.settings.team_name]
    if body["search"] is not None:
        conditions.append(context.contains("name"))
        values.append(body["search"])
    if body["listType"] is not None:
        conditions.append("type = ?")
        values.append(int(body["listType"]))
    order = {"CreateDate": "created", "ModifyDate": "modified"}[body["sort"] or "CreateDate"]
    descending = context.settings.list_sort_descending
    rows, total = context.select_page(body, "lists", conditions, values, order=order, descending=descending)
    return {"lists": [_to_json(context, row) for row in rows], "totalRecords": total}


def _to_json(context: Context, row: Row) -> dict[str, Any]:
    return {
        "Id": row["id"],
        "TeamId": row["team_id"],
        context.settings.list_name_key: row["name"],
        "ListStatus": row["status"],
        "ListType": row["type"],
        "ListFilters": row["filters"],
        "CreateUserId": row["creator"],
        "CreateDate": iso(row["created"]),
        "ModifyDate": iso(row["modified"]),
    }


def _delete(context: Context, body: Body) -> None:
    row = find(context, body["listName"])
    if row is None:
        context.not_found(f"list {body['listName']}")
        return
    context.store.members.remove_list(row["id"])
    context.store.run("DELETE FROM lists WHERE id = ?", [row["id"]])


_NAME = Field("listName", check.text, required=True)

OPERATIONS = (
    Operation("/v5/lists/add", (_NAME, Field("listDescription", check.text), SANDBOX), _add),
    Operation(
        "/v5/lists/get",
        (
            Field("search", check.text),
            Field("listType", check.one_of(DYNAMIC, STATIC, "0", "1")),
            Field("sort", check.one_of("CreateDate", "ModifyDate")),
            *paging(10),
        ),
        _get,
    ),
    Operation("/v5/lists/delete", (_NAME, SANDBOX), _delete),
)
