"""`airflow mail oauth`: the token gets into the connection, once, and only from the page that was opened."""

from __future__ import annotations

import datetime
import json
import re
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.mail import MailHook
from tests.cli import application
from tests.cli.application import CONN, extra
from tests.cli.conftest import Command, Said
from tests.support.processes import wait_until

TOKEN = "auth/oauth/token"


@pytest.fixture
def stored(emulator: Emulator, airflow_home: Path) -> Iterator[Callable[..., None]]:
    """The connection is there; a function that changes fields of it."""
    with application.stored(emulator) as fields:
        application.store(emulator, {**fields, "requests_per_second": 50})
        yield lambda **changed: application.store(emulator, {**fields, "requests_per_second": 50, **changed})


Visit = Callable[[str], str | None]


def approving(url: str) -> str:
    """What a person does with the consent page; returns the address that the browser is sent to."""
    return deciding(url, "approve")


def deciding(url: str, decision: str) -> str:
    page = httpx.get(url, timeout=60)
    assert page.status_code == 200, page.text
    form = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text)) | {"decision": decision}
    answer = httpx.post(str(httpx.URL(url).join("/v5/auth/oauth/authorize")), data=form, timeout=60)
    return answer.headers["location"]


def request(address: str, **headers: str) -> httpx.Response:
    """Visit an address as soon as somebody listens there."""

    def response() -> httpx.Response | None:
        with suppress(httpx.ConnectError):
            return httpx.get(address, headers=headers, trust_env=False, timeout=60)
        return None

    return wait_until(response, what="the command listens", interval=0.02)


@pytest.fixture
def login(command: Command, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs the command while a browser opens its page and comes back.

    `visit` turns the one address into the other, or into `None` if it has been there: then the command listens no more.
    """
    from airflow_provider_mail.cli import oauth

    def login(visit: Visit | None, *arguments: str) -> Said:
        opened: list[str] = []
        original = oauth.authorize_url

        def noted(*given: Any, **named: Any) -> str:
            opened.append(original(*given, **named))
            return opened[-1]

        monkeypatch.setattr(oauth, "authorize_url", noted)

        def browse() -> None:
            end = time.monotonic() + 60
            while not opened and time.monotonic() < end:
                time.sleep(0.02)
            if visit is None or not opened:
                return
            address = visit(opened[0])
            while address is not None and time.monotonic() < end:
                try:
                    httpx.get(address, trust_env=False, timeout=60)
                    return
                except httpx.ConnectError:
                    time.sleep(0.02)  # it listens in a moment

        browser = threading.Thread(target=browse)
        browser.start()
        try:
            return command("oauth", "login", "--conn-id", CONN, *arguments)
        finally:
            browser.join()

    return login


def test_the_token_is_stored_and_works(
    stored: Callable[..., None], login: Callable[..., Said], command: Command, emulator: Emulator
) -> None:
    said = login(approving)
    assert said.status == 0, said.err
    assert "is permanent" in said.out
    saved = extra()
    assert saved["auth_type"] == "oauth"
    assert saved["requests_per_second"] == 50
    assert saved["access_token"] not in said.out + said.err
    assert command("check", "-c", CONN).status == 0
    assert emulator.journal.entries("lists/get")[-1]["auth"] == "oauth"

    status = command("oauth", "status", "-c", CONN, "-o", "json").data
    obtained = datetime.datetime.fromisoformat(status.pop("obtained_at"))
    assert abs((datetime.datetime.now(datetime.UTC) - obtained).total_seconds()) < 300
    assert status == {
        "conn_id": CONN,
        "auth_type": "oauth",
        "token_stored": True,
        "expires_at": None,
        "is_permanent": True,
        "seconds_left": None,
    }
    assert re.search(r"stored +\| \d+ seconds ago +\| is permanent", command("oauth", "status", "-c", CONN).out)


def test_pasting_the_address(
    stored: Callable[..., None], command: Command, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def paste(_: str) -> str:
        (url,) = re.findall(r"http\S+", capfd.readouterr().out)
        return f" {approving(url)} "

    monkeypatch.setattr("builtins.input", paste)
    assert command("oauth", "login", "-c", CONN, "--paste").status == 0
    assert extra()["access_token"]


def forged(url: str) -> str:
    return approving(url.replace("state=", "state=x"))


def denied(url: str) -> str:
    return deciding(url, "deny")


@pytest.mark.parametrize(
    ("visit", "settings", "words"),
    [
        (denied, {}, "access was not granted (access_denied)"),
        (denied, {"oauth_denial": "redirect_bare"}, "the redirect has no code"),
    ],
)
def test_nothing_is_stored(
    stored: Callable[..., None],
    login: Callable[..., Said],
    emulator: Emulator,
    visit: Visit,
    settings: dict[str, Any],
    words: str,
) -> None:
    emulator.change_settings(**settings)
    said = login(visit)
    assert said.status == 1
    assert words in said.err
    assert emulator.journal.count(TOKEN) == 0
    assert "access_token" not in extra()


def test_a_code_without_state_can_be_used_in_a_second_run(
    stored: Callable[..., None], login: Callable[..., Said], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.change_settings(oauth_echo_state=False)
    addresses: list[str] = []

    def remembering(url: str) -> str:
        addresses.append(approving(url))
        return addresses[-1]

    said = login(remembering)
    assert said.status == 1
    assert "Its code was not used" in said.err
    assert "--paste --allow-missing-state" in said.err
    assert emulator.journal.count(TOKEN) == 0
    assert "access_token" not in extra()

    monkeypatch.setattr("builtins.input", lambda _: addresses[0])
    said = login(None, "--paste", "--allow-missing-state")
    assert said.status == 0
    assert "did not return the state" in said.err
    assert extra()["access_token"]


@pytest.mark.parametrize(("answer", "used"), [("y", 1), ("", 0), ("n", 0)])
def test_a_missing_state_is_asked_about_before_the_code_is_used(
    stored: Callable[..., None],
    login: Callable[..., Said],
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    used: int,
) -> None:
    emulator.change_settings(oauth_echo_state=False)
    used_before: list[int] = []

    def asked(_: str) -> str:
        used_before.append(emulator.journal.count(TOKEN))
        return answer

    monkeypatch.setattr("builtins.input", asked)
    said = login(approving)
    assert used_before == [0]
    assert (said.status, emulator.journal.count(TOKEN)) == (1 - used, used)
    assert ("access_token" in extra()) == bool(used)


@pytest.mark.parametrize("arguments", [(), ("--allow-missing-state",)])
def test_other_requests_do_not_end_the_login(
    stored: Callable[..., None], login: Callable[..., Said], arguments: tuple[str, ...]
) -> None:
    statuses: list[int] = []

    def after_others(url: str) -> None:
        address = approving(url)
        callback = address.partition("?")[0]
        queries = ("", "?", "?x=1", "?code=", "?code=forged&state=x", "?error=forged&state=x", "?state=x")
        statuses.extend(request(callback + query).status_code for query in queries)
        request(address)

    said = login(after_others, *arguments)
    assert said.status == 0, said.err
    assert statuses == [400] * 7
    assert extra()["access_token"]


def test_a_pasted_redirect_of_another_login(
    stored: Callable[..., None], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: "http://127.0.0.1/callback?code=c&state=x")
    said = command("oauth", "login", "-c", CONN, "--paste", "--allow-missing-state")
    assert said.status == 1
    assert "does not belong to this login" in said.err


def test_a_name_that_leads_here_is_not_answered(
    stored: Callable[..., None], login: Callable[..., Said], emulator: Emulator
) -> None:
    answers: list[httpx.Response] = []

    def rebound(url: str) -> None:
        address = approving(url)
        target = httpx.URL(address)
        answers.append(request(f"{address}x", Host=f"evil.example.com:{target.port}"))
        answers.append(request(address))

    said = login(rebound)
    assert said.status == 0, said.err
    foreign, ours = answers
    assert (foreign.status_code, foreign.content) == (404, b"")
    assert ours.status_code == 200
    assert foreign.headers["cache-control"] == ours.headers["cache-control"] == "no-store"


def test_what_the_redirect_says_does_not_steer_the_terminal(
    stored: Callable[..., None], login: Callable[..., Said]
) -> None:
    def forged_denial(url: str) -> str:
        address = deciding(url, "deny").replace(
            "error=access_denied", "error=%1b%5b2Jno%0d%9b31m%e2%80%ae" + "x" * 9000
        )
        assert "%1b" in address
        return address

    said = login(forged_denial)
    assert said.status == 1
    assert "access was not granted ( [2Jno" in said.err
    assert said.err.strip().isprintable()
    assert len(said.err) < 400


def test_a_redirect_to_the_newer_loopback_address(
    stored: Callable[..., None], login: Callable[..., Said], emulator: Emulator
) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
            port = listener.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    emulator.change_settings(oauth_redirect_uri=f"http://[::1]:{port}/callback")
    stored(redirect_uri=f"http://[::1]:{port}/callback")
    said = login(approving)
    assert said.status == 0, said.err
    assert extra()["access_token"]


def test_a_code_works_once(stored: Callable[..., None], login: Callable[..., Said], emulator: Emulator) -> None:
    def spent(url: str) -> str:
        address = approving(url)
        (code,) = parse_qs(urlsplit(address).query)["code"]
        settings = emulator.settings
        exchanged = httpx.get(
            f"{emulator.base_url}/v5/{TOKEN}",
            params={
                "grant_type": "authorization_code",
                "client_id": settings.oauth_client_id,
                "client_secret": settings.oauth_client_secret,
                "code": code,
            },
            timeout=60,
        )
        assert exchanged.json()["code"] == 200
        return address

    said = login(spent)
    assert said.status == 1
    assert "code is unknown, used or expired" in said.err
    assert "access_token" not in extra()


def test_a_code_lives_five_minutes(stored: Callable[..., None], login: Callable[..., Said], emulator: Emulator) -> None:
    def slow(url: str) -> str:
        address = approving(url)
        emulator.clock.advance(minutes=5, seconds=1)
        return address

    said = login(slow)
    assert said.status == 1
    assert "expired" in said.err


def test_an_answer_that_is_lost_is_not_asked_for_again(
    stored: Callable[..., None], login: Callable[..., Said], emulator: Emulator
) -> None:
    emulator.faults.add("close_after", TOKEN)
    said = login(approving)
    assert said.status == 1
    assert emulator.journal.count(TOKEN) == 1


def test_a_connection_that_the_browser_does_not_use_holds_nothing_up(
    stored: Callable[..., None], login: Callable[..., Said]
) -> None:
    idle = []

    def with_one_to_spare(url: str) -> str:
        address = approving(url)
        target = urlsplit(address)
        end = time.monotonic() + 60
        while not idle and time.monotonic() < end:
            try:
                idle.append(socket.create_connection((target.hostname or "", target.port or 0), timeout=60))
            except ConnectionRefusedError:
                time.sleep(0.02)  # it listens in a moment
        # A command that waits for this one finds its time over when it is closed.
        over.start()
        time.sleep(0.5)
        return address

    over = threading.Timer(90, lambda: idle[0].close())
    try:
        said = login(with_one_to_spare, "--wait", "60")
    finally:
        over.cancel()
        for connection in idle:
            connection.close()
    assert said.status == 0, said.err
    assert extra()["access_token"]


def test_nobody_comes_back(stored: Callable[..., None], login: Callable[..., Said]) -> None:
    said = login(None, "--wait", "0.2")
    assert said.status == 1
    assert "no redirect within" in said.err


def test_a_port_that_is_taken(stored: Callable[..., None], command: Command, emulator: Emulator) -> None:
    target = urlsplit(emulator.settings.oauth_redirect_uri)
    with socket.create_server((target.hostname or "", target.port or 0)):
        said = command("oauth", "login", "-c", CONN)
    assert said.status == 1
    assert "redirect_uri: cannot listen" in said.err


def test_what_is_missing_is_named_before_anything_is_opened(stored: Callable[..., None], command: Command) -> None:
    stored(client_id=None, client_secret="")
    said = command("oauth", "login", "-c", CONN)
    assert (said.status, said.out) == (1, "")
    assert "client_id, client_secret: required" in said.err


def test_a_connection_that_is_not_in_the_database(
    command: Command,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    login: Callable[..., Said],
) -> None:
    fields = application.register(emulator)
    connection = {"conn_type": "mail", "host": emulator.base_url, "extra": fields}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN.upper()}", json.dumps(connection))
    assert "pass --token-file" in command("oauth", "login", "-c", CONN).err

    file = tmp_path / "token.json"
    said = login(approving, "--token-file", str(file))
    assert said.status == 0, said.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    fields |= json.loads(file.read_text())
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN.upper()}", json.dumps(connection | {"extra": fields}))
    assert command("check", "-c", CONN).status == 0
    assert "exists" in command("oauth", "login", "-c", CONN, "--token-file", str(file)).err


@pytest.mark.parametrize(("left", "words"), [(299, "expires in 29"), (-5, "has expired")])
def test_the_hook_warns_before_the_token_ends(
    stored: Callable[..., None],
    emulator: Emulator,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    left: int,
    words: str,
) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=left)
    stored(auth_type="oauth", access_token=emulator.issue_token(), oauth_expires_at=ends.isoformat())
    assert MailHook(CONN).config.auth_type == "oauth"
    logged = "".join(capfd.readouterr())
    assert words in logged
    assert f"airflow mail oauth login --conn-id {CONN}" in logged


def test_the_hook_does_not_warn_of_a_long_life(
    stored: Callable[..., None],
    emulator: Emulator,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=3)
    stored(auth_type="oauth", access_token=emulator.issue_token(), oauth_expires_at=ends.isoformat())
    assert MailHook(CONN).config.auth_type == "oauth"
    assert "oauth login" not in "".join(capfd.readouterr())
    status = command("oauth", "status", "-c", CONN, "-o", "json").data
    assert status["expires_at"] == ends.isoformat()
    assert status["seconds_left"] == pytest.approx(3 * 3600, abs=120)
    assert "is valid for another 3 hours" in command("oauth", "status", "-c", CONN).out
