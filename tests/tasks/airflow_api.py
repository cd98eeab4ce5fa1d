"""Airflow's REST API in this process, on the database of `dag.test()`."""

from __future__ import annotations

import functools
from typing import Any

import httpx

from tests.support.rest import AirflowApi


class InProcessApi(AirflowApi):
    """The application of the API server, without a server."""

    def __init__(self) -> None:
        from airflow.api_fastapi.app import create_app
        from fastapi.testclient import TestClient

        super().__init__("http://airflow")
        self.close()
        self._http = TestClient(create_app(), base_url="http://airflow")

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        self._http.headers.pop("authorization", None)  # another test's token may be of another time
        return super().request(method, path, **arguments)


@functools.cache
def airflow_api() -> InProcessApi:
    """One for all tests: it takes seconds to make."""
    return InProcessApi()
