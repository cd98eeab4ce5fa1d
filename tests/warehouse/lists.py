"""Contact lists for the tests: readings of them, loaded with their history, and what the history must be."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.warehouse.request import Coverage, LoadResult
from airflow_provider_mail.warehouse.tables.resources import CONTACTS, CONTACTS_HISTORY, contact_row, contacts_history
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import NOON


def at(hour: int) -> datetime.datetime:
    return NOON + datetime.timedelta(hours=hour)


def list_of(account: str, name: str = "news") -> dict[str, str]:
    return {"mail_conn_id": account, "team_name": "", "list_name": name}


def contact(of_list: Mapping[str, str], number: int, moment: datetime.datetime, name: Any = "x") -> tuple[Any, ...]:
    """A row of `CONTACTS`."""
    record = Contact.model_construct(id=f"c{number:02}", name=name, properties={})
    return contact_row(record, **of_list, observed_at=moment)


def read(
    warehouse: Warehouse,
    hour: int,
    contacts: Iterable[int],
    list_name: str = "news",
    name: Any = "x",
    table: str = "contacts",
    **options: Any,
) -> LoadResult:
    """Load a complete reading of a list."""
    where = list_of("a", list_name)
    rows = [contact(where, number, at(hour), name) for number in contacts]
    covers = Coverage.one(list_name, where, mail_conn_id="a", observed_at=at(hour))
    options = {"replace_where": where, "covers": covers, **options}
    history = contacts_history(f"{table}_history", where, at(hour), list_name)
    return warehouse.load(CONTACTS, rows, table, history=history, **options)


def stays(readings: Mapping[Any, Collection[int]]) -> list[tuple[str, Any, Any]]:
    """The history of a list, worked out reading by reading: contact, first time, and time from which it is gone."""
    found: dict[tuple[int, Any], Any] = {}
    before: Collection[int] = ()
    for moment, contacts in sorted(readings.items()):
        found |= {key: moment for key, end in found.items() if end is None and key[0] not in contacts}
        found |= {(number, moment): None for number in contacts if number not in before}
        before = contacts
    return sorted((f"c{number:02}", begin, end) for (number, begin), end in found.items())


def recorded(warehouse: Warehouse, list_name: str = "news") -> list[tuple[Any, ...]]:
    """The history in the database."""
    return [row[3:] for row in warehouse.rows(CONTACTS_HISTORY, "contacts_history") if row[2] == list_name]
