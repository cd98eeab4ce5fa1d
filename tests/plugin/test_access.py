"""Every page asks Airflow who looks, and shows nothing to others; a warehouse that hangs takes a few threads alone."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from airflow_provider_mail._config import OPTIONS
from airflow_provider_mail.plugin import MailPlugin, reader
from airflow_provider_mail.plugin.reader import (
    MAX_THREADS,
    PLACES,
    SECONDS,
    NoAnswer,
    Places,
    kept_for,
    public_message,
)
from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS
from airflow_provider_mail.warehouse.database import hook_of
from airflow_provider_mail.warehouse.errors import WarehouseError
from tests.plugin.conftest import BASE_PATH, PATIENCE, Page, Visitor
from tests.support.clock import StillClock
from tests.support.env import ROOT
from tests.support.processes import end_of_database_threads
from tests.warehouse.conftest import Warehouse

pytestmark = pytest.mark.not_unit


def test_only_who_may_look_sees_something(server: TestClient, filled: Warehouse) -> None:
    """On every route, none of which is without a guard."""
    from airflow_provider_mail.plugin.app import app

    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(routes) == len(app.routes), "a mount would have no guard"
    for path in ["campaigns?csv=campaigns", *(route.path.lstrip("/") for route in routes)]:
        for method, status in (("GET", 401), ("HEAD", 405), ("POST", 405)):
            response = server.request(method, f"{BASE_PATH}/mail/{path}")
            assert (response.status_code, "week-" in response.text) == (status, False), path
        assert "week-" not in Visitor(server, role=None).get(path, status=403)
    assert "week-" in Visitor(server, role="viewer").get("campaigns")
    text = Visitor(server, role="").get("", status=401)
    assert f'href="{BASE_PATH}/api/v2/auth/login?next=%2Fteam%2Fairflow%2Fmail%2F"' in text


@pytest.mark.parametrize(("permitted", "status"), [("PLUGINS", 200), ("DOCS", 403)])
def test_it_needs_the_permission_to_view_plugins(
    visitor: Visitor, empty: Warehouse, monkeypatch: pytest.MonkeyPatch, permitted: str, status: int
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    def is_authorized_view(*, access_view: Any, user: Any) -> bool:
        return bool(access_view.value == permitted)

    monkeypatch.setattr(get_auth_manager(), "is_authorized_view", is_authorized_view)
    visitor.get("", status=status)


def test_who_is_not_logged_in_sees_a_styled_page(server: TestClient, empty: Warehouse) -> None:
    """It has style and script in itself, which its policy allows by their digests, and leads back to the view."""
    for role, status in (("", 401), (None, 403)):
        response = Visitor(server, role).response("campaigns", q="spring & sale", sort="open_rate")
        assert response.status_code == status
        policy = response.headers["content-security-policy"]
        for tag in ("style", "script"):
            (text,) = re.findall(rf"<{tag}>(.+?)</{tag}>", response.text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}';" in policy
        (link,) = Page(response.text).links()
        back = parse_qs(urlsplit(link).query)["next"][0]
        assert back == f"{BASE_PATH}/mail/campaigns?q=spring+%26+sale&sort=open_rate"


def test_a_token_that_is_none(server: TestClient, empty: Warehouse) -> None:
    visitor = Visitor(server)
    visitor.get("")
    whole = visitor.cookies["_token"]
    for wrong in ("x", whole[:-4], f"{whole}x", whole.rpartition(".")[0] + "."):
        visitor.cookies = {"_token": wrong}
        visitor.get("", status=403)
    headers = {"authorization": f"Bearer {whole}"}
    assert server.get(f"{BASE_PATH}/mail/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        (None, ["page_conn_id: connection"]),
        ("mail://:secret-key@x", ["not a database"]),
        (
            "postgres://planted-user:secret-key@127.0.0.1:1/x",
            ["cannot connect", "(host 127.0.0.1, port 1)", "ask your engineers"],
        ),
        ("sqlite:///x", ["a b"]),
    ],
)
def test_the_page_says_what_is_wrong_with_the_database(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, connection: str | None, words: list[str]
) -> None:
    if connection:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", connection)
    if words == ["a b"]:
        monkeypatch.setenv("AIRFLOW__MAIL__PAGE_CAMPAIGN_STATS_TABLE", "a b")
    text = visitor.get("", status=503)
    assert [word for word in words if word not in text] == []
    assert "secret-key" not in text


@pytest.mark.parametrize("kind", ["psycopg3", "mysql"])
def test_errors_show_where_but_not_as_whom(
    visitor: Visitor, make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The server itself names the user whom it rejects."""
    warehouse = make_warehouse(kind)
    stored = warehouse.hook.get_connection("warehouse")
    wrong = {"conn_type": stored.conn_type, "host": stored.host, "port": stored.port, "schema": stored.schema}
    wrong |= {"login": "planted-user", "password": "planted-key", "extra": stored.extra}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(wrong))
    monkeypatch.setenv("AIRFLOW_CONN_INBOX", json.dumps(wrong))
    texts = [visitor.get("", status=503)]
    if kind == "psycopg3":  # as an inbox may be
        monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "inbox")
        make_warehouse("sqlite")
        texts.append(visitor.get("events"))
    for text in texts:
        assert f"host {stored.host}" in text
        assert "***" in text
        assert "planted" not in text


def test_no_error_has_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a driver or a server writes: quoted, bare, in a URI. The user is masked where it is quoted."""
    uri = "postgres://warehouse:p%40ss+word%2F1@db.example:5432/warehouse"
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", uri)
    hook = hook_of("warehouse")
    for message in ("rejected 'p@ss+word/1'", "password=p@ss+word/1 sslmode", "//warehouse:p%40ss%2Bword%2F1@db"):
        text = public_message(message, hook)
        assert "***" in text
        assert not re.search(r"p(@|%40)ss", text)
    assert public_message("user 'warehouse', database warehouse", hook).startswith("user ***, database warehouse (")


@pytest.mark.skipif(not AIRFLOW_V_3_3_PLUS, reason="its auth managers know teams")
@pytest.mark.parametrize(("of_user", "status"), [({"red", "blue"}, 200), ({"red"}, 403), (None, 403)])
def test_of_several_teams_of_airflow_only_a_user_of_all_sees_it(
    visitor: Visitor, filled: Warehouse, monkeypatch: pytest.MonkeyPatch, of_user: set[str] | None, status: int
) -> None:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.models.team import Team
    from airflow.utils.session import create_session

    def is_authorized_team(*, method: str, user: Any, details: Any) -> bool:
        if of_user is None:
            raise NotImplementedError
        return details.name in of_user

    monkeypatch.setattr(get_auth_manager(), "is_authorized_team", is_authorized_team)
    with create_session() as session:
        session.query(Team).delete()
        session.add_all([Team(name="red"), Team(name="blue")])
    visitor.get("campaigns")
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    text = visitor.get("campaigns", status=status)
    assert ("week-" in text, "several teams" in text) == (status == 200, status == 403)


def test_only_airflow_shows_it_in_a_frame(visitor: Visitor, filled: Warehouse) -> None:
    """Whatever the response is."""
    for path, status in (
        ("", 200),
        ("campaign?account=x&name=x", 404),
        ("campaigns?page=0", 400),
    ):
        response = visitor.response(path)
        assert response.status_code == status
        policy = [each.strip() for each in response.headers["content-security-policy"].split(";")]
        assert {"default-src 'none'", "form-action 'self'", "base-uri 'none'"} <= set(policy)
        assert "unsafe" not in str(policy)
        assert [each for each in policy if each.startswith("frame-ancestors")] == ["frame-ancestors 'self'"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"


def test_a_nul_is_no_text(visitor: Visitor, filled: Warehouse) -> None:
    for name in ("q", "list", "state", "account", "sort"):
        text = visitor.get("campaigns", status=400, **{name: "week\0"})
        assert f"This value in the address is not possible: {name}." in text
    visitor.get("campaign", status=400, account="\0", name="week-6")
    visitor.get("campaign", status=400, account="mail_default", name="week-6\0")
    visitor.get("campaign", status=400, account="mail_default", name="week-6", team="\0")
    visitor.get("campaign", status=400, account="mail_default", name="week-6", guid="\0")
    visitor.get("transactional", status=400, account="\0")
    visitor.get("compare", status=400, c="mail_default week\0")


def test_the_plugin_has_what_is_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = entry_points(group="airflow.plugins", name="mail")
    assert entry.load() is MailPlugin
    assert (MailPlugin().fastapi_apps, MailPlugin().external_views) == ([], [])
    monkeypatch.setenv("AIRFLOW__MAIL__PAGE_CONN_ID", "warehouse")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"http://airflow.example{BASE_PATH}/")
    assert [each["url_prefix"] for each in MailPlugin().fastapi_apps] == ["/mail"]
    (view,) = MailPlugin().external_views
    assert view["href"] == f"{BASE_PATH}/mail/"


@pytest.mark.parametrize(("page", "prefixes"), [("page.md", ("page_",)), ("receiver.md", ("inbox_", "receive_"))])
def test_the_documentation_has_every_option(page: str, prefixes: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / page).read_text()
    for name, option in OPTIONS.items():
        if not name.startswith(prefixes):
            continue
        default = f"`{option['default']}`" if option["default"] else "empty"
        assert f"| `{name}` | {option['description'].replace('``', '`')} | {default} |\n" in text


# A warehouse that hangs takes nothing but the own few threads of the page


async def first(places: Places, function: Callable[[], str]) -> str:
    (piece,) = [piece async for piece in places.stream(lambda: iter([function()]))]
    return piece


def test_a_warehouse_that_hangs_takes_a_few_threads(still_clock: StillClock) -> None:
    before, started, go = threading.enumerate(), threading.Semaphore(0), threading.Event()

    def read() -> str:
        started.release()
        assert go.wait(PATIENCE)
        return "rows"

    async def run() -> None:
        places = Places()

        def persons() -> list[asyncio.Task[Any]]:
            return [asyncio.create_task(first(places, read)) for _ in range(PLACES)]

        async def all_read() -> None:
            for _ in range(PLACES):
                assert await asyncio.to_thread(started.acquire, True, PATIENCE)

        leaving = persons()
        await all_read()
        others = persons()
        await asyncio.sleep(0)
        assert not started.acquire(blocking=False)
        for person in leaving:
            person.cancel()
        await all_read()
        assert not any(person.done() for person in others)
        for _ in range(2 * PLACES, MAX_THREADS, PLACES):
            still_clock.move(SECONDS)
            assert {type(each) for each in await asyncio.gather(*others, return_exceptions=True)} == {NoAnswer}
            others = persons()
            await all_read()
        still_clock.move(SECONDS)
        await asyncio.gather(*others, return_exceptions=True)
        with pytest.raises(NoAnswer, match="did not answer within 20 seconds"):
            await first(places, read)
        assert not started.acquire(blocking=False)

        go.set()
        await end_of_database_threads(before)
        assert await first(places, read) == "rows"

    asyncio.run(run())


def test_a_download_takes_longer_than_a_page(still_clock: StillClock) -> None:
    """The limit is for each piece; who goes away leaves no thread, and frees the place."""
    before, ended, go = threading.enumerate(), threading.Event(), threading.Event()
    asked_for = threading.Semaphore(0)

    def slow() -> Iterator[str]:
        for number in range(5):
            assert asked_for.acquire(timeout=PATIENCE)
            still_clock.move(SECONDS - 1)
            yield str(number)

    def endless() -> Iterator[str]:
        try:
            while True:
                yield "piece"
        finally:
            ended.set()

    def hangs() -> Iterator[str]:
        yield "first"
        assert go.wait(PATIENCE)

    def breaks() -> Iterator[str]:
        yield "first"
        raise WarehouseError("lost")

    async def run() -> None:
        places = Places()
        pieces = places.stream(slow)
        for number in range(5):  # one piece after the other: two that are read ahead would take 38 seconds at once
            asked_for.release()
            assert await anext(pieces) == str(number)
        assert [piece async for piece in pieces] == []
        for _ in range(2 * PLACES):
            ended.clear()
            pieces = places.stream(endless)
            assert await anext(pieces) == "piece"
            await pieces.aclose()
            assert await asyncio.to_thread(ended.wait, PATIENCE)
        pieces = places.stream(breaks)
        assert await anext(pieces) == "first"
        with pytest.raises(WarehouseError, match="lost"):
            await anext(pieces)
        pieces = places.stream(hangs)
        assert await anext(pieces) == "first"
        waiting = asyncio.create_task(anext(pieces))
        await asyncio.sleep(0)
        still_clock.move(SECONDS)
        with pytest.raises(NoAnswer, match="did not answer within 20 seconds"):
            await waiting
        go.set()
        await end_of_database_threads(before)
        assert await first(places, lambda: "rows") == "rows"

    asyncio.run(run())


def test_a_result_is_computed_again_after_a_time(still_clock: StillClock) -> None:
    computed: list[str] = []

    @kept_for(600)
    def compute(text: str) -> int:
        computed.append(text)
        return len(computed)

    assert [compute("a"), compute("a"), compute("b")] == [1, 1, 2]
    still_clock.move(599)
    assert compute("a") == 1
    still_clock.move(1)
    assert compute("a") == 3


def test_a_result_is_computed_by_one_request_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SECONDS", 0)

    @kept_for(600)
    def compute(text: str) -> str:
        with pytest.raises(TimeoutError):  # what another thread gets meanwhile, after its time
            compute(text)
        return text

    assert compute("a") == "a"
