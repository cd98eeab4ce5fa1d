"""Warehouses through Airflow's own hooks and operators, on stand-ins: fakesnow for Snowflake, moto for S3.

Needs the dependency group `warehouses`, which is not in the environment of the other tests: `make test-warehouses`.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_object_storage import MailContactsToObjectStorageOperator
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.coverage import Coverage, MarkGone
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.manifest import Manifest
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing

pytestmark = pytest.mark.not_unit
RECIPES = Path(__file__).parents[2] / "example_dags" / "warehouses"


# --- Snowflake ---


@pytest.fixture
def snowflake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Airflow's hook of Snowflake, behind which fakesnow answers."""
    fakesnow = pytest.importorskip("fakesnow", reason="needs the dependency group warehouses: fakesnow")
    pytest.importorskip("airflow.providers.snowflake", reason="needs the dependency group warehouses")
    from airflow.providers.snowflake.hooks.snowflake import SnowflakeHook

    connection = {
        "conn_type": "snowflake",
        "login": "u",
        "password": "p",
        "schema": "mail",
        "extra": {"account": "a", "database": "dwh"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SNOWFLAKE_DEFAULT", json.dumps(connection))
    # It notes comments and lengths in another database, which DuckDB allows in no transaction; no test reads them.
    from fakesnow import info_schema

    for name in ("insert_table_comment_sql", "insert_text_lengths_sql"):
        monkeypatch.setattr(info_schema, name, lambda *_: "SELECT 1")
    with fakesnow.patch():
        yield SnowflakeHook("snowflake_default")


def query(hook: Any, sql: str) -> list[tuple[Any, ...]]:
    with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


def test_rows_through_the_hook_of_snowflake(snowflake: Any) -> None:
    full = {"name": "a\\' \" \n %s {} å", "size": -5, "ratio": 1.5, "good": True, "day": NOON.date(), "sold_at": LATER}
    covers = Coverage.one("a", {"account": "a"}, mail_conn_id="m", observed_at=NOON)
    first = [thing(MARKED, 1, **full, extra={"a": ["x\\ '"]}), thing(MARKED, 2), thing(MARKED, 3)]
    load(snowflake, MARKED, "things", first, covers=covers)
    columns = "number, name, size, ratio, good, day, sold_at, extra"
    ((number, *values, extra),) = query(snowflake, f"SELECT {columns} FROM things WHERE number = 1")
    assert (number, *values) == (1, full["name"], -5, 1.5, True, NOON.date(), LATER)
    assert json.loads(extra) == {"a": ["x\\ '"]}

    load(
        snowflake,
        MARKED,
        "things",
        [thing(MARKED, 1, at=LATER, name="new")],
        mark_gone=MarkGone(LATER, lambda: [{"account": "a"}]),
    )
    load(snowflake, MARKED, "things", [thing(MARKED, 1, name="old")])
    rows = query(snowflake, "SELECT number, name, gone_at IS NOT NULL FROM things ORDER BY number")
    assert rows == [(1, "new", False), (2, None, True), (3, None, True)]
    assert query(snowflake, "SELECT table_name, part FROM mail_loads") == [("things", "a")]
    load(snowflake, MARKED, "things", [thing(MARKED, 3, at=LATER)], replace_where={"account": "a"})
    assert query(snowflake, "SELECT number FROM things") == [(3,)]


@pytest.mark.parametrize("at_once", [2, 4, 8])
def test_loads_at_once_on_fakesnow(snowflake: Any, at_once: int) -> None:
    """It rejects one of two transactions that write the same row, where Snowflake lets it wait."""
    load(snowflake, THINGS, "things", [])
    rows = [thing(THINGS, number) for number in range(20)]
    covers = Coverage.one("a", {"account": "a"}, mail_conn_id="m", observed_at=NOON)

    def work(_: int) -> None:
        for _try in range(10):  # as the task is tried again
            try:
                load(type(snowflake)("snowflake_default"), THINGS, "things", rows, covers=covers)
                return
            except WarehouseError as error:
                assert "Conflict" in str(error)  # noqa: PT017
        raise AssertionError("never loaded")

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(work, range(at_once)))
    assert query(snowflake, "SELECT COUNT(*), COUNT(DISTINCT number) FROM things") == [(20, 20)]


def test_an_operator_loads_snowflake(snowflake: Any, emulator: Emulator) -> None:
    emulator.add_list("newsletter", count=30)
    load_it = MailContactsToSqlOperator(
        task_id="a", sql_conn_id="snowflake_default", list_name="newsletter", page_size=10
    )
    for _ in range(2):
        assert load_it.execute({})["records"] == 30
    ids = {contact["id"] for contact in emulator.contacts("newsletter")}
    assert sorted(id for (id,) in query(snowflake, "SELECT id FROM mail_contacts")) == sorted(ids)


# --- S3 ---


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket `lake` of a moto server, behind Airflow's connection `aws_default`."""
    for name in ("moto", "s3fs", "airflow.providers.amazon"):
        pytest.importorskip(name, reason="needs the dependency group warehouses: moto, s3fs")
    import boto3
    from airflow.sdk.io import store
    from moto.server import ThreadedMotoServer

    monkeypatch.setattr(store, "_STORE_CACHE", {})
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        httpx.post(f"{url}/moto-api/reset").raise_for_status()  # its servers share their buckets
        client = boto3.client("s3", endpoint_url=url, **keys)
        client.create_bucket(Bucket="lake")
        connection = {
            "conn_type": "aws",
            "login": "a",
            "password": "b",
            "extra": {"endpoint_url": url, "region_name": "us-east-1"},
        }
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
        yield client
    finally:
        server.stop()


def keys(bucket: Any) -> list[str]:
    return [found["Key"] for found in bucket.list_objects_v2(Bucket="lake").get("Contents", [])]


def contacts(**arguments: Any) -> dict[str, Any]:
    given = {
        "task_id": "contacts",
        "list_name": "newsletter",
        "path": "s3://lake/mail/contacts",
        "object_storage_conn_id": "aws_default",
        "page_size": 50,
        "rows_per_file": 40,
    }
    result: dict[str, Any] = MailContactsToObjectStorageOperator(**given | arguments).execute({})
    return result


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_a_load_in_a_bucket(bucket: Any, emulator: Emulator, file_format: str) -> None:
    emulator.add_list("newsletter", count=95)
    result = contacts(file_format=file_format)
    folder = f"mail/contacts/{result['load_id']}"
    parts = [f"{folder}/part-0000{number}.{file_format}" for number in range(3)]
    assert sorted(keys(bucket)) == [f"{folder}/manifest.json", *parts]
    manifest = Manifest.from_json(bucket.get_object(Bucket="lake", Key=f"{folder}/manifest.json")["Body"].read())
    assert [file.url for file in manifest.files] == [f"s3://lake/{part}" for part in parts]
    assert [file.size for file in manifest.files] == [
        bucket.head_object(Bucket="lake", Key=part)["ContentLength"] for part in parts
    ]
    assert manifest.rows == 95


def test_a_failed_load_leaves_no_object(bucket: Any, emulator: Emulator) -> None:
    emulator.add_list("newsletter", count=95)
    emulator.faults.add("empty_page", operation="/v5/contacts/list/get", count=None, skip=1)
    with pytest.raises(Exception, match="records"):
        contacts(on_change="fail", max_in_flight=1)
    assert keys(bucket) == []


def test_from_a_bucket_into_snowflake(snowflake: Any, bucket: Any, emulator: Emulator) -> None:
    """Without the COPY of Snowflake, which reads its own stages: the files are inserted as COPY would."""
    emulator.add_list("newsletter", count=30)
    written = contacts(file_format="jsonl")
    given = {
        "sql_conn_id": "snowflake_default",
        "table": "mail_contacts",
        "manifest": written["manifest"],
        "object_storage_conn_id": "aws_default",
    }
    stage = MailCreateStageTableOperator(task_id="stage", **given).execute({})["stage_table"]
    copy(snowflake, bucket, written, stage)
    assert MailMergeStageTableOperator(task_id="merge", **given).execute({}) == {
        "table": "mail_contacts",
        "records": 30,
    }
    ids = {contact["id"] for contact in emulator.contacts("newsletter")}
    assert {id for (id,) in query(snowflake, "SELECT id FROM mail_contacts")} == ids
    with pytest.raises(AirflowFailException, match="does not exist, so there is no complete load"):
        MailMergeStageTableOperator(
            task_id="none", **given | {"manifest": "s3://lake/mail/contacts/none/manifest.json"}
        ).execute({})


def copy(snowflake: Any, bucket: Any, written: dict[str, Any], stage: str) -> None:
    for key in keys(bucket):
        if written["load_id"] not in key or not key.endswith(".jsonl"):
            continue
        for line in bucket.get_object(Bucket="lake", Key=key)["Body"].read().splitlines():
            row = json.loads(line)
            values = [json.dumps(value) if isinstance(value, dict) else value for value in row.values()]
            marks = ["PARSE_JSON(%s)" if isinstance(value, dict) else "%s" for value in row.values()]
            with closing(snowflake.get_conn()) as connection, closing(connection.cursor()) as cursor:
                cursor.execute(f"INSERT INTO {stage} ({', '.join(row)}) SELECT {', '.join(marks)}", values)


# --- the examples ---


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.py")), ids=lambda path: path.stem)
def test_the_examples_are_dags_of_the_providers_operators(path: Path) -> None:
    name = {"bigquery": "google", "redshift": "amazon"}
    kind = path.stem.removeprefix("mail_to_")
    pytest.importorskip(f"airflow.providers.{name.get(kind, kind)}", reason="needs the dependency group warehouses")
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert [task.task_id for task in module.dag.topological_sort()] == ["contacts", "stage", "copy", "merge"]
    # What another task returned is a template.
    templated = {*module.copy.template_fields}
    for field, value in vars(module.copy).items():
        if isinstance(value, str | list) and "{{" in str(value):
            assert field in templated, field
