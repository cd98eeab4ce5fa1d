"""A real MariaDB, Debian's, run by the user who runs the tests, on a port of 127.0.0.1."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.support.processes import Component, free_port, wait_until

if TYPE_CHECKING:
    from mysql.connector.abstracts import MySQLConnectionAbstract

_MODULES = {"mysqlclient": "MySQLdb", "mysql-connector-python": "mysql"}
CLIENTS = [client for client, module in _MODULES.items() if importlib.util.find_spec(module)]
"""The installed drivers of Airflow's `MySqlHook`: its default, mysqlclient, has to be compiled."""

CLIENT = os.environ.get("MAIL_TEST_MYSQL_CLIENT") or next(iter(CLIENTS))
"""The driver that the tests use."""

OTHERS = "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
"""Everybody else who is connected to the same database."""


def why_not() -> str | None:
    """What is missing on this machine, if anything."""
    missing = [name for name in ("mariadbd", "mariadb-install-db") if not _program(name)]
    if missing:
        return f"no {' and no '.join(missing)} here (Debian: mariadb-server)"
    if CLIENT not in CLIENTS:
        return f"no {CLIENT} here"
    return None


@dataclass(frozen=True)
class MariaDatabase:
    """One database of a `MariaServer`, in the spellings that the users of databases want."""

    name: str
    port: int
    user: str
    password: str

    @property
    def airflow_connection(self) -> str:
        """For `AIRFLOW_CONN_...`."""
        fields = {"conn_type": "mysql", "host": "127.0.0.1", "port": self.port, "schema": self.name}
        return json.dumps(fields | {"login": self.user, "password": self.password, "extra": {"client": CLIENT}})

    def connect(self) -> MySQLConnectionAbstract:
        """A new connection that commits every statement by itself."""
        import mysql.connector

        account = {"user": self.user, "password": self.password, "database": self.name}
        return mysql.connector.connect(host="127.0.0.1", port=self.port, autocommit=True, **account)

    def empty(self) -> None:
        """Drop all that is in it, whoever is still connected."""
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(OTHERS)
            for (number,) in cursor.fetchall():
                with contextlib.suppress(Exception):  # it may have gone by itself
                    cursor.execute(f"KILL {number}")
            cursor.execute(f"DROP DATABASE {self.name}")
            cursor.execute(f"CREATE DATABASE {self.name}")


class MariaServer:
    """Runs in `folder`, which must exist and may be no longer than a socket's address; ended on leaving the `with`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._password = secrets.token_hex(16)
        self._component: Component | None = None

    @property
    def maintenance(self) -> MariaDatabase:
        """The database that is always there."""
        return MariaDatabase("mysql", self._port, "root", self._password)

    def __enter__(self) -> Self:
        data, temporary, accounts = (self._folder / name for name in ("data", "tmp", "accounts.sql"))
        temporary.mkdir()
        # A temporary folder of its own: a server that starts, also to make the system tables, empties that folder.
        common = ["--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}", f"--tmpdir={temporary}"]
        install = [_program("mariadb-install-db") or "", *common, "--auth-root-authentication-method=normal"]
        options = ["--skip-test-db", "--skip-name-resolve"]
        made = subprocess.run([*install, *options], capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{made.stdout}\n{made.stderr}")
        accounts.write_text(
            "DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys';\n"
            "FLUSH PRIVILEGES;\n"
            f"CREATE USER root@'127.0.0.1' IDENTIFIED BY '{self._password}';\n"
            "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        command = [
            *(_program("mariadbd") or "", *common, "--bind-address=127.0.0.1", f"--port={self._port}"),
            *(f"--socket={self._folder / 'socket'}", f"--pid-file={self._folder / 'pid'}"),
            # Before anybody can connect.
            f"--init-file={accounts}",
            # Nothing here outlives the tests, so nothing has to survive a power cut.
            *("--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite", "--innodb-buffer-pool-size=64M"),
            # The character set that servers have which nobody configured: other names for what only differs in case.
            *("--innodb-log-file-size=32M", "--character-set-server=latin1", "--collation-server=latin1_swedish_ci"),
            "--local-infile=0",
        ]
        self._component = Component("mariadbd", command, env=dict(os.environ), log=self._folder / "log")
        self._component.start()
        try:
            wait_until(self._answers, what="MariaDB", timeout=240, interval=0.05)
        except BaseException as error:
            error.add_note(self._component.tail())
            self._component.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._component
        self._component.stop(timeout=20)

    @contextlib.contextmanager
    def database(self) -> Iterator[MariaDatabase]:
        """A new database for as long as the `with` lasts."""
        name = f"test_{os.getpid()}_{secrets.token_hex(4)}"
        database = replace(self.maintenance, name=name)
        with contextlib.closing(self.maintenance.connect()) as connection:
            connection.cursor().execute(f"CREATE DATABASE {name}")
        try:
            yield database
        finally:
            with contextlib.closing(self.maintenance.connect()) as connection:
                connection.cursor().execute(f"DROP DATABASE {name}")

    def _answers(self) -> bool:
        assert self._component
        if (code := self._component.exit_code()) is not None:
            raise RuntimeError(f"mariadbd ended with {code}\n{self._component.tail()}")
        import mysql.connector

        try:
            self.maintenance.connect().close()
        except mysql.connector.Error:
            return False
        return True


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
