"""A warehouse that accepts connections and never responds holds up nothing else of the API server."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid

import httpx
import pytest
from starlette.routing import Mount

from airflow_provider_mail.plugin import app as page_app
from airflow_provider_mail.plugin import reader
from airflow_provider_mail.plugin.reader import PLACES, Places
from airflow_provider_mail.warehouse import connection
from tests.plugin.conftest import forget, token

SECONDS = 30_000.0
"""The time limit of the page and of the driver here, which only the clock of the test reaches."""

PERSONS = 60
"""More than Airflow's API server has threads for all of its routes."""


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test moves."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def task_token(task: str) -> str:
    """A token as an executor gives one to a task."""
    from airflow.api_fastapi.auth.tokens import JWTGenerator, get_signing_args
    from airflow.configuration import conf

    audience = conf.get_mandatory_list_value("execution_api", "jwt_audience")[0]
    signing = get_signing_args(make_secret_key_if_needed=False)
    return JWTGenerator(valid_for=600, audience=audience, issuer=None, **signing).generate({"sub": task})


def test_the_api_server_responds_meanwhile(monkeypatch: pytest.MonkeyPatch, airflow_home: object) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MovableLoop)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = {"authorization": f"Bearer {token('admin')}"}
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=transport, base_url="http://testserver", headers=headers, timeout=None
            ) as client,
        ):
            persons = [asyncio.create_task(client.get("/mail/")) for _ in range(PERSONS)]
            accepted = [await asyncio.to_thread(warehouse.accept) for _ in range(PLACES)]
            for address in ("/api/v2/monitor/health", "/api/v2/version", "/api/v2/dags", "/execution/health"):
                assert (await client.get(address)).status_code == 200, address
            task = str(uuid.uuid4())
            heartbeat = await client.put(
                f"/execution/task-instances/{task}/heartbeat",
                headers={"authorization": f"Bearer {task_token(task)}"},
                json={"hostname": "worker", "pid": 1},
            )
            assert heartbeat.status_code == 404, "there is no such task"
            assert not any(person.done() for person in persons)
            warehouse.setblocking(False)
            with pytest.raises(BlockingIOError):
                warehouse.accept()

            loop.ahead += SECONDS
            for response in await asyncio.gather(*persons):
                assert response.status_code == 503
                assert f"did not answer within 30000 seconds (host 127.0.0.1, port {port})" in response.text
                assert "Check that the database runs" in response.text
                assert "planted" not in response.text
        for each, _ in accepted:
            each.close()

    with socket.create_server(("127.0.0.1", 0), backlog=PERSONS) as warehouse:
        port = warehouse.getsockname()[1]
        secrets = {"login": "planted-user", "password": "planted-key"}
        fields = {"conn_type": "postgres", "host": "127.0.0.1", "port": port, "schema": "mail", **secrets}
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(fields))
        monkeypatch.setenv("AIRFLOW__MAIL__PAGE_CONN_ID", "warehouse")
        monkeypatch.setattr(connection, "CONNECT_SECONDS", int(SECONDS))
        monkeypatch.setattr(reader, "SECONDS", SECONDS)
        monkeypatch.setattr(page_app, "places", Places())
        forget()
        from airflow.api_fastapi.app import create_app

        app = create_app()
        app.router.routes.insert(0, Mount("/mail", page_app.app))
        with asyncio.Runner(loop_factory=MovableLoop) as runner:
            runner.run(test())
