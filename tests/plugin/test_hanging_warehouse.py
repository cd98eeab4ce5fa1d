"""A warehouse that accepts connections and never answers: it takes nothing but the page's own few threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import re
import socket
import threading
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount

from airflow_provider_mail.plugin import app as page_app
from airflow_provider_mail.plugin import places
from airflow_provider_mail.plugin.places import MAX_THREADS, PLACES, Places
from airflow_provider_mail.warehouse import connection
from tests.plugin.conftest import forget, token

pytestmark = pytest.mark.not_unit

SECONDS = 30_000.0
"""The time limit of the page here, which only the clock of the test reaches."""

PERSONS = 60
"""More than Airflow's API server has threads for all of its routes."""


class HangingServer:
    """Accepts connections and answers nothing, until it is closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=PERSONS)
        self.port = self._listener.getsockname()[1]
        self.accepted: list[socket.socket] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self.accepted.append(accepted)
                self._changed.notify_all()

    async def has_accepted(self, count: int) -> None:
        def wait() -> None:
            with self._changed:
                self._changed.wait_for(lambda: len(self.accepted) >= count)

        await asyncio.to_thread(wait)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for accepted in self.accepted:
            accepted.close()


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test moves."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=MovableLoop) as runner:
        runner.run(test)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch, airflow_home: object) -> Iterator[HangingServer]:
    """The warehouse of the page. No time limit of a driver ends what it does: only the page itself, and the test."""
    server = HangingServer()
    warehouse = {
        "conn_type": "postgres", "host": "127.0.0.1", "port": server.port,
        "login": "planted-user", "password": "planted-key", "schema": "mail",
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(warehouse))
    monkeypatch.setenv("AIRFLOW__MAIL__PAGE_CONN_ID", "warehouse")
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 30_000)
    monkeypatch.setattr(places, "SECONDS", SECONDS)
    monkeypatch.setattr(page_app, "places", Places())
    forget()
    yield server
    server.close()


@pytest.fixture
def api_server(hanging: HangingServer) -> FastAPI:
    """All that Airflow's API server serves, with the page."""
    from airflow.api_fastapi.app import create_app

    app = create_app()
    app.router.routes.insert(0, Mount("/mail", page_app.app))
    return app


def task_token(task: str) -> str:
    """A token as an executor gives one to a task."""
    from airflow.api_fastapi.auth.tokens import JWTGenerator, get_signing_args
    from airflow.configuration import conf

    audience = conf.get_mandatory_list_value("execution_api", "jwt_audience")[0]
    signing = get_signing_args(make_secret_key_if_needed=False)
    return JWTGenerator(valid_for=600, audience=audience, issuer=None, **signing).generate({"sub": task})


def addresses(app: FastAPI) -> list[str]:
    """Every route that is read with GET, with something for its parameters; those of the page are left out."""
    found = []
    for route in app.routes:
        if isinstance(route, Mount) and isinstance(route.app, FastAPI) and route.path != "/mail":
            found += [route.path + address for address in addresses(route.app)]
        elif isinstance(route, APIRoute) and "GET" in route.methods:
            found.append(re.sub(r"\{\w+(:\w+)?\}", "1", route.path))
    return found


def person(app: Any, left: asyncio.Event) -> asyncio.Task[list[Any]]:
    """Open the page, until the person leaves; the result is what the server sent."""
    sent: list[Any] = []
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for message in messages:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def visit() -> list[Any]:
        cookie = f"_token={token('admin')}".encode()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": "/mail/", "raw_path": b"/mail/", "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"testserver"), (b"cookie", cookie)], "server": ("testserver", 80), "state": {},
        }  # fmt: skip
        await app(scope, receive, send)
        return sent

    return asyncio.create_task(visit())


def text_of(sent: list[Any]) -> str:
    return b"".join(message.get("body", b"") for message in sent).decode()


def test_every_route_of_the_api_server_answers_meanwhile(hanging: HangingServer, api_server: FastAPI) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MovableLoop)
        async with api_server.router.lifespan_context(api_server):
            persons = [person(api_server, asyncio.Event()) for _ in range(PERSONS)]
            await hanging.has_accepted(PLACES)
            transport = httpx.ASGITransport(api_server, raise_app_exceptions=False)
            headers = {"authorization": f"Bearer {token('admin')}"}
            asked = addresses(api_server)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://testserver", headers=headers, timeout=None
            ) as client:
                answers = [(await client.get(address)).status_code for address in asked]
                # The API of tasks lists its routes nowhere.
                alive = await client.get("/execution/health")
                task = str(uuid.uuid4())
                heartbeat = await client.put(
                    f"/execution/task-instances/{task}/heartbeat",
                    headers={"authorization": f"Bearer {task_token(task)}"},
                    json={"hostname": "worker", "pid": 1},
                )
            assert len(answers) > 50
            assert answers[asked.index("/api/v2/monitor/health")] == 200
            assert (alive.status_code, heartbeat.status_code) == (200, 404), "there is no such task"
            assert not any(each.done() for each in persons)
            assert len(hanging.accepted) == PLACES

            loop.ahead += SECONDS
            for sent in await asyncio.gather(*persons):
                assert sent[0]["status"] == 503
                text = text_of(sent)
                assert f"did not answer within 30000 seconds (host 127.0.0.1, port {hanging.port})" in text
                assert "Check that the database runs" in text
                assert "planted" not in text

    run(test())


def test_who_leaves_frees_a_place(hanging: HangingServer, api_server: FastAPI) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MovableLoop)
        left = asyncio.Event()
        gone = [person(api_server, left) for _ in range(PLACES)]
        await hanging.has_accepted(PLACES)
        others = [person(api_server, asyncio.Event()) for _ in range(PLACES)]
        left.set()
        await asyncio.gather(*gone)
        await hanging.has_accepted(2 * PLACES)
        assert not any(each.done() for each in others)

        # However many people come, there are no more threads than this as long as the driver does not return.
        for threads in range(3 * PLACES, MAX_THREADS + 1, PLACES):
            loop.ahead += SECONDS
            await asyncio.gather(*others)
            others = [person(api_server, asyncio.Event()) for _ in range(PLACES)]
            await hanging.has_accepted(threads)
        loop.ahead += SECONDS
        await asyncio.gather(*others)
        sent = await person(api_server, asyncio.Event())
        assert "did not answer" in text_of(sent)
        assert len(hanging.accepted) == MAX_THREADS

        hanging.close()
        readings = [each.result for each in page_app.places._readings]
        await asyncio.to_thread(concurrent.futures.wait, readings)
        assert "cannot connect to" in text_of(await person(api_server, asyncio.Event()))

    run(test())
