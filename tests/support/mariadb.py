"""A real MariaDB, Debian's, as the user who runs the tests: on a socket, without a port."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tests.support.processes import Component, wait_until

if TYPE_CHECKING:
    from MySQLdb.connections import Connection

OTHERS = "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
"""Everybody else who is connected to the same database."""


def why_not() -> str | None:
    """What is missing on this machine, if anything."""
    missing = [name for name in ("mariadbd", "mariadb-install-db") if not _program(name)]
    if missing:
        return f"no {' and no '.join(missing)} here (Debian: mariadb-server)"
    try:
        import MySQLdb  # noqa: F401
    except ImportError as error:
        return f"no mysqlclient here: {error}"
    return None


@dataclass(frozen=True)
class MariaDatabase:
    """One database of a `MariaServer`, in the spellings that the users of databases want."""

    name: str
    socket: str
    user: str

    @property
    def airflow_connection(self) -> str:
        """For `AIRFLOW_CONN_...`."""
        return json.dumps(
            {
                "conn_type": "mysql",
                "host": "localhost",
                "login": self.user,
                "schema": self.name,
                "extra": {"unix_socket": self.socket},
            }
        )

    def connect(self, **options: Any) -> Connection:
        """A new connection that commits every statement by itself."""
        import MySQLdb

        given = {"unix_socket": self.socket, "user": self.user, "db": self.name, "autocommit": True, **options}
        return MySQLdb.connect(**given)

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
        self._user = getpass.getuser()
        self._component: Component | None = None

    @property
    def maintenance(self) -> MariaDatabase:
        """The database that is always there."""
        return MariaDatabase("mysql", str(self._folder / "socket"), self._user)

    def __enter__(self) -> Self:
        data, temporary = self._folder / "data", self._folder / "tmp"
        temporary.mkdir()
        common = ["--no-defaults", f"--datadir={data}", f"--user={self._user}"]
        # The account of this very user, by the socket and without a password.
        made = subprocess.run(
            [
                _program("mariadb-install-db") or "",
                *common,
                "--auth-root-authentication-method=socket",
                f"--auth-root-socket-user={self._user}",
                "--skip-test-db",
                "--skip-name-resolve",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{made.stdout}\n{made.stderr}")
        self._component = Component(
            "mariadbd",
            [
                _program("mariadbd") or "",
                *common,
                f"--socket={self.maintenance.socket}",
                f"--pid-file={self._folder / 'pid'}",
                "--skip-networking",
                # Of its own: a server that starts removes the temporary tables that it finds.
                f"--tmpdir={temporary}",
                # Nothing here outlives the tests, so nothing has to survive a power cut.
                "--innodb-flush-log-at-trx-commit=0",
                "--skip-innodb-doublewrite",
                "--innodb-buffer-pool-size=64M",
                "--innodb-log-file-size=32M",
                # As servers have it that nobody configured: other names for what only differs in case.
                "--character-set-server=latin1",
                "--collation-server=latin1_swedish_ci",
                "--local-infile=0",
            ],
            env=dict(os.environ),
            log=self._folder / "log",
        )
        self._component.start()
        try:
            wait_until(self._answers, what="MariaDB", timeout=60, interval=0.05)
        except BaseException as error:
            error.add_note(self._component.tail())
            self._component.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._component
        self._component.stop(timeout=20)

    @contextlib.contextmanager
    def database(self) -> Iterator[MariaDatabase]:
        """A new database for as long as the `with` lasts."""
        name = f"test_{os.getpid()}_{secrets.token_hex(4)}"
        database = MariaDatabase(name, self.maintenance.socket, self._user)
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
        import MySQLdb

        try:
            self.maintenance.connect().close()
        except MySQLdb.OperationalError:
            return False
        return True


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
