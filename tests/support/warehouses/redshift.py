"""Redshift over a Postgres: what stands between `redshift_connector` and the server, and speaks their protocol.

It rewrites what Postgres has no equivalent of, and executes COPY from a manifest itself. The backslash escapes in
literals, as in Redshift.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.postgres import Database
from tests.warehouse.standins import redshift_on_postgres

_COPY = re.compile(r"\s*COPY\s+(\S+)\s+FROM\s+'(s3://[^']+)'(.*)", re.DOTALL)
_KNOWN = {b"user", b"database", b"application_name"}
"""What Postgres takes of a client of Redshift when it connects."""
_OPTIONS = b"-c standard_conforming_strings=off -c escape_string_warning=off -c timezone=UTC"

Read = Callable[[str], bytes]


@contextmanager
def redshift_server(database: Database, read: Read) -> Iterator[int]:
    """Serve a database as long as the `with` lasts; gives the port.

    :param read: gives the content of the object at a URL of S3; raises `KeyError` when there is none.
    """

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as upstream, suppress(ConnectionError):
                upstream.connect(str(Path(database.socket_folder) / ".s.PGSQL.5432"))
                back = threading.Thread(target=_pipe, args=(upstream, self.request), daemon=True)
                with self.request.makefile("rb") as client:
                    upstream.sendall(_startup(client))
                    back.start()
                    while kind := client.read(1):
                        body = client.read(struct.unpack("!i", client.read(4))[0] - 4)
                        upstream.sendall(_message(kind, _rewritten(kind, body, read)))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _startup(client: Any) -> bytes:
    length, version = struct.unpack("!ii", client.read(8))
    fields = client.read(length - 8).rstrip(b"\0").split(b"\0")
    given = dict(zip(fields[::2], fields[1::2], strict=True))
    kept = {name: value for name, value in given.items() if name in _KNOWN} | {b"options": _OPTIONS}
    body = b"".join(name + b"\0" + value + b"\0" for name, value in kept.items()) + b"\0"
    return struct.pack("!ii", len(body) + 8, version) + body


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _rewritten(kind: bytes, body: bytes, read: Read) -> bytes:
    """A message of the client, with its statement for Postgres."""
    if kind == b"P":  # parse: a name, the statement, types of parameters
        name, sql, rest = body.split(b"\0", 2)
        return b"\0".join((name, _for_postgres(sql.decode(), read).encode(), rest))
    if kind == b"Q":
        return _for_postgres(body.rstrip(b"\0").decode(), read).encode() + b"\0"
    return body


def _for_postgres(sql: str, read: Read) -> str:
    if copy := _COPY.match(sql):
        table, url, options = copy.groups()
        try:
            return _copy(table, url, options, read)
        except (KeyError, ValueError) as error:
            text = f"Load into table {table} failed: {error}".replace("'", "")
            return f"DO $$ BEGIN RAISE EXCEPTION '{text}'; END $$"
    return redshift_on_postgres(sql)


def _copy(table: str, url: str, options: str, read: Read) -> str:
    """What COPY of JSON 'auto' does: keys are names of columns, case-sensitively; others are ignored."""
    wanted = ("FORMAT AS JSON 'auto'", "TIMEFORMAT 'auto'", "MANIFEST", "aws_access_key_id=")
    if missing := [option for option in wanted if option not in options]:
        raise ValueError(f"without {missing}")
    lines = []
    for entry in json.loads(read(url))["entries"]:
        try:
            lines += read(entry["url"]).decode().splitlines()
        except KeyError:
            if entry["mandatory"]:
                raise
    # A backslash escapes in literals.
    rows = f"[{','.join(lines)}]".replace("\\", "\\\\").replace("'", "''")
    return f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, '{rows}')"
