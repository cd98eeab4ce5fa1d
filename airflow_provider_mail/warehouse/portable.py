"""Every other database with a `DbApiHook`: delete the keys, insert the rows.

Slower, with fewer numbers to tell, and where a database does not enforce primary keys it is on the user to run one load
at a time. The last load wins, whatever was observed when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any, ClassVar

from airflow_provider_mail.warehouse.dialect import Dialect, LoadResult
from airflow_provider_mail.warehouse.errors import connect_words
from airflow_provider_mail.warehouse.rows import Encoder, json_text, utc
from airflow_provider_mail.warehouse.table import Column, TableName, quoted

# Old SQLite takes 999, SQL Server 2,100; Oracle takes 1,000 members of a list.
_MOST_PARAMETERS = 900

_CONVERTS: Mapping[str, Callable[[Any], Any]] = {"timestamp": utc, "json": json_text}


class Portable(Dialect):
    """Standard SQL and PEP 249, nothing else."""

    types: ClassVar[Mapping[str, str]] = {
        "text": "TEXT",
        "bigint": "BIGINT",
        "integer": "INTEGER",
        "double": "DOUBLE PRECISION",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp": "TIMESTAMP",
        "json": "TEXT",
    }

    def qualified(self, name: TableName) -> str:
        # A name that the user did not quote is left to the database's own folding.
        return ".".join(quoted(part.text) if part.quoted else part.text for part in name.parts)

    def parameter(self, column: Column, value: Any) -> Any:
        convert = _CONVERTS.get(column.type.name)
        return convert(value) if convert else value

    def column_type(self, column: Column) -> str:
        return f"VARCHAR({column.type.length})" if column.type.length else super().column_type(column)

    def load(self, connection: Any) -> LoadResult:
        if self.hook.supports_autocommit:
            self.hook.set_autocommit(connection, False)
        with closing(connection.cursor()) as cursor:
            self._prepare(connection, cursor)
            if self.job.replace_where:
                condition, values = self.window()
                cursor.execute(f"DELETE FROM {self.target} WHERE {condition}", values)
            self._replace_rows(cursor)
        connection.commit()
        return LoadResult(rows=self.job.source.read)

    def _replace_rows(self, cursor: Any) -> None:
        mark = self.hook.placeholder
        insert = (
            f"INSERT INTO {self.target} ({', '.join(self.table.names)}) "
            f"VALUES ({', '.join(mark for _ in self.table.columns)})"
        )
        at = [self.table.names.index(name) for name in self.table.key]
        encode = Encoder(self.table, _CONVERTS)
        for batch in _batches(self.job.source.encoded(encode), _MOST_PARAMETERS // len(at)):
            last = {tuple(row[index] for index in at): tuple(row) for row in batch}
            cursor.execute(self._delete(len(last)), [value for key in last for value in key])
            cursor.executemany(insert, list(last.values()))

    def _delete(self, keys: int) -> str:
        mark = self.hook.placeholder
        one = " AND ".join(f"{name} = {mark}" for name in self.table.key)
        return f"DELETE FROM {self.target} WHERE " + " OR ".join([f"({one})"] * keys)

    def _prepare(self, connection: Any, cursor: Any) -> None:
        """Create the table or add columns, in a transaction of its own: many databases commit at DDL anyway."""
        there = self._columns(connection, cursor)
        statements = (
            [self.create_statement()]
            if there is None
            else [self.addition(column) for column in self.missing(dict.fromkeys(there, ""))]
        )
        for statement in statements:
            refused = None
            try:
                cursor.execute(statement)
                connection.commit()
            except Exception as error:
                connection.rollback()
                refused = connect_words(error)  # no row has been seen yet
            if refused and not self._complete(connection, cursor):
                raise self.error(f"{refused}. Create it as your database likes it, then load again:\n{statement}")

    def _complete(self, connection: Any, cursor: Any) -> bool:
        """Whether somebody else made the table in the meantime."""
        there = self._columns(connection, cursor)
        return there is not None and not self.missing(dict.fromkeys(there, ""))

    def _columns(self, connection: Any, cursor: Any) -> list[str] | None:
        try:
            cursor.execute(f"SELECT * FROM {self.target} WHERE 1 = 0")
        except Exception:  # no two drivers agree on how they say that there is no such table
            connection.rollback()
            return None
        names = [str(column[0]).lower() for column in cursor.description]
        cursor.fetchall()
        return names


def _batches(rows: Iterable[list[Any]], size: int) -> Iterator[list[list[Any]]]:
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        yield batch
