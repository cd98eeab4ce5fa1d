"""A SQL warehouse of Databricks: the Thrift service that `databricks-sql-connector` talks to, over DuckDB.

Statements are executed by sqlglot's translation; COPY INTO reads Parquet files itself. A statement that changes a table
is rejected if another one has changed it meanwhile, as Delta Lake does.
"""

from __future__ import annotations

import fnmatch
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from databricks.sql.thrift_api.TCLIService import TCLIService
from databricks.sql.thrift_api.TCLIService import ttypes as t
from flask import Flask, request
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TMemoryBuffer

from tests.support.warehouses.serving import served
from tests.warehouse.standins import transpiled

PATH = "/sql/1.0/warehouses/mail"

_COPY = re.compile(r"COPY INTO (\S+)\s+FROM '(s3://[^']+)'\s+FILEFORMAT = PARQUET\s+PATTERN = '([^']+)'")
_CHANGES = re.compile(r"(?:MERGE INTO|UPDATE|DELETE FROM) (\S+)")
_OK = t.TStatus(t.TStatusCode.SUCCESS_STATUS)
_KINDS = {**dict.fromkeys(("BIGINT", "INTEGER", "HUGEINT"), t.TTypeId.BIGINT_TYPE), "DOUBLE": t.TTypeId.DOUBLE_TYPE}
"""The types of results; others are text."""

Objects = Callable[[str], dict[str, Path]]
Row = tuple[Any, ...]


class Refused(Exception):
    """The server rejects a statement."""


@dataclass
class DatabricksServer:
    """One SQL warehouse, with the schema `crm`.

    :param folder: where the database is.
    :param objects: gives the objects below a URL of S3: a copy of each, by its name.
    :param before: called with the text of every statement when its snapshot is taken; may raise `Refused`.
    """

    folder: Path
    objects: Objects
    before: Callable[[str], None] = lambda sql: None
    url: str = ""
    _versions: Counter[str] = field(default_factory=Counter)
    _loaded: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[DatabricksServer]:
        """Serve as long as the `with` lasts."""
        with closing(duckdb.connect(self.folder / "databricks.duckdb")) as self._database:
            self._database.execute("CREATE SCHEMA crm")
            app, processor = Flask(__name__), TCLIService.Processor(self)

            @app.post(PATH)
            def call() -> bytes:
                answer = TMemoryBuffer()
                processor.process(TBinaryProtocol(TMemoryBuffer(request.get_data())), TBinaryProtocol(answer))
                return answer.getvalue()

            with served(app) as self.url:
                yield self

    def query(self, sql: str) -> list[Row]:
        """The rows of a statement in DuckDB's dialect."""
        with self._connection() as connection:
            return list(connection.execute(sql).fetchall())

    @contextmanager
    def _connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with closing(self._database.cursor()) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection

    # The methods of the service, named by it

    def OpenSession(self, req: t.TOpenSessionReq) -> t.TOpenSessionResp:
        protocol = t.TProtocolVersion.SPARK_CLI_SERVICE_PROTOCOL_V7
        return t.TOpenSessionResp(_OK, protocol, sessionHandle=t.TSessionHandle(_identifier()))

    def CloseSession(self, req: t.TCloseSessionReq) -> t.TCloseSessionResp:
        return t.TCloseSessionResp(_OK)

    def ExecuteStatement(self, req: t.TExecuteStatementReq) -> t.TExecuteStatementResp:
        handle = t.TOperationHandle(_identifier(), t.TOperationType.EXECUTE_STATEMENT, hasResultSet=True)
        finished = t.TGetOperationStatusResp(_OK, operationState=t.TOperationState.FINISHED_STATE)
        try:
            columns, rows = self._run(req.statement)
        except Refused as refusal:
            finished.operationState, finished.displayMessage = t.TOperationState.ERROR_STATE, str(refusal)
            finished.errorMessage = str(refusal)
            return t.TExecuteStatementResp(_OK, handle, t.TSparkDirectResults(finished))
        described = [
            t.TColumnDesc(name, t.TTypeDesc([t.TTypeEntry(t.TPrimitiveTypeEntry(kind))]), position)
            for position, (name, kind) in enumerate(columns, 1)
        ]
        metadata = t.TGetResultSetMetadataResp(
            _OK, t.TTableSchema(described), resultFormat=t.TSparkRowSetType.COLUMN_BASED_SET
        )
        values = [_column(kind, [row[index] for row in rows]) for index, (_, kind) in enumerate(columns)]
        results = t.TFetchResultsResp(_OK, hasMoreRows=False, results=t.TRowSet(0, [], values))
        direct = t.TSparkDirectResults(finished, metadata, results, t.TCloseOperationResp(_OK))
        return t.TExecuteStatementResp(_OK, handle, direct)

    # What they do

    def _run(self, sql: str) -> tuple[list[tuple[str, int]], list[Row]]:
        changed = _CHANGES.match(sql)
        table = changed[1] if changed else ""
        version = self._versions[table]
        self.before(sql)
        with self._connection() as connection, self._lock:
            if changed and self._versions[table] != version:
                raise Refused(
                    "[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] ConcurrentAppendException: Files were added to the root of "
                    f"the table by a concurrent update. Please try the operation again. Table: {table}"
                )
            try:
                if copy := _COPY.match(sql):
                    self._copy(connection, *copy.groups())
                else:
                    for statement in transpiled(sql, "databricks"):
                        connection.execute(statement)
            except duckdb.Error as error:
                raise Refused(str(error)) from None
            self._versions[table] += 1
            if not sql.startswith("SELECT"):
                return [], []
            columns = [
                (name, _KINDS.get(str(kind), t.TTypeId.STRING_TYPE)) for name, kind, *_ in connection.description
            ]
            return columns, connection.fetchall()

    def _copy(self, connection: duckdb.DuckDBPyConnection, table: str, url: str, pattern: str) -> None:
        """Load files, each once; a column that the table lacks is an error."""
        found = {name: path for name, path in self.objects(url).items() if fnmatch.fnmatch(name, pattern)}
        files = [str(path) for name, path in found.items() if (table, f"{url}/{name}") not in self._loaded]
        if files:
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM read_parquet({files})")
        self._loaded |= {(table, f"{url}/{name}") for name in found}


def _identifier() -> t.THandleIdentifier:
    return t.THandleIdentifier(uuid.uuid4().bytes, uuid.uuid4().bytes)


def _column(kind: int, values: list[Any]) -> t.TColumn:
    nulls = bytes(
        sum(1 << bit for bit, value in enumerate(values[start : start + 8]) if value is None)
        for start in range(0, len(values), 8)
    )
    if kind == t.TTypeId.BIGINT_TYPE:
        return t.TColumn(i64Val=t.TI64Column([value or 0 for value in values], nulls))
    if kind == t.TTypeId.DOUBLE_TYPE:
        return t.TColumn(doubleVal=t.TDoubleColumn([value or 0.0 for value in values], nulls))
    return t.TColumn(stringVal=t.TStringColumn(["" if value is None else str(value) for value in values], nulls))
