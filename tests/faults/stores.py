"""Databases and folders that tasks read and write, and that every run finds as they were."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

FOLDER = tempfile.TemporaryDirectory(prefix="fault-matrix-")

Rows = list[tuple[Any, ...]]


class Database:
    """An SQLite file behind a connection; every run begins with a copy of the same one."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._path = Path(FOLDER.name) / f"{conn_id}.db"
        self._first = self._path.with_suffix(".first")

    def hold(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        """Begin with one table, which is made at the first time."""
        if not self._first.exists():
            self.restore()
            with closing(sqlite3.connect(self._path)) as connection:
                connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
                connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in columns)})", rows)
                connection.commit()
            self.keep()
        self.restore()

    def connection(self) -> dict[str, Any]:
        return {self.conn_id: {"conn_type": "sqlite", "host": str(self._path)}}

    def restore(self) -> None:
        """Be what was kept, or empty."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        if self._first.exists():
            shutil.copy(self._first, self._path)

    def keep(self) -> None:
        """Begin like this from now on."""
        shutil.copy(self._path, self._first)

    def query(self, sql: str) -> Rows:
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(sql).fetchall()


class Folder:
    """A folder of JSON Lines; every run begins with a copy of the same one."""

    def __init__(self, name: str) -> None:
        self.path = Path(FOLDER.name) / name
        self._first = self.path.with_suffix(".first")

    def restore(self) -> None:
        """Be what was kept, or empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._first.exists():
            shutil.copytree(self._first, self.path)

    def keep(self) -> None:
        """Begin like this from now on."""
        shutil.copytree(self.path, self._first)

    def rows(self, columns: Sequence[str]) -> dict[str, Rows]:
        """These columns of the rows of every file, sorted, by the file's place."""
        return {
            str(file.relative_to(self.path)): sorted(
                tuple(row[column] for column in columns) for row in map(json.loads, file.read_text().splitlines())
            )
            for file in self.path.rglob("*")
            if file.is_file()
        }
