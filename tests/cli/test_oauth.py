"""`airflow mail oauth`: the token gets into the connection, once, and only from the page that was opened."""

from __future__ import annotations

import datetime
import json
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator
from tests.cli import application
from tests.cli.application import CONN, extra
from tests.cli.conftest import Command, Said
from tests.support.clock import StillClock

TOKEN, SECRETS = "auth/oauth/token", ("client_id", "client_secret")

Login = Callable[..., Said]
Visit = Callable[[str], str]
"""What a person does with the address of the consent page; returns the address that the browser is sent to."""


@pytest.fixture
def stored(emulator: Emulator, airflow_home: Path) -> Iterator[Callable[..., None]]:
    """The connection is there; a function that changes fields of it."""
    with application.stored(emulator) as fields:

        def store(**changed: Any) -> None:
            application.store(emulator, {**fields, "requests_per_second": 50, **changed})

        store()
        yield store


def printed_address(capfd: pytest.CaptureFixture[str]) -> str:
    (url,) = re.findall(r"http\S+/authorize\S+", capfd.readouterr().out)
    return url


@pytest.fixture
def paste(command: Command, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Login:
    """Runs the command; a person pastes the address of the redirect, and replies to a question."""

    def login(visit: Visit, *arguments: str, reply: Callable[[], str] = lambda: "") -> Said:
        def respond(prompt: str) -> str:
            return f" {visit(printed_address(capfd))} " if prompt.startswith("Paste") else reply()

        monkeypatch.setattr("builtins.input", respond)
        return command("oauth", "login", "--conn-id", CONN, "--paste", *arguments)

    return login


@pytest.fixture
def redirect(command: Command, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Login:
    """Runs the command; as soon as it listens, a browser visits something."""

    def login(visit: Callable[[str], object], *arguments: str) -> Said:
        browsers: list[threading.Thread] = []
        activate = ThreadingHTTPServer.server_activate

        def activate_and_visit(server: ThreadingHTTPServer) -> None:
            activate(server)
            browsers.append(threading.Thread(target=visit, args=[printed_address(capfd)]))
            browsers[0].start()

        with monkeypatch.context() as patch:
            patch.setattr(ThreadingHTTPServer, "server_activate", activate_and_visit)
            said = command("oauth", "login", "--conn-id", CONN, *arguments)
        browsers[0].join()
        return said

    return login


# `verify`: no certificates are read, which takes longer than a request.
def deciding(url: str, decision: str) -> str:
    page = httpx.get(url, timeout=60, verify=False)
    assert page.status_code == 200, page.text
    form = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text)) | {"decision": decision}
    response = httpx.post(str(httpx.URL(url).join("/v5/auth/oauth/authorize")), data=form, timeout=60, verify=False)
    return response.headers["location"]


def approving(url: str, *_: object) -> str:
    return deciding(url, "approve")


def denied(url: str, *_: object) -> str:
    return deciding(url, "deny")


def forged(url: str, *_: object) -> str:
    return approving(re.sub("state=[^&]*", "state=x", url))


def after_five_minutes(url: str, emulator: Emulator) -> str:
    address = approving(url)
    emulator.clock.advance(minutes=5, seconds=1)
    return address


def without_a_response(url: str, emulator: Emulator) -> str:
    emulator.faults.add("close_after", TOKEN)
    return approving(url)


def request(address: str, **headers: str) -> httpx.Response:
    return httpx.get(address, headers=headers, trust_env=False, timeout=60, verify=False)


def test_the_token_is_stored_and_works(
    stored: Callable[..., None], redirect: Login, command: Command, emulator: Emulator
) -> None:
    said = redirect(lambda url: request(approving(url)))
    assert said.status == 0, said.err
    assert "is permanent" in said.out
    saved = extra()
    assert (saved["auth_type"], saved["requests_per_second"]) == ("oauth", 50)
    assert saved["access_token"] not in said.out + said.err
    assert command("check", "-c", CONN).status == 0
    assert emulator.journal.entries("lists/get")[-1]["auth"] == "oauth"
    status = command("oauth", "status", "-c", CONN, "-o", "json").data
    obtained = datetime.datetime.fromisoformat(status.pop("obtained_at"))
    assert abs((datetime.datetime.now(datetime.UTC) - obtained).total_seconds()) < 300
    assert status == {
        "conn_id": CONN, "auth_type": "oauth", "token_stored": True, "expires_at": None, "is_permanent": True,
        "seconds_left": None,
    }  # fmt: skip
    assert re.search(r"stored +\| \d+ seconds ago +\| is permanent", command("oauth", "status", "-c", CONN).out)


def spent(url: str, *_: object) -> str:
    address, base = approving(url), urlsplit(url)
    code = parse_qs(urlsplit(address).query)["code"][0]
    query = {"grant_type": "authorization_code", "code": code, **{name: extra()[name] for name in SECRETS}}
    exchanged = httpx.get(f"{base.scheme}://{base.netloc}/v5/{TOKEN}", params=query, timeout=60, verify=False)
    assert exchanged.json()["code"] == 200
    return address


def steering(url: str, *_: object) -> str:
    address = denied(url).replace("error=access_denied", "error=%1b%5b2Jno%0d%9b31m%e2%80%ae" + "x" * 9000)
    assert "%1b" in address
    return address


@pytest.mark.parametrize(
    ("visit", "settings", "words", "used"),
    [
        (denied, {}, "access was not granted (access_denied)", 0),
        (denied, {"oauth_denial": "redirect_bare"}, "the redirect has no code", 0),
        (steering, {}, "access was not granted ( [2Jno", 0),
        (forged, {}, "does not belong to this login", 0),
        (spent, {}, "code is unknown, used or expired", 2),
        (approving, {"oauth_echo_state": False}, "Its code was not used", 0),
        (after_five_minutes, {}, "expired", 1),
        (without_a_response, {}, "", 1),
    ],
)
def test_nothing_is_stored(
    stored: Callable[..., None], paste: Login, emulator: Emulator, visit: Any, settings: dict[str, Any], words: str,
    used: int,
) -> None:  # fmt: skip
    emulator.change_settings(**settings)
    said = paste(lambda url: visit(url, emulator))
    assert said.status == 1
    assert words in said.err
    assert said.err.replace("\n", "").isprintable()
    assert len(said.err) < 700
    assert emulator.journal.count(TOKEN) == used, "a code is used once, whatever the response"
    assert "access_token" not in extra()


def test_a_redirect_without_state_is_used_if_a_person_says_so(
    stored: Callable[..., None], paste: Login, emulator: Emulator
) -> None:
    emulator.change_settings(oauth_echo_state=False)
    addresses: list[str] = []
    for reply in ("", "n"):
        said = paste(lambda url: addresses.append(approving(url)) or addresses[-1], reply=lambda reply=reply: reply)
        assert (said.status, emulator.journal.count(TOKEN), "access_token" in extra()) == (1, 0, False)
    assert "--paste --allow-missing-state" in said.err
    said = paste(lambda _: addresses[-1], "--allow-missing-state")
    assert (said.status, emulator.journal.count(TOKEN), "access_token" in extra()) == (0, 1, True)
    assert "did not return the state" in said.err
    said = paste(lambda url: f"{approving(url)}&state=x", "--allow-missing-state")
    assert (said.status, "does not belong to this login" in said.err) == (1, True)
    counts: list[int] = []
    assert paste(approving, reply=lambda: counts.append(emulator.journal.count(TOKEN)) or "y").status == 0
    assert (counts, emulator.journal.count(TOKEN)) == ([1], 2), "a person replies before the code is used"


@pytest.mark.parametrize("arguments", [(), ("--allow-missing-state",)])
def test_other_requests_do_not_end_the_login(stored: Callable[..., None], redirect: Login, arguments: Any) -> None:
    responses: list[httpx.Response] = []

    def visit(url: str) -> None:
        target = urlsplit(address := approving(url))
        queries = ("", "?", "?x=1", "?code=", "?code=forged&state=x", "?error=forged&state=x", "?state=x")
        responses.extend(request(address.partition("?")[0] + query) for query in queries)
        # A name of others that leads here.
        responses.append(request(address, Host=f"evil.example.com:{target.port}"))
        with socket.create_connection((target.hostname or "", target.port or 0)):  # as browsers do
            responses.append(request(address))

    said = redirect(visit, *arguments)
    assert (said.status, "access_token" in extra()) == (0, True), said.err
    assert [response.status_code for response in responses] == [400] * 7 + [404, 200]
    assert responses[-2].content == b""
    assert {response.headers["cache-control"] for response in responses} == {"no-store"}


def test_the_command_does_not_wait_for_ever(
    stored: Callable[..., None], redirect: Login, command: Command, emulator: Emulator, still_clock: StillClock
) -> None:
    def visit(url: str) -> None:
        request(f"{emulator.settings.oauth_redirect_uri}?state=x")
        still_clock.move(3600)

    said = redirect(visit)
    assert said.status == 1
    assert "no redirect within 300 s; 1 requests for redirect_uri did not belong to this login" in said.err
    target = urlsplit(emulator.settings.oauth_redirect_uri)
    with socket.create_server((target.hostname or "", target.port or 0)):
        assert "redirect_uri: cannot listen" in command("oauth", "login", "-c", CONN).err
    stored(client_id=None, client_secret="")
    said = command("oauth", "login", "-c", CONN)
    assert (said.status, said.out) == (1, "")
    assert "client_id, client_secret: required" in said.err


def test_a_connection_of_the_environment_needs_a_file(
    command: Command, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, paste: Login
) -> None:
    fields = application.register(emulator, 8765)
    connection = {"conn_type": "mail", "host": emulator.base_url, "extra": fields}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN.upper()}", json.dumps(connection))
    assert "pass --token-file" in command("oauth", "login", "-c", CONN).err
    file = tmp_path / "token.json"
    said = paste(approving, "--token-file", str(file))
    assert said.status == 0, said.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    fields |= json.loads(file.read_text())
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN.upper()}", json.dumps(connection | {"extra": fields}))
    assert command("check", "-c", CONN).status == 0
    assert "exists" in command("oauth", "login", "-c", CONN, "--token-file", str(file)).err


@pytest.mark.parametrize(
    ("left", "warning", "life"),
    [
        (299, "expires in 2", "is valid for another"),
        (-5, "has expired", "expired"),
        (3 * 3600, "", "is valid for another 3 hours"),
    ],
)
def test_the_hook_warns_before_the_token_ends(
    stored: Callable[..., None], emulator: Emulator, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    still_clock: StillClock, command: Command, left: int, warning: str, life: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=left)
    stored(auth_type="oauth", access_token=emulator.issue_token(), oauth_expires_at=ends.isoformat())
    assert MailHook(CONN).config.auth_type == "oauth"
    logged = "".join(capfd.readouterr())
    assert warning in logged
    assert (f"airflow mail oauth login --conn-id {CONN}" in logged) == bool(warning)
    status = command("oauth", "status", "-c", CONN, "-o", "json").data
    assert (status["expires_at"], status["seconds_left"]) == (ends.isoformat(), pytest.approx(left, abs=120))
    assert life in command("oauth", "status", "-c", CONN).out
