"""Snowflake: fakesnow's server, which `snowflake-connector-python` talks to."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import fakesnow.copy_into
import fakesnow.info_schema
import fakesnow.server
import snowflake.connector
import uvicorn
from fakesnow.instance import FakeSnow
from sqlglot import exp

_inserts = fakesnow.copy_into._inserts


@contextmanager
def snowflake_server(file_system: Any) -> Iterator[int]:
    """Serve as long as the `with` lasts, over plain HTTP; gives the port.

    :param file_system: the one of fsspec from which stages are read.
    """
    instance = FakeSnow()
    instance.duck_conn.register_filesystem(file_system)
    connect = functools.partial(snowflake.connector.connect, protocol="http")
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        without_comments(),
        mock.patch.object(fakesnow.server, "shared_fs", instance),
        mock.patch.object(fakesnow.copy_into, "_inserts", _by_name),
        mock.patch.object(snowflake.connector, "connect", connect),
    ):
        server = uvicorn.Server(uvicorn.Config(fakesnow.server.app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def without_comments() -> Iterator[None]:
    """Leave out what fakesnow notes in another database, which DuckDB allows in no transaction; no test reads it."""
    with (
        mock.patch.object(fakesnow.info_schema, "insert_table_comment_sql", return_value="SELECT 1"),
        mock.patch.object(fakesnow.info_schema, "insert_text_lengths_sql", return_value="SELECT 1"),
    ):
        yield


def _by_name(expr: Any, params: Any, urls: list[str], parquet_info: Any = None) -> list[Any]:
    """What COPY does with MATCH_BY_COLUMN_NAME, which fakesnow does for Parquet only."""
    wanted = fakesnow.copy_into.MatchByColumnName.CASE_INSENSITIVE
    if not isinstance(params.file_format, fakesnow.copy_into.ReadJSON) or params.match_by_column_name is not wanted:
        return _inserts(expr, params, urls, parquet_info)
    reads = [exp.func("read_json", exp.Literal.string(url)) for url in urls]
    return [exp.Insert(this=expr.this, expression=exp.select("*").from_(read), by_name=True) for read in reads]
