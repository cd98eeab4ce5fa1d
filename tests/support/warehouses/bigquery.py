"""BigQuery: the part of its REST API that Airflow's hook and Google's client use, over DuckDB.

Statements are executed by sqlglot's translation, a script as one job. A load job reads the objects of `storage_api`.
A transaction is rejected if another one has ended meanwhile, as BigQuery does with two that change one table.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from typing import Any

import duckdb
from flask import Blueprint, Flask, Response, request

from tests.support.warehouses.serving import served
from tests.warehouse.standins import transpiled

Json = dict[str, Any]

_TYPES = {
    **dict.fromkeys(("BIGINT", "HUGEINT", "INTEGER"), "INTEGER"),
    **{"DOUBLE": "FLOAT", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "JSON": "JSON"},
    **{"TIMESTAMP WITH TIME ZONE": "TIMESTAMP", "VARCHAR": "STRING"},
}
_READERS = {
    "NEWLINE_DELIMITED_JSON": "read_json({files}, format = 'newline_delimited', columns = {columns})",
    "PARQUET": "read_parquet({files})",
}


def storage_api(folder: Path) -> Blueprint:
    """What gcsfs needs of the JSON API of Google Cloud Storage; an object of a bucket is the file `bucket/key`."""
    api = Blueprint("storage", __name__)

    @api.post("/upload/storage/v1/b/<bucket>/o")
    def upload(bucket: str) -> dict[str, Any]:
        assert request.args["uploadType"] == "multipart", request.url
        head = f"Content-Type: {request.headers['Content-Type']}\n\n".encode()
        metadata, media = message_from_bytes(head + request.get_data()).get_payload()
        name, content = json.loads(metadata.get_payload())["name"], media.get_payload(decode=True)
        path = folder / bucket / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        md5 = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
        return {"bucket": bucket, "name": name, "size": str(len(content)), "md5Hash": md5, "generation": "1"}

    @api.get("/download/storage/v1/b/<bucket>/o/<path:name>")
    def download(bucket: str, name: str) -> Any:
        path = folder / bucket / name
        if not path.is_file():
            return {"error": {"code": 404, "message": f"No such object: {bucket}/{name}"}}, 404
        return Response(path.read_bytes(), mimetype="application/octet-stream")

    return api


class Refused(Exception):
    """The server rejects a job."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.result = {"reason": reason, "location": "query", "message": message}


def concurrent_update(table: str) -> Refused:
    """What BigQuery says to one of two transactions that change one table."""
    number = "61e30eea-0000-2dab-8e60-94eb2c1b1a92"
    text = f"Transaction is aborted due to concurrent update against table mail:{table}. Transaction ID: {number}"
    return Refused("invalidQuery", f"Query error: {text} at [2:1]")


@dataclass
class BigQueryServer:
    """One project, with the dataset `crm`.

    :param folder: where the database and the objects of the storage are.
    :param before: called with the text of every query when it begins; may raise `Refused`.
    """

    folder: Path
    before: Callable[[str], None] = lambda sql: None
    url: str = ""
    jobs: dict[str, Json] = field(default_factory=dict)
    """Every job, by its id."""
    _results: dict[str, Json] = field(default_factory=dict)
    _transactions: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[BigQueryServer]:
        """Serve as long as the `with` lasts."""
        with closing(duckdb.connect(self.folder / "bigquery.duckdb")) as self._database:
            self._database.execute("CREATE SCHEMA crm")
            with served(self._app()) as self.url:
                yield self

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement in DuckDB's dialect."""
        with self._connection() as connection:
            return list(connection.execute(sql).fetchall())

    @property
    def objects(self) -> Path:
        """The folder of the objects, by bucket."""
        return self.folder / "objects"

    @contextmanager
    def _connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with closing(self._database.cursor()) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection

    def _app(self) -> Flask:
        app = Flask(__name__)
        app.register_blueprint(storage_api(self.objects))
        base = "/bigquery/v2/projects/<project>"

        @app.post(f"{base}/jobs")
        def insert(project: str) -> Any:
            body = request.get_json()
            number = body.setdefault("jobReference", {}).setdefault("jobId", uuid.uuid4().hex)
            if number in self.jobs:
                return _error(409, {"reason": "duplicate", "message": f"Already Exists: Job {project}:EU.{number}"})
            self.jobs[number] = body | {"id": f"{project}:EU.{number}", "status": {"state": "RUNNING"}}
            threading.Thread(target=self._work, args=(number,)).start()
            return self.jobs[number]

        @app.get(f"{base}/jobs/<number>")
        def get(project: str, number: str) -> Any:
            return self.jobs[number]

        @app.get("/projects/<project>/queries/<number>")  # the older client's idea of the same endpoint
        @app.get(f"{base}/queries/<number>")
        def results(project: str, number: str) -> Any:
            job = self.jobs[number]
            if job["status"]["state"] != "DONE":
                return {"jobComplete": False, "jobReference": job["jobReference"]}
            if failure := job["status"].get("errorResult"):
                return _error(400, failure)
            return {"jobComplete": True, "jobReference": job["jobReference"], **self._results[number]}

        return app

    def _work(self, number: str) -> None:
        job = self.jobs[number]
        status: Json = {"state": "DONE"}
        try:
            if "query" in job["configuration"]:
                self._results[number] = self._run(job["configuration"]["query"])
            else:
                self._load(job["configuration"]["load"])
        except Refused as refusal:
            status |= {"errorResult": refusal.result, "errors": [refusal.result]}
        job["statistics"] = {"creationTime": "1", "startTime": "1", "endTime": "1"}
        job["status"] = status

    def _run(self, query: Json) -> Json:
        if query.get("useLegacySql", True):
            raise Refused("invalidQuery", "Legacy SQL")
        statements, transactions = transpiled(query["query"], "gcpbigquery"), self._transactions
        self.before(query["query"])
        with self._connection() as connection, self._lock:
            if len(statements) > 1 and self._transactions != transactions:
                raise concurrent_update("crm.mail_load_lock")
            for statement in statements:
                _execute(connection, statement)
            self._transactions += len(statements) > 1
            described = connection.description or []
            fields = [{"name": name, "type": _TYPES.get(str(kind), "STRING")} for name, kind, *_ in described]
            rows = connection.fetchall() if described else []
        if not statements[-1].startswith(("SELECT", "WITH")):
            return {"totalRows": "0"}
        return {
            "schema": {"fields": fields},
            "rows": [{"f": [{"v": _value(value)} for value in row]} for row in rows],
            "totalRows": str(len(rows)),
        }

    def _load(self, load: Json) -> None:
        files = [str(path) for uri in load["sourceUris"] for path in self._files(uri)]
        table = ".".join(load["destinationTable"][part] for part in ("datasetId", "tableId"))
        with self._connection() as connection:
            described = connection.execute(f"DESCRIBE {table}").fetchall()
            columns = {name: kind for name, kind, *_ in described}
            if load["sourceFormat"] == "NEWLINE_DELIMITED_JSON":
                _check_names(files, columns)
            reader = _READERS[load["sourceFormat"]].format(files=files, columns=columns)
            connection.execute("BEGIN")
            if load["writeDisposition"] == "WRITE_TRUNCATE":
                connection.execute(f"DELETE FROM {table}")
            _execute(connection, f"INSERT INTO {table} BY NAME SELECT * FROM {reader}")
            connection.execute("COMMIT")

    def _files(self, uri: str) -> list[Path]:
        found = sorted(self.objects.glob(uri.removeprefix("gs://")))
        if not found:
            raise Refused("notFound", f"Not found: URI {uri}")
        return found


def _execute(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    try:
        connection.execute(statement)
    except duckdb.Error as error:
        reason = "notFound" if "does not exist" in str(error) else "invalidQuery"
        raise Refused(reason, re.sub(r"\s+", " ", str(error))) from None


def _value(value: Any) -> str | None:
    if isinstance(value, datetime.datetime):
        return repr(value.timestamp())
    return value if value is None else str(value)


def _check_names(files: list[str], columns: Json) -> None:
    """BigQuery rejects a key that is no column."""
    for file in files:
        for number, line in enumerate(Path(file).read_text().splitlines(), 1):
            if unknown := {*json.loads(line)} - {*columns}:
                message = f"JSON parsing error in row starting at position {number}: No such field: {min(unknown)}."
                raise Refused("invalid", f"Error while reading data, error message: {message}")


def _error(code: int, failure: Json) -> tuple[Json, int]:
    error = {"code": code, "message": failure["message"], "errors": [failure], "status": "INVALID_ARGUMENT"}
    return {"error": error}, code
