"""S3 by moto, with a bucket `lake`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import httpx
from moto.server import ThreadedMotoServer

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}


@contextmanager
def s3_server() -> Iterator[Any]:
    """Serve as long as the `with` lasts; gives a client."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        httpx.post(f"{url}/moto-api/reset", timeout=60).raise_for_status()  # its servers share their buckets
        client = boto3.client("s3", endpoint_url=url, **KEYS)
        client.create_bucket(Bucket="lake")
        yield client
    finally:
        server.stop()


def content(client: Any, url: str) -> bytes:
    """The content of the object at a URL.

    :raises KeyError: when there is none.
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    try:
        result: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except client.exceptions.NoSuchKey:
        raise KeyError(url) from None
    return result


def copies(client: Any, url: str, folder: Path) -> dict[str, Path]:
    """Copy the objects below a URL into a folder; gives the copies by the names of the objects."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    found = {}
    for entry in client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", []):
        name = entry["Key"].removeprefix(f"{prefix}/")
        found[name] = folder / name
        found[name].write_bytes(content(client, f"{url}/{name}"))
    return found
