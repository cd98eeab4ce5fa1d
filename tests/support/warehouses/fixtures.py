"""Fixtures: the stand-ins behind Airflow's connections. They skip tests without the dependency group `warehouses`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import PostgresServer


@dataclass(frozen=True)
class Standin:
    """A warehouse behind Airflow's connection to it.

    :param schema: of its tables, with a dot.
    :param query: gives the rows of a statement.
    :param server: the stand-in itself.
    """

    kind: str
    schema: str
    query: Callable[[str], list[tuple[Any, ...]]]
    server: Any = None

    @property
    def hook(self) -> Any:
        from airflow_provider_mail._task.storage import sql_hook

        return sql_hook(f"{self.kind}_default")


Connect = Callable[..., None]


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """A function that makes a connection."""
    from airflow.sdk.io import store

    monkeypatch.setattr(store, "_STORE_CACHE", {})
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_BUCKET", "lake")

    def connected(conn_id: str, conn_type: str, **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))

    return connected


@pytest.fixture
def bucket(connected: Connect) -> Iterator[Any]:
    """A bucket `lake` of a moto server, behind Airflow's connection `aws_default`."""
    for name in ("moto", "s3fs", "airflow.providers.amazon"):
        pytest.importorskip(name, reason="needs the dependency group warehouses")
    from tests.support.warehouses.s3 import s3_server

    with s3_server() as client:
        extra = {"endpoint_url": client.meta.endpoint_url, "region_name": "us-east-1"}
        connected("aws_default", "aws", login="a", password="b", extra=extra)
        yield client


@pytest.fixture
def bigquery(tmp_path: Path, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    """BigQuery and Google Cloud Storage; only the address of the service is not that of Google."""
    pytest.importorskip("airflow.providers.google", reason="needs the dependency group warehouses")
    # Else gcsfs asks by gRPC, which takes a minute to give up.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    from airflow.providers.google.common.hooks.base_google import GoogleBaseHook
    from google.api_core.client_options import ClientOptions

    from tests.support.warehouses.bigquery import BigQueryServer

    with BigQueryServer(tmp_path).running() as server:
        monkeypatch.setattr(GoogleBaseHook, "get_client_options", lambda *_: ClientOptions(api_endpoint=server.url))
        extra = {"project": "mail", "is_anonymous": True, "gcs.endpoint": server.url}
        connected("bigquery_default", "gcpbigquery", extra=extra)
        connected("google_cloud_default", "google_cloud_platform", extra=extra)
        yield Standin("bigquery", "crm.", server.query, server)


@pytest.fixture
def databricks(tmp_path: Path, bucket: Any, connected: Connect) -> Iterator[Standin]:
    """A SQL warehouse of Databricks."""
    pytest.importorskip("airflow.providers.databricks", reason="needs the dependency group warehouses")
    from tests.support.warehouses.databricks import PATH, DatabricksServer
    from tests.support.warehouses.s3 import copies

    with DatabricksServer(tmp_path, lambda url: copies(bucket, url, tmp_path)).running() as server:
        extra = {"http_path": PATH, "_connection_uri": server.url + PATH, "enable_telemetry": False}
        connected("databricks_default", "databricks", host="127.0.0.1", password="token", extra=extra)
        yield Standin("databricks", "crm.", server.query, server)


@pytest.fixture
def redshift(postgres_server: PostgresServer, bucket: Any, connected: Connect) -> Iterator[Standin]:
    """Redshift, which is Postgres without keys."""
    from tests.support.warehouses.redshift import redshift_server
    from tests.support.warehouses.s3 import content
    from tests.warehouse.standins import JSON_PARSE

    with postgres_server.database() as database, database.connect() as connection:
        connection.execute(JSON_PARSE)
        with redshift_server(database, lambda url: content(bucket, url)) as port:
            fields = {"host": "127.0.0.1", "port": port, "login": database.user, "schema": database.name}
            connected("redshift_default", "redshift", **fields, extra={"ssl": False})
            yield Standin("redshift", "", lambda sql: list(connection.execute(sql).fetchall()))


@pytest.fixture
def snowflake(bucket: Any, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    """Snowflake, with a stage `lake`."""
    pytest.importorskip("fakesnow", reason="needs the dependency group warehouses")
    from s3fs import S3FileSystem

    from tests.support.warehouses.snowflake import snowflake_server

    files = S3FileSystem(key="a", secret="b", endpoint_url=bucket.meta.endpoint_url, skip_instance_cache=True)
    with snowflake_server(files) as port:
        extra = {"account": "a", "database": "dwh", "host": "127.0.0.1", "port": port}
        connected("snowflake_default", "snowflake", login="u", password="p", schema="mail", extra=extra)
        monkeypatch.setenv("AIRFLOW_VAR_MAIL_LAKE", "s3://lake/mail")
        monkeypatch.setenv("AIRFLOW_VAR_MAIL_EXTERNAL_STAGE", "lake")
        standin = Standin("snowflake", "", lambda sql: query(standin.hook, sql))
        standin.query("CREATE STAGE lake URL = 's3://lake/mail'")
        yield standin


def query(hook: Any, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement, through a hook."""
    with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]
