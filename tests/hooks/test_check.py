"""What the test button says: whether the connection works, and otherwise what is wrong and which field to mend."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.models import Connection

from airflow_provider_mail.api._core.advice import clear_text_warning
from airflow_provider_mail.api.config import RetryRule
from airflow_provider_mail.api.errors import MailConnectError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from airflow_provider_mail.hooks import connection_check
from airflow_provider_mail.hooks.mail import MailHook
from tests.hooks.conftest import API_KEY
from tests.hooks.wire import Authority, Proxy, silent_server
from tests.support.processes import free_port

MakeHook = Callable[..., MailHook]


def say(make_hook: MakeHook, **fields: Any) -> str:
    """The words of a test that fails."""
    works, words = make_hook(**fields).test_connection()
    assert not works
    assert str(fields.get("password")) not in words
    return words


def test_it_works(hook: MailHook, emulator: Emulator) -> None:
    emulator.add_list("newsletter")
    emulator.add_list("customers")

    assert hook.test_connection() == (
        True,
        f"{emulator.base_url} accepts the password (API key); contact lists there: 2.",
    )
    (entry,) = emulator.journal.entries()
    assert (entry["operation"], entry["body"]) == ("/v5/lists/get", {"pageSize": 1})


def test_it_works_with_a_token_in_sandbox_mode(make_hook: MakeHook, emulator: Emulator) -> None:
    extra = {"auth_type": "oauth", "access_token": emulator.issue_token(), "sandbox": True}

    assert make_hook(host=emulator.base_url, extra=extra).test_connection() == (
        True,
        f"{emulator.base_url} accepts the access_token (OAuth access token); contact lists there: 0. "
        "The connection is in sandbox mode: no mail is sent and nothing is changed.",
    )


def test_no_such_host(make_hook: MakeHook, no_such_host: str) -> None:
    words = say(make_hook, host=f"https://{no_such_host}", password=API_KEY)
    assert words.startswith(f"https://{no_such_host} cannot be reached: no such host; check host (base URL). (")


def test_nothing_listens(make_hook: MakeHook) -> None:
    host = f"http://127.0.0.1:{free_port()}"
    words = say(make_hook, host=host, password=API_KEY)
    assert words.startswith(f"{host} cannot be reached: nothing listens there; check host (base URL) and port. (")


def test_no_tls_where_tls_is_expected(make_hook: MakeHook, emulator: Emulator) -> None:
    host = emulator.base_url.replace("http://", "https://")
    words = say(make_hook, host=host, password=emulator.api_key)
    assert words.startswith(f"{host} cannot be reached: the server does not use TLS; is it http:// instead of https://")


def test_tls_where_none_is_expected(make_hook: MakeHook, tmp_path: Path) -> None:
    settings = EmulatorSettings(tls_certificate=str(Authority(tmp_path).issue()))
    with Emulator(settings) as secure:
        host = secure.base_url.replace("https://", "http://")
        words = say(make_hook, host=host, password=secure.api_key, extra={"timeout": 2})
    assert words == f"{host} disconnects or is silent for 2 s; check host (base URL), port and timeout."


def test_a_certificate_that_is_not_trusted(make_hook: MakeHook, tmp_path: Path) -> None:
    settings = EmulatorSettings(tls_certificate=str(Authority(tmp_path).issue()))
    with Emulator(settings) as secure:
        words = say(make_hook, host=secure.base_url, password=secure.api_key)
        assert words.startswith(f"{secure.base_url}: the service's certificate is not trusted: ")
        assert words.endswith("Set ca_bundle on the connection if the certificate is your own")


def test_the_proxy_does_not_let_it_through(make_hook: MakeHook) -> None:
    host = "https://api.example.com"
    with Proxy(refuses=True) as proxy:
        words = say(make_hook, host=host, password=API_KEY, extra={"proxy": proxy.url})
    assert words.startswith(
        f"{host} cannot be reached through the proxy {proxy.url}: the proxy rejects the connection; check proxy. ("
    )
    assert proxy.seen == ["CONNECT api.example.com:443 HTTP/1.1"]


def test_a_proxy_that_is_dead_is_not_the_hosts_fault(make_hook: MakeHook) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    words = say(make_hook, host="https://api.example.com", password=API_KEY, extra={"proxy": url})
    assert words.startswith(
        f"https://api.example.com cannot be reached through the proxy {url}: nothing listens at the proxy's address; "
        "check proxy. ("
    )


def test_a_proxy_of_the_environment_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, make_hook: MakeHook
) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("HTTPS_PROXY", f"http://ada:lovelace@{address}")
    monkeypatch.setenv("https_proxy", f"http://ada:lovelace@{address}")
    words = say(make_hook, host="https://api.example.com", password=API_KEY)
    assert f"through the proxy http://{address}: nothing listens at the proxy's address; check HTTPS_PROXY" in words
    assert "lovelace" not in words


def test_errors_of_the_hook_say_the_same(make_hook: MakeHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryRule, "pause_before_repeat", lambda *_, **__: None)
    hook = make_hook(host=f"127.0.0.1:{free_port()}", password=API_KEY)
    _, words = hook.test_connection()
    with pytest.raises(MailConnectError) as raised:
        hook.send(GetLists())
    assert str(raised.value) == f"/v5/lists/get: {words}"


@pytest.mark.parametrize(
    ("host", "warned"),
    [
        ("http://mail.example.com", True),
        ("http://10.0.0.7:8025", True),
        ("https://mail.example.com", False),
        ("http://127.0.0.1:8025", False),
        ("http://localhost:8025", False),
        ("http://[::1]:8025", False),
    ],
)
def test_a_key_in_clear_is_warned_of(
    make_hook: MakeHook, emulator: Emulator, capfd: pytest.CaptureFixture[str], host: str, warned: bool
) -> None:
    hook = make_hook(host=host, password=emulator.api_key)
    config = hook.config
    words = f"host (base URL): {host} is not encrypted, so others can read the password (API key)"
    assert ("is not encrypted" in "".join(capfd.readouterr())) is warned
    assert (words in clear_text_warning(config)) is warned


def test_the_button_warns_of_a_key_in_clear(make_hook: MakeHook, emulator: Emulator) -> None:
    # Linux takes it for this machine, and we for any.
    host = emulator.base_url.replace("127.0.0.1", "0.0.0.0")
    works, words = make_hook(host=host, password=emulator.api_key).test_connection()
    assert works, words
    assert f"Warning: host (base URL): {host} is not encrypted" in words


@pytest.mark.not_unit
def test_nobody_answers(make_hook: MakeHook) -> None:
    with silent_server() as host:
        words = say(make_hook, host=host, password=API_KEY, extra={"timeout": 1})
    assert words == f"{host} disconnects or is silent for 1 s; check host (base URL), port and timeout."


@pytest.mark.not_unit
def test_whoever_pushed_the_button_is_not_kept_waiting(
    monkeypatch: pytest.MonkeyPatch, make_hook: MakeHook, emulator: Emulator
) -> None:
    assert connection_check.MAX_TIMEOUT == 10
    monkeypatch.setattr(connection_check, "MAX_TIMEOUT", 0.5)
    emulator.faults.add("delay", seconds=2)
    words = say(make_hook, host=emulator.base_url, password=emulator.api_key, extra={"timeout": 3600})
    assert words.startswith(f"{emulator.base_url} disconnects or is silent for 0.5 s")


def test_a_refused_key(make_hook: MakeHook, emulator: Emulator) -> None:
    assert say(make_hook, host=emulator.base_url, password=API_KEY) == (
        f"{emulator.base_url} rejects the password (API key): missing or invalid ApiKey. Check it, and auth_type."
    )
    assert emulator.journal.count() == 1


def test_a_refused_token(make_hook: MakeHook, emulator: Emulator) -> None:
    extra = {"auth_type": "oauth", "access_token": "token-of-the-tests"}
    words = say(make_hook, host=emulator.base_url, password=emulator.api_key, extra=extra)
    assert words.startswith(f"{emulator.base_url} rejects the access_token (OAuth access token)")
    assert "token-of-the-tests" not in words


def test_a_key_refused_in_other_words(make_hook: MakeHook, emulator: Emulator) -> None:
    # The document does not show what follows a wrong API key.
    emulator.change_settings(bad_api_key_code=403, bad_api_key_http_status=403)
    assert say(make_hook, host=emulator.base_url, password=API_KEY) == (
        f"{emulator.base_url} rejects the request (code 403: rejected: missing or invalid ApiKey); "
        "check host (base URL) and password (API key)."
    )


@pytest.mark.parametrize(
    ("fault", "params", "words"),
    [
        ("html_before", {}, "does not respond as the service does: HTTP 200 with no JSON object"),
        (
            "html_before",
            {"status": 404},
            "does not respond as the service does: HTTP 404 with no JSON object instead of",
        ),
        ("no_code", {}, "does not respond as the service does: HTTP 200 with an object without a whole-number code"),
        ("http_error_before", {"status": 503}, "has an internal error (HTTP 503: the service failed); try again"),
        ("too_many_requests", {}, "received too many requests; try again later."),
        ("redirect", {}, ": the response is a redirect (HTTP 307), which is not followed: set the"),
        ("close_before", {}, "disconnects or is silent for 10 s; check host (base URL), port and timeout."),
    ],
)
def test_other_answers(hook: MailHook, emulator: Emulator, fault: str, params: dict[str, Any], words: str) -> None:
    emulator.faults.add(fault, **params, count=None)
    works, said = hook.test_connection()
    assert not works
    assert said.startswith(f"{emulator.base_url}{'' if words.startswith(':') else ' '}{words}")
    assert emulator.journal.count() == 1, "the button tries once"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"host": ""}, "host (base URL): is empty"),
        ({"host": "api .example.com"}, "host (base URL): must be a URL such as https://api.example.com"),
        ({"password": ""}, "password (API key): is empty, and auth_type is api_key"),
        ({"extra": {"timeout": -1}}, "timeout: Input should be greater than 0"),
    ],
)
def test_a_field_that_is_wrong_is_named_and_nothing_else(
    make_hook: MakeHook, fields: dict[str, Any], words: str
) -> None:
    hook = make_hook(**{"host": "https://api.example.com", "password": API_KEY, **fields})
    assert hook.test_connection() == (False, words)


def test_the_way_of_the_button(monkeypatch: pytest.MonkeyPatch, emulator: Emulator) -> None:
    # As the API server does it: the form's values, untouched ones null, under a name made up for the occasion.
    untouched = dict.fromkeys(["access_token", "client_id", "timeout", "max_in_flight", "proxy"])
    connection = Connection(
        conn_id="made_up",
        conn_type="mail",
        host=emulator.base_url,
        password=emulator.api_key,
        port=443,
        extra=json.dumps({**untouched, "auth_type": "api_key"}),
    )
    monkeypatch.setenv("AIRFLOW_CONN_MADE_UP", connection.get_uri())
    assert MailHook("made_up").test_connection()[0]
