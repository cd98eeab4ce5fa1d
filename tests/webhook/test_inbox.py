"""The inbox: pushes are taken once, oldest first, and kept as long as the retention says."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_mail.webhook.inbox import Inbox, Push, StoredPush
from airflow_provider_mail.webhook.tokens import Tokens
from tests.warehouse.conftest import Warehouse
from tests.webhook.pushes import NOON, receive
from tests.webhook.receiving import stored

SECOND = datetime.timedelta(seconds=1)


def push(body: bytes, conn_id: str = "mail_default", *, task_status: bool = False) -> Push:
    return Push(body=body, received_at=NOON, mail_conn_id=conn_id, task_status=task_status)


def insert(inbox: Inbox, *pushes: Push) -> None:
    receive(inbox, pushes)


def take(inbox: Inbox, max_pushes: int = 100) -> list[StoredPush]:
    with closing(inbox.open()) as connection:
        taken = inbox.take(connection, max_pushes=max_pushes, max_bytes=1000)
        connection.rollback()  # Postgres notices later that a connection was closed, and keeps the locks until then
        return taken


def drain(inbox: Inbox, at: datetime.datetime = NOON, max_pushes: int = 100) -> Sequence[bytes]:
    with closing(inbox.open()) as connection:
        taken = inbox.take(connection, max_pushes=max_pushes, max_bytes=1000)
        inbox.finish(connection, [one.id for one in taken], at)
        return [one.body for one in taken]


def test_pushes_come_out_as_they_went_in_oldest_first(inbox: Inbox) -> None:
    late = NOON + datetime.timedelta(microseconds=1)
    given = [push(bytes(range(256)), task_status=True), Push(b"", late, "other", False)]
    insert(inbox, *given)
    taken = take(inbox)
    assert [Push(one.body, one.received_at, one.mail_conn_id, one.task_status) for one in taken] == given
    assert taken == sorted(taken, key=lambda one: one.id) == stored(inbox)


def test_a_push_is_taken_until_it_is_finished(inbox: Inbox) -> None:
    insert(inbox, push(b"a"), push(b"b"), push(b"c"))
    assert [one.body for one in take(inbox, max_pushes=2)] == [b"a", b"b"]
    assert [drain(inbox, max_pushes=2), drain(inbox), drain(inbox)] == [[b"a", b"b"], [b"c"], []]
    # Bodies bound what is taken at once, but one always fits.
    insert(inbox, *(push(bytes(600)) for _ in range(3)), push(bytes(400)), push(bytes(5000)))
    assert [[*map(len, drain(inbox))] for _ in range(4)] == [[600], [600], [600, 400], [5000]]


def test_the_inbox_knows_what_waits_and_what_is_newest(inbox: Inbox) -> None:
    assert not inbox.waiting()
    assert inbox.newest() == {}
    insert(inbox, push(b"a", "one", task_status=True), push(b"b", "one"), push(b"c", "two"))
    ids = {one.body: one.id for one in take(inbox)}
    assert inbox.waiting()
    assert inbox.newest() == {"one": ids[b"b"], "two": ids[b"c"]}
    assert inbox.newest(task_status_only=True) == {"one": ids[b"a"]}
    drain(inbox)
    assert not inbox.waiting()
    assert inbox.newest(task_status_only=True) == {"one": ids[b"a"]}


@pytest.mark.parametrize("table", ["main.later", "Inbox", '"In Box"', "x" * 60])
def test_without_a_table_nothing_waits(make_warehouse: Callable[..., Warehouse], table: str) -> None:
    inbox = Inbox(make_warehouse("sqlite").hook, table)
    assert not inbox.waiting()
    assert inbox.newest() == {}
    inbox.create()
    inbox.create()
    insert(inbox, push(b"a"))
    assert (inbox.waiting(), inbox.newest()) == (True, {"mail_default": 1})


def test_retention_deletes_what_was_drained_earlier(inbox: Inbox) -> None:
    insert(inbox, push(b"old"), push(b"waits"))
    drain(inbox, NOON, max_pushes=1)
    assert inbox.delete_drained(NOON) == 0
    assert inbox.delete_drained(NOON + SECOND / 1000) == 1
    insert(inbox, push(b"new"))
    assert drain(inbox, NOON + SECOND) == [b"waits", b"new"]
    assert inbox.delete_drained(NOON + SECOND) == 0


def test_a_stored_push_survives_a_crash_of_the_host(inbox: Inbox) -> None:
    with closing(inbox.open()) as connection, closing(connection.cursor()) as cursor:
        if inbox.hook.conn_type == "sqlite":
            # The settings of SQLite are those of a connection. 2 is FULL: a commit waits for the disk.
            settings = [cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
            assert settings == ["wal", 2]
            return
        cursor.execute(
            "CREATE TABLE seen AS SELECT current_setting('synchronous_commit') AS setting WHERE false; "
            "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$; "
            f"CREATE TRIGGER see BEFORE INSERT ON {inbox.table} FOR EACH ROW EXECUTE FUNCTION see(); "
            "SET synchronous_commit = off"
        )
        connection.commit()
        inbox.insert(connection, [push(b"a")])
        cursor.execute("SELECT setting FROM seen")
        assert cursor.fetchall() == [("on",)]


def test_a_body_is_changed_under_a_lock(inbox: Inbox) -> None:
    insert(inbox, push(b"before"))
    (stored,) = take(inbox)
    lock = "BEGIN IMMEDIATE" if inbox.hook.conn_type == "sqlite" else f"SELECT 1 FROM {inbox.table} FOR UPDATE NOWAIT"
    with closing(inbox.open()) as one, closing(inbox.open()) as other:
        if inbox.hook.conn_type == "sqlite":
            other.execute("PRAGMA busy_timeout = 0")

        def change(body: bytes) -> bytes:
            with closing(other.cursor()) as cursor, pytest.raises(Exception, match="lock"):
                cursor.execute(lock)
            other.rollback()
            return body + b", after"

        assert inbox.change_body(one, stored.id, change)
        assert not inbox.change_body(one, stored.id, lambda body: None)
        assert not inbox.change_body(one, stored.id + 1, change)
    (changed,) = take(inbox)
    assert (changed.body, changed.received_at) == (b"before, after", stored.received_at)


def test_tables_of_earlier_versions_get_later_columns(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain and a rotation add them; another one may, when this one has seen that they are missing."""
    insert(inbox, push(b"a"))
    tokens = Tokens(inbox)
    tokens.create()
    tokens.add("old", "mail_default")
    with inbox.connected() as cursor:
        cursor.execute("DROP INDEX mail_inbox_waiting")
        cursor.execute("ALTER TABLE mail_inbox DROP COLUMN drained_at")
        cursor.execute("ALTER TABLE mail_inbox_tokens DROP COLUMN deployment")
        cursor.connection.commit()
    columns, others = type(inbox.sql).columns, list[Callable[[], None]]()

    def columns_before_others(*arguments: Any) -> set[str]:
        found = columns(*arguments)
        if others:
            others.pop()()
        return found

    monkeypatch.setattr(type(inbox.sql), "columns", columns_before_others)
    for create in (inbox.create, tokens.create):
        others.append(create)
        create()
        assert not others
    tokens.add("new", "mail_default")
    assert len(tokens.valid()) == 2
    assert (inbox.state().waiting_pushes, drain(inbox)) == (1, [b"a"])
