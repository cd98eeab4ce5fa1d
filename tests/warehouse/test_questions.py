"""Every question of the page, asked as it stands there, of every database: the rows are those of `answers.py`.

The sessions speak another timezone than UTC, and MySQL's is as strict as MySQL is by default.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from docs import er
from tests.support.env import ROOT
from tests.warehouse.answers import QUESTIONS
from tests.warehouse.conftest import Warehouse
from tests.warehouse.questions_data import all_responses, load_all

FOLDER = ROOT / "docs" / "sql"
PAGE = ROOT / "docs" / "questions.md"
DATABASES = {"sqlite": "sqlite", "psycopg3": "postgres", "duckdb": "duckdb", "mysql": "mysql"}
"""By the kind of warehouse, what files call the database."""
SESSION = {
    "psycopg3": ["SET TIME ZONE 'Pacific/Auckland'"],
    "duckdb": ["SET TimeZone = 'Pacific/Auckland'"],
    "mysql": [
        "SET time_zone = '+13:00'",
        "SET sql_mode = 'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
        "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
    ],
}


def agree(actual: Any, expected: Any) -> bool:
    """Whether a database's value is the expected one; SQLite writes days and times as text."""
    if isinstance(expected, float):
        hundredths = float(actual) * 100
        return abs(hundredths - round(hundredths)) < 1e-6 and abs(float(actual) - expected) < 0.00501
    if isinstance(expected, datetime.datetime):
        moment = datetime.datetime.fromisoformat(actual) if isinstance(actual, str) else actual
        return bool((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) == expected)
    if isinstance(expected, datetime.date) and isinstance(actual, str):
        return actual == expected.isoformat()
    is_number = isinstance(expected, int) and not isinstance(actual, str | bool)
    return (is_number or type(actual) is type(expected)) and bool(actual == expected)


@pytest.mark.parametrize("kind", DATABASES)
def test_every_database_gives_the_same_rows(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse, data = make_warehouse(kind), all_responses()
    load_all(warehouse, data)
    for question, (names, answer) in QUESTIONS.items():
        own = FOLDER / f"{question}.{DATABASES[kind]}.sql"
        file = own if own.exists() else FOLDER / f"{question}.sql"
        with closing(warehouse.hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
            for statement in SESSION.get(kind, []):
                cursor.execute(statement)
            cursor.execute(file.read_text())
            assert [column[0] for column in cursor.description] == names, file.name
            rows, expected = cursor.fetchall(), list(answer(data))
        wrong = [(row, wanted) for row, wanted in zip(rows, expected, strict=False) if not all(map(agree, row, wanted))]
        assert not wrong, f"{file.name}: {wrong[:3]}"
        assert len(rows) == len(expected) > 1, file.name
        assert "@" not in str(rows), f"{file.name}: addresses"


def test_every_file_is_a_question() -> None:
    """What `WITH` begins with is where a database may have its own way; the rest is the question."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in FOLDER.iterdir():
        question, _, database = path.name.removesuffix(".sql").partition(".")
        found[question][database] = path.read_text()
    assert found.keys() == QUESTIONS.keys()
    for question, texts in found.items():
        assert texts.keys() <= {"", *DATABASES.values()}, question
        assert "" in texts or texts.keys() == set(DATABASES.values()), f"{question}: not for every database"
        assert len({re.split(r"^\)\n", text, maxsplit=1, flags=re.MULTILINE)[-1] for text in texts.values()}) == 1


def test_the_page_shows_every_file_once() -> None:
    shown = re.findall(r"<!-- sql: (\S+) -->", PAGE.read_text())
    assert sorted(shown) == sorted(path.name for path in FOLDER.iterdir())
    # That the text below is the file's is what tests/test_docs.py checks of all that is embedded.


def test_the_picture_is_as_declared() -> None:
    page = PAGE.read_text()
    assert page == er.filled(page), "run: python docs/er.py"
    assert er.diagram() in page
    for relation in er.RELATIONS:
        for table in (relation.one, relation.other):
            assert set(relation.columns) <= set(er.TABLES[table].names)
