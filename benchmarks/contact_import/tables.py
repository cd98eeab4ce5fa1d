"""A table ``contacts`` (email, name, phone) in SQLite and in a real Postgres, behind Airflow connections."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.support import postgres

SQL = "SELECT email, name, phone FROM contacts"
_CREATE = "CREATE TABLE contacts (email text, name text, phone text)"
_FIRST = ("Anna", "José", "Zoë", "李", "Peter", "Ольга", "Mary", "Jürgen")
_LAST = ("Smith", "Müller", "García", "王", "Ivanova", "Jones")


def contacts(rows: int) -> Iterator[tuple[str, str, str]]:
    """Yield contacts that are all different and valid, about 60 bytes each; one ``@`` in each (the sink counts them).

    :param rows: number of contacts.
    """
    for number in range(rows):
        yield (
            f"person{number}@company{number % 997}.example.com",
            f"{_FIRST[number % 8]} {_LAST[number % 6]}",
            f"+49151{number:08d}",
        )


@contextmanager
def databases(folder: Path, rows: int) -> Iterator[dict[str, str]]:
    """Fill both databases; yield, by kind, the connection as Airflow reads it from the environment.

    :param folder: a folder for their files.
    :param rows: number of contacts in each.
    """
    with postgres(folder) as server, server.database() as database:
        with database.connect() as connection:
            connection.execute(_CREATE)
            with connection.cursor().copy("COPY contacts FROM STDIN") as copy:
                for row in contacts(rows):
                    copy.write_row(row)
            connection.execute("VACUUM ANALYZE contacts")
        yield {"SQLite": _sqlite(folder / "contacts.db", rows), "Postgres": database.airflow_connection}


def _sqlite(path: Path, rows: int) -> str:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(_CREATE)
        connection.executemany("INSERT INTO contacts VALUES (?, ?, ?)", contacts(rows))
        connection.commit()
    return json.dumps({"conn_type": "sqlite", "host": str(path)})
