"""`SqlToMailBatchOperator`: a personalized message for each row of a query, at most once."""

from __future__ import annotations

import datetime
import gzip
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api.transactional import cut
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator
from mail_emulator import Emulator
from tests.support.task_parts import MEMORY_BYTES, ChunkSpool, RowMessages
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.loading import executed
from tests.tasks.sending import HELLO, SENDS, address, batch_result, bodies, everybody, mailed, remembers
from tests.tasks.test_example_dags import example


def people(database: SqlDatabase, count: int = 3) -> None:
    database.execute("CREATE TABLE people (id INTEGER, email TEXT, name TEXT)")
    database.execute("INSERT INTO people", [(number, address(number), f"Name {number}") for number in range(count)])


def mailing(**arguments: Any) -> SqlToMailBatchOperator:
    """A task that sends to everybody; in requests of ten by default."""
    defaults = {"task_id": TASK, "sql_conn_id": "crm", "versions_per_request": 10}
    query = {"sql": "SELECT email, name FROM people ORDER BY id"}
    return SqlToMailBatchOperator(**defaults | query | HELLO | arguments)


def test_every_row_becomes_a_message(run: Run, emulator: Emulator, any_crm: SqlDatabase) -> None:
    emulator.add_template("reminder", subject="Reminder", content="Dear {{first}}, {{item}}: {{price}}, {{due}}")
    columns = "id INTEGER, mail TEXT, who TEXT, boss TEXT, file TEXT, item TEXT, price NUMERIC, due DATE"
    any_crm.execute(f"CREATE TABLE carts ({columns})")
    carts = [
        (1, "ada@example.com", "Ada Lovelace", None, "file@example.com", "Engine", 12.5, "2026-01-31"),
        (2, "bob@example.com", None, "eve@example.com, zoe@example.com", "", None, 3, None),
    ]
    any_crm.execute("INSERT INTO carts", carts)
    arguments = {
        "sql": "SELECT * FROM carts ORDER BY id",
        **{"to_column": "mail", "name_column": "who", "cc_column": "boss", "bcc_column": "file"},
        "columns": {"who": "first", "item": "item", "price": "price", "due": "due"},
        "template_name": "reminder",
        "mail_params": {"first": "customer", "item": "your cart", "due": "soon"},
    }

    done = run(lambda: mailing(**arguments, content=None, subject=None))

    (body,) = bodies(emulator)
    assert body["messageVersions"] == [
        {"to": [{"email": "ada@example.com", "name": "Ada Lovelace"}], "cc": [],
         "bcc": [{"email": "file@example.com"}],
         "params": {"first": "Ada Lovelace", "item": "Engine", "price": "12.5", "due": "2026-01-31"}},
        {"to": [{"email": "bob@example.com"}], "cc": [{"email": "eve@example.com"}, {"email": "zoe@example.com"}],
         "bcc": [], "params": {"price": "3"}},
    ]  # fmt: skip
    assert done.returned == batch_result(1, 5)
    assert "ada@" not in done.log


def test_without_a_mapping_every_other_column_is_a_tag(emulator: Emulator, crm: SqlDatabase) -> None:
    sql = "SELECT 'ada@example.com' AS email, 'Ada' AS name, NULL AS phoneNumber, 7 AS n, 'eve@x.com' AS boss"
    sql += " UNION ALL SELECT 'b@c.de', '', 1, 2, NULL"

    executed(mailing(sql=sql, name_column="name", cc_column="boss", on_unfilled_tag="warn"))
    first, second = bodies(emulator)[0]["messageVersions"]
    assert first["to"] == [{"email": "ada@example.com", "name": "Ada"}]
    assert first["params"] == {"name": "Ada", "n": "7"}
    assert second["to"] == [{"email": "b@c.de"}]


@pytest.mark.parametrize(("arguments", "words"), [
    ({"to_column": "mail"}, "to_column: the query has no 'mail'; it has email, name"),
    ({"columns": {"nick": "name"}}, "columns: the query has no 'nick'; it has email, name"),
    ({"columns": {"name": "a", "email": "a"}}, "columns: duplicate tags: a"),
    ({"columns": "{{ 'name' }}"}, "columns: a dictionary is needed, such as columns="),
    ({"sql": "SELECT email, name AS email FROM people"}, "to_column: the query has more than one 'email'"),
    ({"sql": "SELECT email, name, 1 AS name FROM people"}, "columns: the query has more than one 'name'"),
    ({"sql": "SELECT NULL AS email"}, "sql: row 1, column 'email': is empty"),
    ({"sql": "SELECT 1 AS email"}, "sql: row 1, column 'email': Input should be a valid string"),
    ({"sql": "SELECT email, CASE id WHEN 17 THEN 'a@b.c, nobody' END AS boss FROM people", "cc_column": "boss"},
     "sql: row 18, column 'boss': is not an email address"),
    ({"sql": "SELECT email, 5 AS boss FROM people", "cc_column": "boss"}, "row 1, column 'boss': is of type int"),
    ({"sql": "SELECT email, x'00' AS photo FROM people"}, "sql: row 1, params.photo: is of type bytes"),
    ({"sql": "SELECT email, 9e999 AS rate FROM people"}, "sql: row 1, params.rate: is NaN or infinite"),
    ({"sql": "SELECT email, name AS full_name FROM people"},
     "content: {{name}} has no value in 25 of 25 rows, the first is row 1. Nothing was sent. Values are given "
     "for full_name: "),
    ({"sql": "SELECT email, CASE id WHEN 3 THEN NULL WHEN 4 THEN ' ' ELSE name END AS name FROM people"},
     "content: {{name}} has no value in 2 of 25 rows, the first is row 4"),
    ({"subject": None}, "subject: row 1 has none"),
    ({"sql": "SELECT email FROM people WHERE 1 = 0"}, "sql: there are no rows to send. To accept that"),
])  # fmt: skip
def test_invalid_rows_and_arguments_send_nothing(
    failure: Callable[[Callable[[], Any]], str], emulator: Emulator, crm: SqlDatabase, arguments: Any, words: str
) -> None:
    people(crm, 25)

    assert words in failure(lambda: mailing(**arguments))
    assert emulator.journal.count(SENDS) == 0


@remembers
def test_a_cleared_task_reads_the_rows_again(run: Run, emulator: Emulator, crm: SqlDatabase, errors: Any) -> None:
    """It mails the others, unless the rows that were mailed have changed."""
    people(crm, 45)
    emulator.faults.add("code_before", SENDS, skip=2, code=403)
    done = run(lambda: mailing(on_empty="skip"))
    assert done.state == "failed", done.log
    assert mailed(emulator) == everybody(range(20))

    crm.execute("CREATE TABLE kept AS SELECT * FROM people")
    for change in (
        "DELETE FROM people WHERE id = 7",
        "DELETE FROM people",
        "INSERT INTO people VALUES (-1, 'new@example.com', 'New')",
        "UPDATE people SET name = 'Else' WHERE id = 3",
        "UPDATE people SET id = -id",
    ):
        crm.execute(change)
        errors.clear()
        assert done.result.clear_and_run(TASK).state == "failed", change
        words = "sql: these differ from what an earlier try began to send (20 recipients in 2 requests"
        assert words in str(errors[0]), change
        crm.execute("DELETE FROM people")
        crm.execute("INSERT INTO people SELECT * FROM kept")
    assert emulator.journal.count(SENDS) == 3

    crm.execute("DELETE FROM people WHERE id = 30")
    crm.execute(f"INSERT INTO people VALUES (50, '{address(50)}', 'N50')")
    for _ in range(2):
        assert done.result.clear_and_run(TASK).state == "success"

    assert mailed(emulator) == everybody(range(30), range(31, 45), range(50, 51))
    assert emulator.journal.count(SENDS) == 3 + 3


def test_memory_does_not_grow_with_the_rows() -> None:
    """Rows become requests, wait and come back; what is held at once does not grow with their number."""

    def peak(rows: int) -> int:
        batches = ([(address(n), f"Name {n}", "x" * 300) for n in range(at, at + 1000)] for at in range(0, rows, 1000))
        messages = RowMessages(("email", "name", "x"), to="email", name="name", cc=None, bcc=None, tags=None)
        common = {"sender_mail": "news@example.com", "subject": "Hello", "content": "x"}
        tracemalloc.start()
        with closing(ChunkSpool()) as spool:
            for chunk in cut(common, messages.build(batches), key="key"):
                spool.add(chunk)
            assert sum(chunk.recipients for chunk in spool) == rows
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    # The first thousands fill what stays in memory before it goes to disk.
    small = peak(3_000)
    assert peak(9_000) < small + MEMORY_BYTES / 2


def test_the_example(
    run: Run, emulator: Emulator, make_database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_LAKE", f"file://{tmp_path}")
    emulator.add_sender("shop@example.com")
    emulator.add_template("cart_reminder", subject="Your cart", content="Dear {{name}}, {{item}}")
    shop = make_database("sqlite", "shop")
    shop.execute("CREATE TABLE carts (id INTEGER, email TEXT, name TEXT, item TEXT, left_on TEXT)")
    today = str(datetime.datetime.now(datetime.UTC).date())
    carts = [(1, address(1), None, "Key", today), (2, address(2), "Eve", "Cog", "2026-03-09")]
    shop.execute("INSERT INTO carts", carts)
    rows = "".join(f"{address(number)},N{number}\n" for number in range(150))
    (tmp_path / "customers.csv.gz").write_bytes(gzip.compress(f"mail,full_name\n{rows}nobody,\n".encode()))

    done = run(example("mail_batch_from_sql"))

    assert done.result.state == "success", done.log
    assert emulator.contact_count("customers") == 150
    assert "nobody" in (tmp_path / "rejected.jsonl").read_text()
    assert mailed(emulator) == {address(1): 1}
    assert [message["content"] for message in emulator.messages()] == ["Dear customer, Key"]
