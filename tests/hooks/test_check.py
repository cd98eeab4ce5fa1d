"""What the test button says: whether the connection works, and otherwise what is wrong and which field to fix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailConnectError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator, EmulatorSettings
from tests.api.wire import closed_port
from tests.hooks.conftest import API_KEY
from tests.hooks.test_connection_page import explained
from tests.hooks.wire import Authority

MakeHook = Callable[..., MailHook]


def test_it_works(make_hook: MakeHook, hook: MailHook, emulator: Emulator) -> None:
    emulator.add_list("newsletter")
    emulator.add_list("customers")
    message = f"{emulator.base_url} accepts the {{}}; contact lists there: 2."
    assert hook.test_connection() == (True, message.format("password (API key)"))
    (entry,) = emulator.journal.entries()
    assert (entry["operation"], entry["body"]) == ("/v5/lists/get", {"pageSize": 1})
    extra = {"auth_type": "oauth", "access_token": emulator.issue_token(), "sandbox": True}
    sandbox = " The connection is in sandbox mode: no mail is sent and nothing is changed."
    works = make_hook(host=emulator.base_url, extra=extra).test_connection()
    assert works == (True, message.format("access_token (OAuth access token)") + sandbox)
    # Linux takes this address for this machine, and we for any.
    host = emulator.base_url.replace("127.0.0.1", "0.0.0.0")
    works, said = make_hook(host=host, password=emulator.api_key).test_connection()
    assert (works, explained(said), f"Warning: host (base URL): {host} is not encrypted" in said) == (True, True, True)


@pytest.fixture
def places(emulator: Emulator, tmp_path: Path, no_such_host: str) -> Iterator[dict[str, str]]:
    """What a connection may name instead of the service."""
    secure = Emulator(EmulatorSettings(tls_certificate=str(Authority(tmp_path).issue())))
    with secure, closed_port() as port:
        yield {
            "service": emulator.base_url.partition("://")[2],
            "secure": secure.base_url.partition("://")[2],
            "closed": f"127.0.0.1:{port}",
            "unknown": no_such_host,
        }


API = {"host": "https://api.example.com"}
PROXIED = "https://api.example.com cannot be reached through the proxy"


def proxied(url: str) -> dict[str, Any]:
    return {**API, "extra": {"proxy": url}}


CONFIGURED = {"auth_type": "oauth", "access_token": API_KEY}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": "api .example.com"}, "host (base URL): must be a URL such as https://api.example.com"),
        ({"host": "https://{unknown}"}, "HOST cannot be reached: no such host; check host (base URL). (...)"),
        ({"host": "http://{closed}"}, "HOST cannot be reached: nothing listens there; check host (base URL) and..."),
        ({"host": "https://{service}"}, "HOST cannot be reached: the server does not use TLS; is it http://..."),
        ({"host": "https://{secure}"}, "HOST: the service's certificate is not trusted: ... Set ca_bundle on the..."),
        ({"host": "http://{secure}", "extra": {"timeout": 10}}, "HOST disconnects or is silent for 10 s..."),
        (proxied("http://{closed}"), f"{PROXIED} http://{{closed}}: nothing listens at the proxy's address; check..."),
        ({"host": "http://{service}"}, "HOST rejects the password (API key): missing or invalid ApiKey. Check it..."),
        ({"host": "http://{service}", "extra": CONFIGURED}, "HOST rejects the access_token (OAuth access token)..."),
    ],
)  # fmt: skip
def test_what_to_fix(
    make_hook: MakeHook, places: dict[str, str], fields: dict[str, Any], message: str, emulator: Emulator
) -> None:
    def filled(text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda name: places[name[1]], text)

    connection = json.loads(filled(json.dumps({"password": API_KEY, **fields})))
    works, said = make_hook(**connection).test_connection()
    expected = filled(message).replace("HOST", connection["host"])
    assert not works
    assert re.fullmatch(".*".join(map(re.escape, expected.split("..."))), said, re.DOTALL), said
    assert API_KEY not in said
    assert explained(said) or said.startswith("host (base URL): ")
    assert emulator.journal.count() == ("rejects the" in message)


def test_a_proxy_of_the_environment_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, make_hook: MakeHook, places: dict[str, str]
) -> None:
    address = places["closed"]
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://ada:lovelace@{address}")
    _, message = make_hook(**API, password=API_KEY).test_connection()
    assert f"through the proxy http://{address}: nothing listens at the proxy's address; check HTTPS_PROXY" in message
    assert "lovelace" not in message


def test_errors_of_the_hook_say_the_same(make_hook: MakeHook, places: dict[str, str], clock: object) -> None:
    hook = make_hook(host=places["closed"], password=API_KEY)
    _, message = hook.test_connection()
    with pytest.raises(MailConnectError) as raised:
        hook.send(GetLists())
    assert str(raised.value) == f"/v5/lists/get: {message}"


@pytest.mark.parametrize(
    ("host", "is_warned"),
    [
        ("http://mail.example.com", True), ("http://10.0.0.7:8025", True), ("https://mail.example.com", False),
        ("http://127.0.0.1:8025", False), ("http://localhost:8025", False), ("http://[::1]:8025", False),
    ],
)  # fmt: skip
def test_the_log_warns_of_a_key_in_clear(
    make_hook: MakeHook, capfd: pytest.CaptureFixture[str], host: str, is_warned: bool
) -> None:
    assert make_hook(host=host, password=API_KEY).config.base_url == host
    warning = f"host (base URL): {host} is not encrypted, so others can read the password (API key)"
    assert (warning in "".join(capfd.readouterr())) is is_warned


@pytest.mark.parametrize(
    ("fault", "params", "message"),
    [
        ("html_before", {}, " does not respond as the service does: HTTP 200 with no JSON object"),
        ("no_code", {}, " does not respond as the service does: HTTP 200 with an object without a whole-number code"),
        ("http_error_before", {"status": 503}, " has an internal error (HTTP 503: the service failed); try again"),
        ("too_many_requests", {}, " received too many requests; try again later."),
        ("redirect", {}, ": the response is a redirect (HTTP 307), which is not followed: set the"),
        # The connection's time-out is 30 s; the button's is shorter.
        ("close_before", {}, " disconnects or is silent for 10 s; check host (base URL), port and timeout."),
        # The specification does not show what follows a wrong API key.
        ("code_before", {"code": 403, "message": "no"}, " rejects the request (code 403: rejected: no); check host"),
    ],
)
def test_other_responses(hook: MailHook, emulator: Emulator, fault: str, params: dict[str, Any], message: str) -> None:
    emulator.faults.add(fault, **params, count=None)
    works, said = hook.test_connection()
    assert not works
    assert said.startswith(emulator.base_url + message)
    assert explained(said)
    assert emulator.journal.count() == 1, "the button tries once"
