"""Contacts: upsert, imports, get, list/get, delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mail_emulator import check, lists
from mail_emulator.campaign_life import apply_reactions
from mail_emulator.check import EMAIL, Body, Field
from mail_emulator.clock import iso
from mail_emulator.operations import SANDBOX, Context, Operation, paging, texts
from mail_emulator.responses import ServiceError, decode_json, encode_json
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Row

CREATE_AND_UPDATE, CREATE_ONLY, UPDATE_ONLY = 1, 2, 3
MAX_PAGE_SIZE = 1000

#: A contact to store: key, email, phone, name, properties (JSON).
Incoming = tuple[str, str | None, str | None, str | None, str]


def key_of(email: str | None, phone: str | None, settings: EmulatorSettings) -> str:
    """Return the key of a contact: its address, or its phone number without one."""
    if not email:
        return f"tel:{phone}"
    return email.lower() if settings.contact_identity == "folding" else email


def find(context: Context, email: str) -> Row | None:
    return context.store.row("SELECT * FROM contacts WHERE key = ?", [key_of(email, None, context.settings)])


def _upsert(context: Context, body: Body) -> None:
    email, phone, name = body["email"] or None, body["phoneNumber"] or None, body["name"] or None
    if email is None and phone is None:
        raise ServiceError(400, "missing parameter: email or phoneNumber")
    if email and (problem := _email_problem(email, context.settings)):
        raise ServiceError(400, f"invalid parameter: email {problem}")
    target_list = lists.find(context, body["listName"]) if body["listName"] else None
    if body["listName"] and target_list is None:
        context.not_found(f"list {body['listName']}")
    if name is None and context.settings.name_reset_on_update:
        name = email or phone
    list_id = target_list["id"] if target_list else None
    save(context, [(key_of(email, phone, context.settings), email, phone, name, "{}")], CREATE_AND_UPDATE, list_id)


def _imports(context: Context, body: Body) -> None:
    settings = context.settings
    columns = _columns(body["contactDataMapping"], settings)
    rows = body["contactData"]
    if settings.import_max_rows is not None and len(rows) > settings.import_max_rows:
        raise ServiceError(400, f"invalid parameter: contactData holds more than {settings.import_max_rows} rows")
    contacts = list(_incoming(rows, columns, settings))
    list_id = None
    if body["listName"]:
        target_list = lists.find(context, body["listName"])
        list_id = target_list["id"] if target_list else lists.create(context, body["listName"], body["listDescription"])
    save(context, contacts, body["updateMode"], list_id, with_properties=len(columns.keys() - _OWN_COLUMNS) > 0)


_OWN_COLUMNS = {"email", "phoneNumber", "name"}


def _columns(mapping: list[Any], settings: EmulatorSettings) -> dict[str, int]:
    """Return column numbers by property name."""
    columns: dict[str, int] = {}
    for item in mapping:
        name, number = item["propertyName"], item["columnNum"]
        if name in columns:
            raise ServiceError(400, f"invalid parameter: contactDataMapping maps {name} twice")
        if settings.contact_properties is not None and name not in (*_OWN_COLUMNS, *settings.contact_properties):
            raise ServiceError(400, f"invalid parameter: contactDataMapping has the unknown propertyName {name}")
        columns[name] = number
    if "email" not in columns and "phoneNumber" not in columns:
        raise ServiceError(400, "missing parameter: contactDataMapping has neither email nor phoneNumber")
    return columns


def _email_problem(email: str, settings: EmulatorSettings) -> str | None:
    if settings.check_contact_emails and not EMAIL.fullmatch(email):
        return "is not a valid email address"
    return "is refused" if email in settings.refused_addresses else None


def _incoming(rows: list[Any], columns: dict[str, int], settings: EmulatorSettings) -> Iterator[Incoming]:
    """Convert rows to contacts; an invalid row is rejected or skipped according to the settings."""
    width = max(columns.values()) + 1
    email_at, phone_at, name_at = (columns.get(name) for name in ("email", "phoneNumber", "name"))
    others = [(name, at) for name, at in columns.items() if name not in _OWN_COLUMNS]
    good_email = EMAIL.fullmatch if settings.check_contact_emails else bool
    refused = settings.refused_addresses
    properties = "{}"
    for number, row in enumerate(rows):
        problem = None
        if type(row) is not list or len(row) < width:
            problem = f"is not an array of {width} values"
        elif not all(value is None or type(value) is str for value in row):
            row, problem = _as_text(row, settings)
        if problem is None:
            email = (row[email_at] or None) if email_at is not None else None
            phone = (row[phone_at] or None) if phone_at is not None else None
            if email is None and phone is None:
                problem = "has neither email nor phoneNumber"
            elif email is not None and (not good_email(email) or email in refused):
                problem = f"has an email that {_email_problem(email, settings)}"
        if problem is None:
            if others:
                properties = encode_json({name: row[at] for name, at in others if row[at] is not None}).decode()
            name = (row[name_at] or None) if name_at is not None else None
            yield key_of(email, phone, settings), email, phone, name, properties
        elif settings.import_bad_row == "reject":
            raise ServiceError(400, f"invalid parameter: contactData[{number}] {problem}")


def _as_text(row: list[Any], settings: EmulatorSettings) -> tuple[list[Any], str | None]:
    """Convert numbers and booleans of a row to strings, or return the problem."""
    if settings.import_text_only or any(isinstance(value, list | dict) for value in row):
        return row, "holds a value that is not a string"
    return [value if value is None or isinstance(value, str) else encode_json(value).decode() for value in row], None


def save(
    context: Context, contacts: Sequence[Incoming], mode: int, list_id: int | None, *, with_properties: bool = False
) -> None:
    """Store contacts by update mode and add them to a list; of equal keys the last (mode 2: the first) wins."""
    store, now = context.store, context.now
    if mode == UPDATE_ONLY and context.settings.import_unknown_update == "reject":
        for key, *_ in contacts:
            if store.row("SELECT id FROM contacts WHERE key = ?", [key]) is None:
                raise ServiceError(400, "invalid parameter: contactData holds an unknown contact")
    newest = store.value("SELECT max(id) FROM contacts") or 0
    values = f"?, ?, ?, ?, {now}, {now}, {context.settings.user_id}"
    source = f"VALUES (?, {values})"
    if mode == UPDATE_ONLY:
        source = f"SELECT * FROM (SELECT ? AS key, {values}) AS given WHERE key IN (SELECT key FROM contacts)"
    properties = "json_patch(properties, excluded.properties)" if with_properties else "properties"
    conflict = (
        "NOTHING"
        if mode == CREATE_ONLY
        else "UPDATE SET email = excluded.email, phone = coalesce(excluded.phone, phone), "
        f"name = coalesce(excluded.name, name), properties = {properties}, modified = excluded.modified"
    )
    store.run_many(
        "INSERT INTO contacts (key, email, phone, name, properties, created, modified, creator) "
        f"{source} ON CONFLICT (key) DO {conflict}",
        contacts,
    )
    quota = context.settings.contact_quota
    grown = quota is not None and (store.value("SELECT max(id) FROM contacts") or 0) > newest
    if grown and store.value("SELECT count(*) FROM contacts") > quota:
        raise ServiceError(403, "contact quota exceeded")
    if list_id is None:
        return
    # New contacts have the highest ids, so a first import needs no lookup by key.
    added = store.members.add_newer(list_id, newest)
    if added < len(contacts) and (mode != CREATE_ONLY or context.settings.import_lists_existing):
        store.members.add_keys(list_id, [contact[0] for contact in contacts])
    if context.settings.list_modify_date:
        store.update("lists", list_id, modified=now)


def to_json(row: Row) -> dict[str, Any]:
    """Return a contact in the form of the specification's section "Contact"; the name defaults to the email."""
    return {
        "id": str(row["id"]),
        "name": row["name"] or row["email"] or row["phone"],
        "email": row["email"],
        "phoneNumber": row["phone"],
        "properties": decode_json(row["properties"]),
        "createDate": iso(row["created"]),
        "modifyTime": iso(row["modified"]),
        "createUserId": row["creator"],
    }


def _get(context: Context, body: Body) -> dict[str, Any]:
    apply_reactions(context)
    row = find(context, body["email"])
    if row is not None:
        return {"contact": to_json(row)}
    if context.settings.contact_not_found == "error":
        context.not_found(f"contact {body['email']}")
    return {} if context.settings.contact_not_found == "absent" else {"contact": None}


def _list_get(context: Context, body: Body) -> dict[str, Any]:
    team = body["teamName"] or context.settings.team_name
    if team != context.settings.team_name and not context.settings.cross_team_permission:
        raise ServiceError(context.settings.forbidden_team_code, f"no permission for teamName {team}")
    apply_reactions(context)
    limit, offset = context.page(body, MAX_PAGE_SIZE)
    contact_list = lists.find(context, body["listName"], team)
    rows: list[Row] = []
    total = 0
    if contact_list is None:
        context.not_found(f"list {body['listName']}")
    else:
        rows, total = context.store.members.page(contact_list["id"], limit, offset)
    return {
        "requestId": f"{context.now:x}",
        "contactList": [to_json(row) for row in rows],
        "totalRecords": total,
    }


def _delete(context: Context, body: Body) -> None:
    row = find(context, body["email"])
    if row is None:
        context.not_found(f"contact {body['email']}")
        return
    context.store.members.remove_contact(row["id"])
    context.store.run("DELETE FROM contacts WHERE id = ?", [row["id"]])


_EMAIL = Field("email", check.text, required=True)

OPERATIONS = (
    Operation("/v5/contacts/upsert", (*texts("name", "email", "phoneNumber", "listName"), SANDBOX), _upsert),
    Operation(
        "/v5/contacts/imports",
        (
            Field("contactData", check.array, required=True),
            Field(
                "contactDataMapping",
                check.list_of(
                    check.record(
                        Field("columnNum", check.integer(0), required=True),
                        Field("propertyName", check.text, required=True),
                    )
                ),
                required=True,
            ),
            Field("updateMode", check.one_of(CREATE_AND_UPDATE, CREATE_ONLY, UPDATE_ONLY), required=True),
            *texts("listName", "listDescription"),
            SANDBOX,
        ),
        _imports,
    ),
    Operation("/v5/contacts/get", (_EMAIL,), _get),
    Operation(
        "/v5/contacts/list/get",
        (Field("listName", check.text, required=True), *paging(200), Field("teamName", check.text)),
        _list_get,
    ),
    Operation("/v5/contacts/delete", (_EMAIL, SANDBOX), _delete),
)
