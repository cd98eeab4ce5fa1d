"""`MailContactsToSqlOperator(history=True)`: from when to when each contact was in the list."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from tests.tasks.conftest import TASK, SqlDatabase
from tests.tasks.test_contacts_to_sql import delete


def load(**arguments: Any) -> dict[str, Any]:
    operator = MailContactsToSqlOperator(
        task_id=TASK, sql_conn_id="warehouse", list_name="newsletter", **{"history": True, **arguments}
    )
    returned: dict[str, Any] = operator.execute({})
    return returned


def stays(warehouse: SqlDatabase, table: str = "mail_contacts_history") -> list[tuple[str, bool]]:
    """Each stay of a contact in the list, and whether it has ended."""
    rows = warehouse.query(f"SELECT id, valid_to IS NOT NULL FROM {table} ORDER BY CAST(id AS int), valid_from")
    return [(id, bool(ended)) for id, ended in rows]


def test_who_leaves_and_returns_has_two_stays(emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.clock.advance(days=-30)  # ahead of the other clocks, it would not be believed
    emulator.add_list("newsletter", count=20)
    people = emulator.contacts("newsletter")
    first = load()
    assert first["history_table"] == "mail_contacts_history"
    assert (first["joined"], first["left"]) == (20, 0)
    emulator.clock.advance(days=1)
    delete(emulator, people[0])
    emulator.add_list("more", ["new@example.com"])
    second = load()
    assert (second["joined"], second["left"]) == (0, 1)
    assert stays(any_warehouse)[:2] == [(people[0]["id"], True), (people[1]["id"], False)]
    readings = any_warehouse.query("SELECT contacts FROM mail_contacts_history_readings ORDER BY read_at")
    assert readings == [(20,), (19,)]
    (ended,) = any_warehouse.query("SELECT valid_from, valid_to FROM mail_contacts_history WHERE valid_to IS NOT NULL")
    start, end = (at if isinstance(at, datetime.datetime) else datetime.datetime.fromisoformat(at) for at in ended)
    assert datetime.timedelta(hours=23) < end - start < datetime.timedelta(hours=25)
    columns = "mail_conn_id, team, list_name, id"
    listed = any_warehouse.query(f"SELECT {columns} FROM mail_contacts ORDER BY id")
    assert listed == any_warehouse.query(
        f"SELECT {columns} FROM mail_contacts_history WHERE valid_to IS NULL ORDER BY id"
    )


def test_no_history_is_kept_by_default(emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_list("newsletter", count=3)
    returned = load(history=False)
    assert warehouse.tables() == {"mail_contacts", "mail_loads"}
    assert returned.keys().isdisjoint({"history_table", "joined", "left"})


def test_another_table_may_be_named(emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_list("newsletter", count=3)
    assert load(history=False, history_table="stays")["history_table"] == "stays"
    assert {"stays", "stays_readings"} <= warehouse.tables()
    for name, words in (("mail_contacts", "it is that of `table`"), ("x" * 60, "stays|cannot be its name")):
        with pytest.raises(AirflowFailException, match=f"history_table: .*{words}"):
            load(history_table=name)


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_a_list_that_is_suddenly_empty_needs_a_permission(
    emulator: Emulator, warehouse: SqlDatabase, mode: str
) -> None:
    emulator.clock.advance(days=-30)
    emulator.add_list("newsletter", count=12)
    people = emulator.contacts("newsletter")
    load(mode=mode)
    emulator.clock.advance(days=1)
    delete(emulator, *people)
    with pytest.raises(UnconfirmedError, match="allow_empty=True allows it"):
        load(mode=mode)
    assert stays(warehouse) == [(contact["id"], False) for contact in people]
    assert load(mode=mode, allow_empty=True)["left"] == 12
    assert stays(warehouse) == [(contact["id"], True) for contact in people]


def test_a_list_that_may_not_be_whole_has_no_history() -> None:
    with pytest.raises(ValueError, match="history: needs a list that is read whole"):
        load(on_change="accept")
