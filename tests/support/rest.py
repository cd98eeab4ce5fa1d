"""Airflow's public REST API, as much of it as the tests look at."""

from __future__ import annotations

from typing import Any

import httpx

from tests.support.processes import PATIENCE

Json = dict[str, Any]


class AirflowApi:
    """Version 2 of the API, of an Airflow in which everybody is an administrator."""

    def __init__(self, base_url: str) -> None:
        self._http = httpx.Client(base_url=base_url, timeout=PATIENCE, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def health(self) -> dict[str, str]:
        """Status by component, with underscores in the names; empty while nobody answers."""
        try:
            answer = self._http.get("/api/v2/monitor/health")
        except httpx.TransportError:
            return {}
        if answer.status_code != httpx.codes.OK:
            return {}
        return {name: (component or {}).get("status") or "" for name, component in answer.json().items()}

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Any request below `/api/v2`.

        :raises httpx.HTTPStatusError: with the body in its message.
        """
        if "authorization" not in self._http.headers:
            token = self._http.get("/auth/token").raise_for_status().json()["access_token"]
            self._http.headers["authorization"] = f"Bearer {token}"
        answer = self._http.request(method, f"/api/v2{path}", **arguments)
        if answer.is_error:
            message = f"{method} {path}: {answer.status_code} {answer.text}"
            raise httpx.HTTPStatusError(message, request=answer.request, response=answer)
        return answer

    def dag_exists(self, dag_id: str) -> bool:
        """Whether the dag-processor has seen it.

        :raises AssertionError: when a DAG file could not be imported, with the reason.
        """
        errors = self.request("GET", "/importErrors").json()["import_errors"]
        assert not errors, "\n".join(f"{error['filename']}: {error['stack_trace']}" for error in errors)
        return any(dag["dag_id"] == dag_id for dag in self.request("GET", "/dags?limit=100").json()["dags"])

    def unpause(self, dag_id: str) -> None:
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def pause(self, dag_id: str) -> None:
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": True})

    def reparse(self, dag_id: str) -> None:
        """Have the dag-processor read the DAG's file soon."""
        token = self.request("GET", f"/dags/{dag_id}").json()["file_token"]
        self.request("PUT", f"/parseDagFile/{token}")

    def trigger(self, dag_id: str, *, conf: Json | None = None) -> str:
        """Request a run; return its id."""
        body = {"conf": conf or {}, "logical_date": None}
        run_id: str = self.request("POST", f"/dags/{dag_id}/dagRuns", json=body).json()["dag_run_id"]
        return run_id

    def runs(self, dag_id: str) -> list[Json]:
        """All runs of a DAG, in the order in which they were to run."""
        return self._all(f"/dags/{dag_id}/dagRuns", "dag_runs", order_by="run_after")

    def task_instances(self, dag_id: str, run_id: str) -> list[Json]:
        """Every task instance of a run, with `task_id`, `map_index`, `state`, `try_number`, `pid`, `trigger` ..."""
        return self._all(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", "task_instances", order_by="id")

    def _all(self, path: str, key: str, *, order_by: str) -> list[Json]:
        """Every item of a collection; Airflow gives at most a hundred at once."""
        items: list[Json] = []
        while page := self.request("GET", f"{path}?limit=100&offset={len(items)}&order_by={order_by}").json()[key]:
            items += page
            if len(page) < 100:
                break
        return items

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str, map_index: int) -> Any:
        """What a task pushed, or `None`."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}?map_index={map_index}"
        try:
            return self.request("GET", path).json()["value"]
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.NOT_FOUND:
                return None
            raise

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int = -1) -> str:
        """The log of one try as the user sees it, one line per record."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        query = f"?full_content=true&map_index={map_index}"
        return self.request("GET", path + query, headers={"accept": "application/x-ndjson"}).text

    def pool(self, name: str) -> Json:
        """A pool with its `occupied_slots`, `running_slots`, `queued_slots`, `deferred_slots` ..."""
        pool: Json = self.request("GET", f"/pools/{name}").json()
        return pool
