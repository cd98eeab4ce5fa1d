"""The inbox: pushes are taken once, oldest first, and kept as long as the retention says."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any
from unittest import mock

import pytest

from airflow_provider_mail.warehouse.time_limit import read_within
from airflow_provider_mail.webhook.health import ReceiverStatus
from airflow_provider_mail.webhook.inbox import Inbox, InboxState, Push, StoredPush
from airflow_provider_mail.webhook.tokens import Tokens
from tests.warehouse.conftest import Warehouse
from tests.webhook.pushes import NOON, receive
from tests.webhook.receiving import execute, stored

SECOND = datetime.timedelta(seconds=1)


def push(body: bytes, conn_id: str = "mail_default", *, task_status: bool = False) -> Push:
    return Push(body=body, received_at=NOON, mail_conn_id=conn_id, task_status=task_status)


def insert(inbox: Inbox, *pushes: Push) -> None:
    receive(inbox, pushes)


def take(inbox: Inbox, max_pushes: int = 100) -> list[StoredPush]:
    with inbox.connection() as connection:
        taken = inbox.take(connection, max_pushes=max_pushes, max_bytes=1000)
        connection.rollback()  # Postgres notices later that a connection was closed, and keeps the locks until then
        return taken


def drain(inbox: Inbox, at: datetime.datetime = NOON, max_pushes: int = 100) -> Sequence[bytes]:
    with inbox.connection() as connection:
        taken = inbox.take(connection, max_pushes=max_pushes, max_bytes=1000)
        inbox.finish(connection, [one.id for one in taken], at)
        return [one.body for one in taken]


def test_pushes_come_out_as_they_went_in_oldest_first(inbox: Inbox) -> None:
    late = NOON + datetime.timedelta(microseconds=1)
    given = [push(bytes(range(256)), task_status=True), Push(b"", late, "other", False)]
    insert(inbox, *given)
    assert inbox.state().oldest == NOON
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
    assert inbox.task_status_pushes() == {}
    insert(inbox, push(b"a", "one", task_status=True), push(b"b", "one"), push(b"c", "two", task_status=True))
    a, _, c = (one.id for one in take(inbox))
    assert inbox.waiting()
    drain(inbox)
    assert not inbox.waiting()
    for after, latest in ((9_999, {a: "one", c: "two"}), (10_001, {c: "two"})):
        if inbox.hook.conn_type == "sqlite":
            execute(inbox, f"UPDATE sqlite_sequence SET seq = {after}")
        else:
            execute(inbox, f"ALTER TABLE mail_inbox ALTER id RESTART WITH {after + 1}")
        insert(inbox, push(b"d"))
        assert inbox.task_status_pushes() == latest, "history is not read again"


def test_what_waits_is_counted_whatever_happens(inbox: Inbox) -> None:
    """By what stores, drains and changes pushes, in their transactions; the rows are not counted."""

    def counted() -> tuple[int, int]:
        state = inbox.state()
        assert inbox.waiting_bytes == state.waiting_bytes
        return state.waiting_pushes, state.waiting_bytes

    assert counted() == (0, 0)
    insert(inbox, push(b"a" * 5), push(b"b" * 7), push(b"c"))
    assert (counted(), inbox.waiting_bytes) == ((3, 13), 13)
    drain(inbox, max_pushes=1)
    assert counted() == (2, 8)
    with inbox.connection() as connection:
        inbox.finish(connection, [one.id for one in stored(inbox)[:2]], NOON)  # one of them for the second time
        assert counted() == (1, 1)
        inbox.change_body(connection, stored(inbox)[2].id, lambda body: b"1234")
        inbox.change_body(connection, stored(inbox)[0].id, lambda body: b"drained")
        assert counted() == (1, 4)
        # By hand: the counter is exact again after the next drain.
        execute(inbox, "UPDATE mail_inbox SET drained_at = NULL")
        assert len(drain(inbox, max_pushes=2)) == 2
        assert counted() == (0, 0)
        inbox.check_counter(connection)
        assert counted() == (1, 4)
        execute(inbox, "DELETE FROM mail_inbox")
        inbox.check_counter(connection)
        assert counted() == (0, 0)
    insert(inbox, push(b"abc"))
    execute(inbox, "DROP TABLE mail_inbox_counts")
    inbox.create()
    inbox.create()
    assert counted() == (1, 3)


def test_what_is_not_committed_does_not_count(inbox: Inbox) -> None:
    class Failing:
        def __init__(self, connection: Any) -> None:
            self.cursor = connection.cursor

        def commit(self) -> None:
            raise OSError("away")

    insert(inbox, push(b"a"))
    with inbox.connection() as connection, pytest.raises(OSError, match="away"):
        inbox.insert(Failing(connection), [push(b"more")])
    assert inbox.waiting_bytes == 1


def test_a_counter_that_cannot_be_made_exact_stops_no_drain(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    insert(inbox, push(b"a"))
    with inbox.connection() as connection:
        with mock.patch.object(Inbox, "_count", side_effect=OSError("with a body: ada@planted.example")):
            inbox.check_counter(connection)
        insert(inbox, push(b"b"))
        inbox.insert(connection, [push(b"c")])
    assert inbox.state().waiting_bytes == 3
    assert "could not be counted again: OSError" in caplog.text
    assert "planted" not in caplog.text


def test_nothing_that_is_asked_again_and_again_reads_history(make_warehouse: Callable[..., Warehouse]) -> None:
    """Postgres looks at the plans: each of them reads an index, whose part is small, or the counter."""
    inbox = Inbox(make_warehouse("psycopg3").hook)
    inbox.create()
    with inbox.connection() as connection, closing(connection.cursor()) as cursor:
        cursor.execute(
            "INSERT INTO mail_inbox (received_at, mail_conn_id, task_status, body, body_bytes, drained_at) "
            "SELECT now(), 'mail_default', n % 10 = 0, '', 2, now() FROM generate_series(1, 20000) AS n"
        )
        connection.commit()
        cursor.execute("ANALYZE mail_inbox; SELECT pg_stat_reset()")
        connection.commit()
    queries: list[Callable[[], object]] = [
        inbox.state, inbox.waiting, inbox.probe, inbox.task_status_pushes, lambda: take(inbox),
        lambda: insert(inbox, push(b"a")), lambda: inbox.delete_drained(NOON), lambda: drain(inbox),
    ]  # fmt: skip
    for query in queries:
        with inbox.connected() as cursor:
            read = (
                "SELECT pg_stat_force_next_flush(), seq_tup_read FROM pg_stat_user_tables WHERE relname = 'mail_inbox'"
            )
            cursor.execute(read)
            _, before = cursor.fetchone()
            query()
            cursor.execute(read)
            assert cursor.fetchone()[1] - before < 20_000, query


@pytest.mark.parametrize("table", ["main.later", "Inbox", '"In Box"', "x" * 56])
def test_without_a_table_nothing_waits(make_warehouse: Callable[..., Warehouse], table: str) -> None:
    inbox = Inbox(make_warehouse("sqlite").hook, table)
    assert not inbox.waiting()
    assert inbox.task_status_pushes() == {}
    inbox.create()
    inbox.create()
    insert(inbox, push(b"a", task_status=True))
    assert (inbox.waiting(), inbox.task_status_pushes()) == (True, {1: "mail_default"})


def test_retention_deletes_what_was_drained_earlier(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    insert(inbox, push(b"old"), push(b"waits"))
    drain(inbox, NOON, max_pushes=1)
    assert inbox.delete_drained(NOON) == 0
    assert inbox.delete_drained(NOON + SECOND / 1000) == 1
    insert(inbox, push(b"new"))
    assert drain(inbox, NOON + SECOND) == [b"waits", b"new"]
    assert inbox.delete_drained(NOON + SECOND) == 0
    insert(inbox, *(push(b"more") for _ in range(5)))
    drain(inbox, NOON + SECOND)
    monkeypatch.setattr("airflow_provider_mail.webhook.inbox._DELETED_AT_ONCE", 2)
    assert inbox.delete_drained(NOON + 2 * SECOND) == 7


def test_a_stored_push_survives_a_crash_of_the_host(inbox: Inbox) -> None:
    with inbox.connection() as connection, closing(connection.cursor()) as cursor:
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


@pytest.mark.parametrize(
    ("size", "tokens", "seconds", "words"),
    [
        (9, 1, 86_400, []),
        (10, 1, 0, ["the inbox is full"]),
        (0, 0, 86_401, ["there is no valid token", "a push waits for more than a day"]),
    ],
)
def test_what_needs_attention(size: int, tokens: int, seconds: int, words: list[str]) -> None:
    inbox = InboxState(1, size, NOON, seconds)
    status = ReceiverStatus(inbox, 10, {"mail_default": tokens} if tokens else {})
    assert [problem.partition(":")[0] for problem, _ in status.problems] == words


def assert_locked(inbox: Inbox, lock: str) -> None:
    """Another connection holds the lock for which a statement of Postgres asks; in SQLite, that of the database."""
    is_sqlite = inbox.hook.conn_type == "sqlite"
    with inbox.connection() as other, closing(other.cursor()) as cursor:
        if is_sqlite:
            cursor.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(Exception, match="lock"):
            cursor.execute("BEGIN IMMEDIATE" if is_sqlite else lock)


def test_a_body_is_changed_under_a_lock(inbox: Inbox) -> None:
    insert(inbox, push(b"before"))
    (stored,) = take(inbox)

    def change(body: bytes) -> bytes:
        assert_locked(inbox, "SELECT 1 FROM mail_inbox FOR UPDATE NOWAIT")
        return body + b", after"

    with inbox.connection() as connection:
        assert inbox.change_body(connection, stored.id, change)
        assert not inbox.change_body(connection, stored.id, lambda body: None)
        assert not inbox.change_body(connection, stored.id + 1, change)
    (changed,) = take(inbox)
    assert (changed.body, changed.received_at) == (b"before, after", stored.received_at)


def test_pushes_are_counted_again_under_a_lock(inbox: Inbox) -> None:
    counted: list[str] = []

    def look(query: str, *_: Any) -> Any:
        if "count(*)" in query:
            counted.append(query)
            assert_locked(inbox, "SELECT 1 FROM mail_inbox_counts FOR UPDATE NOWAIT")
        return mock.DEFAULT

    with inbox.connection() as connection:
        cursor = mock.Mock(wraps=connection.cursor())
        cursor.execute.side_effect = look
        inbox.check_counter(mock.Mock(wraps=connection, cursor=lambda: cursor))
    assert counted


def test_tables_are_created_under_a_lock(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two who create a table at once fail even with IF NOT EXISTS."""
    definitions = Inbox._definitions

    def watched(inbox: Inbox) -> Iterator[str]:
        lock = f"SELECT pg_advisory_xact_lock(hashtextextended('mail {inbox.table}', 0))"
        assert_locked(inbox, f"SET LOCAL lock_timeout = 1; {lock}")
        return definitions(inbox)

    monkeypatch.setattr(Inbox, "_definitions", watched)
    execute(inbox, "DROP TABLE mail_inbox_counts")
    inbox.create()
    assert inbox.state().waiting_pushes == 0


def test_a_query_has_the_limit_of_its_reading(inbox: Inbox) -> None:
    def limit() -> Any:
        with inbox.connected() as cursor:
            cursor.execute("PRAGMA busy_timeout" if inbox.hook.conn_type == "sqlite" else "SHOW statement_timeout")
            return cursor.fetchone()[0]

    assert read_within(limit, 7) in (7000, "7s")
    assert limit() not in (7000, "7s")


def test_another_may_create_the_tables_meanwhile(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look for a table and the lock."""
    exists, others = type(inbox.sql).exists, list[Callable[[], None]]()

    def exists_before_others(*arguments: Any) -> bool:
        found = exists(*arguments)
        if others:
            others.pop()()
        return found

    monkeypatch.setattr(type(inbox.sql), "exists", exists_before_others)
    for table in ("mail_inbox", "mail_inbox_counts", "mail_inbox_tokens"):
        execute(inbox, f"DROP TABLE {table}")
        others.append(inbox.create)
        inbox.create()
        assert not others
    insert(inbox, push(b"a"))
    assert (Tokens(inbox).valid(), drain(inbox)) == ({}, [b"a"])
