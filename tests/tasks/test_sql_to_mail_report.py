"""`SqlToMailReportOperator`: the rows of a query as a table and a file, to each recipient their own."""

from __future__ import annotations

import base64
import csv
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.transfers.sql_to_mail_report import SqlToMailReportOperator
from example_dags.demo.data import make_orders
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.loading import executed
from tests.tasks.sending import SENDS, bodies, mailed, remembers
from tests.tasks.test_example_dags import example


def report(**arguments: Any) -> SqlToMailReportOperator:
    """A task that mails each owner their rows."""
    defaults: dict[str, Any] = {"task_id": TASK, "sql_conn_id": "crm", "sql": "SELECT * FROM sales ORDER BY id"}
    sent = {"sender_mail": "news@example.com", "subject": "Sales"}
    whom = {} if "to" in arguments else {"group_by": "owner"}
    return SqlToMailReportOperator(**defaults | sent | whom | arguments)


def sales(database: SqlDatabase, *rows: tuple[Any, ...]) -> None:
    database.execute("CREATE TABLE sales (id INTEGER, owner TEXT, item TEXT, amount NUMERIC)")
    if rows:
        database.execute("INSERT INTO sales", rows)


def attached(body: Any) -> list[list[str]]:
    data = base64.b64decode(body["attachment"]["fileData"])
    assert data.startswith(b"\xef\xbb\xbf")
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def test_each_owner_gets_their_own_rows(emulator: Emulator, any_crm: SqlDatabase) -> None:
    sales(
        any_crm,
        (1, "Bob@example.com", "<b>Cog</b> & {{name}}", 2.5),
        (2, "ada@example.com", "=HYPERLINK(1)", 10),
        (3, "bob@EXAMPLE.com", "two\nlines", None),
        (4, "ada@example.com", "+49 30 1234", -3),
        (5, "ada@example.com", "-1+cmd", 1),
    )
    result = executed(report(columns={"item": "Item", "amount": "€"}, content="<p>Hi</p>", max_rows=2))
    ada, bob = bodies(emulator)
    assert (ada["to"], bob["to"]) == ({"email": "ada@example.com"}, {"email": "Bob@example.com"})
    assert attached(ada) == [
        ["Item", "€"], ["'=HYPERLINK(1)", "10"], ["+49 30 1234", "-3"], ["'-1+cmd", "1"],
    ]  # fmt: skip
    assert attached(bob)[1:] == [["<b>Cog</b> & {{name}}", "2.5"], ["two\nlines", ""]]
    assert "<p>Hi</p><table" in ada["content"]
    assert "and 1 more, in the attached file" in ada["content"]
    assert "&lt;b&gt;Cog&lt;/b&gt; &amp; &#123;&#123;name}}" in bob["content"]
    assert "two<br>lines" in bob["content"]
    assert "more" not in bob["content"]
    assert bob["content"].count("text-align:right") == 3  # the heading and both cells of the amount
    counts = {"requests": 2, "recipients": 2, "unknown_requests": 0, "unknown_recipients": 0}
    assert result == {"rows": 5, **counts, "sandbox": False, "dry_run": False}


def test_fixed_people_share_one_mail_without_a_file(emulator: Emulator, crm: SqlDatabase) -> None:
    sales(crm, *((number, "x", "Cog", number) for number in range(1305)))
    executed(report(to="ada@example.com, Bob <bob@example.com>", file_name=None, max_rows=2))
    (body,) = bodies(emulator)
    (version,) = body["messageVersions"]
    assert version["to"] == [{"email": "ada@example.com"}, {"email": "bob@example.com", "name": "Bob"}]
    assert "attachment" not in body
    assert body["content"].endswith(">and 1,303 more</td></tr></tbody></table>")


def test_nested_values_are_json(emulator: Emulator, make_database: Callable[[str, str], SqlDatabase]) -> None:
    make_database("postgres", "crm")
    sql = """SELECT 'ada@example.com' AS owner, '{"tags": ["é", null]}'::jsonb AS data, ARRAY['a<b', NULL] AS items"""
    executed(report(sql=sql))
    (body,) = bodies(emulator)
    assert attached(body)[1:] == [['{"tags": ["é", null]}', '["a<b", null]']]
    assert ">[&quot;a&lt;b&quot;, null]</td>" in body["content"]


def test_no_row_no_mail(run: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    sales(crm)
    assert run(report).state == "skipped"
    assert run(lambda: report(on_empty="error")).state == "failed"
    assert run(lambda: report(on_empty="continue")).returned["rows"] == 0
    assert bodies(emulator) == []


def test_a_dry_run_writes_the_first_mail(run: Run, emulator: Emulator, crm: SqlDatabase, tmp_path: Path) -> None:
    sales(crm, (1, "ada@example.com", "Cog", 1), (2, "bob@example.com", "Key", 2))
    path = tmp_path / "new" / "report.html"
    done = run(lambda: report(dry_run=True, path=str(path), subject="A & B"))
    assert done.returned["dry_run"] is True
    assert done.returned["recipients"] == 2
    page = path.read_text()
    assert "<title>A &amp; B</title><table" in page
    assert ">Cog</td>" in page
    assert ">Key</td>" not in page
    assert emulator.journal.count(SENDS) == 0
    assert "ada@" not in done.log


@pytest.mark.parametrize(("arguments", "words"), [
    ({"group_by": None}, "to, group_by: give one of them"),
    ({"to": "ada@example.com", "group_by": "owner"}, "to, group_by: give one of them"),
    ({"group_by": "boss"}, "group_by: the query has no 'boss'; it has id, owner, item, amount"),
    ({"columns": {"price": "Price"}}, "columns: the query has no 'price'"),
    ({"sql": "SELECT 'a@b.de' AS owner, x'00' AS photo"}, "sql: row 1, column 'photo': is of type bytes"),
    ({"sql": "SELECT 'a@b.de' AS owner UNION ALL SELECT NULL"}, "sql: row 2, column 'owner': is empty: an address"),
    ({"sql": "SELECT 1 AS owner"}, "sql: row 1, column 'owner': is of type int: an address is needed"),
    ({"sql": "SELECT 'nobody' AS owner"}, "is not an email address"),
    ({"subject": " "}, "subject: "),
    ({"content": "{% raw %}{{name}}{% endraw %}"}, "content: {{name}} has no value"),
    ({"file_name": "a\nb"}, "file_name: "),
    ({"max_rows": 0}, "max_rows: must be a whole number"),
])  # fmt: skip
def test_invalid_rows_and_arguments_send_nothing(
    failure: Callable[[Callable[[], Any]], str], emulator: Emulator, crm: SqlDatabase, arguments: Any, words: str
) -> None:
    sales(crm, (1, "ada@example.com", "Cog", 1))
    assert words in failure(lambda: report(**arguments))
    assert emulator.journal.count(SENDS) == 0


@remembers
def test_a_cleared_task_mails_the_others(run: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    """Whatever the order in which the query returns the rows."""
    sales(crm, *((number, f"user{number % 9}@example.com", "Cog", number) for number in range(30)))
    emulator.faults.add("code_before", SENDS, skip=4, code=403)
    done = run(report)
    assert done.state == "failed"
    assert sum(mailed(emulator).values()) == 4
    crm.execute("INSERT INTO sales VALUES (99, 'user8@example.com', 'Late', 1)")
    assert done.result.clear_and_run(TASK).state == "success"
    assert mailed(emulator) == Counter(f"user{number}@example.com" for number in range(9))
    identities = {body["uniqueMsgID"] for body in bodies(emulator)}
    assert len(identities) == 9


def test_ten_thousand_rows_in_five_hundred_groups(run: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    sales(crm, *((number, f"user{number % 500}@example.com", "Cog", number) for number in range(10_000)))
    done = run(lambda: report(max_in_flight=8))
    assert done.returned["rows"] == 10_000
    sent = bodies(emulator)
    assert len(sent) == len({body["uniqueMsgID"] for body in sent}) == 500
    for body in sent:
        owner = int(body["to"]["email"].partition("@")[0].removeprefix("user"))
        assert [row[2] for row in attached(body)[1:]] == [str(number) for number in range(owner, 10_000, 500)]


def test_the_example(run: Run, emulator: Emulator, make_database: Any, tmp_path: Path) -> None:
    emulator.add_sender("shop@example.com")
    make_database("sqlite", "shop")
    make_orders(tmp_path / "shop.db")
    done = run(example("mail_report"))
    assert done.result.state == "success", done.log
    assert mailed(emulator) == {"manager0@example.com": 1, "manager1@example.com": 1}
    assert "and 1,204 more, in the attached file" in emulator.messages()[0]["content"]
