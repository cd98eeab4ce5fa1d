"""Contacts (number, email, name, phone) in SQLite and in a real Postgres, behind Airflow connections.

All rows of the table ``contacts`` are valid; in ``some_invalid`` one row in 200 has an invalid address.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.support import postgres

TABLES = ("contacts", "some_invalid")
INVALID_STEP = 200
_FIRST = ("Anna", "José", "Zoë", "李", "Peter", "Ольга", "Mary", "Jürgen")
_LAST = ("Smith", "Müller", "García", "王", "Ivanova", "Jones")


def contacts(table: str, rows: int) -> Iterator[tuple[int, str, str, str]]:
    """Yield different contacts of about 60 bytes; each valid one has exactly one ``@``, which the sink counts."""
    for number in range(rows):
        is_valid = table == "contacts" or number % INVALID_STEP
        yield (
            number,
            f"person{number}{'@' if is_valid else ' at '}company{number % 997}.example.com",
            f"{_FIRST[number % 8]} {_LAST[number % 6]}",
            f"+49151{number:08d}",
        )


def valid_contacts(table: str, rows: int) -> int:
    """Return how many contacts are valid."""
    return rows if table == "contacts" else rows - -(-rows // INVALID_STEP)


@contextmanager
def databases(folder: Path, rows: int) -> Iterator[dict[str, str]]:
    """Fill both databases; yield, by kind, the connection as Airflow reads it from the environment.

    :param rows: number of contacts in each table.
    """
    with postgres(folder) as server, server.database() as database:
        with database.connect() as connection:
            for table in TABLES:
                connection.execute(_create(table))
                with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                    for row in contacts(table, rows):
                        copy.write_row(row)
                connection.execute(f"VACUUM ANALYZE {table}")
        yield {"SQLite": _sqlite(folder / "contacts.db", rows), "Postgres": database.airflow_connection}


def _create(table: str) -> str:
    return f"CREATE TABLE {table} (number integer PRIMARY KEY, email text, name text, phone text)"


def _sqlite(path: Path, rows: int) -> str:
    with closing(sqlite3.connect(path)) as connection:
        for table in TABLES:
            connection.execute(_create(table))
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", contacts(table, rows))
        connection.commit()
    return json.dumps({"conn_type": "sqlite", "host": str(path)})


def files(folder: Path, rows: int) -> dict[str, Path]:
    """Write the contacts to a file of each format; return them by format."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    _, *columns = zip(*contacts("contacts", rows), strict=True)
    table = pyarrow.table(dict(zip(("email", "name", "phone"), columns, strict=True)))
    written = {"CSV": folder / "contacts.csv", "Parquet": folder / "contacts.parquet"}
    pyarrow.csv.write_csv(table, written["CSV"])
    pyarrow.parquet.write_table(table, written["Parquet"])
    return written
