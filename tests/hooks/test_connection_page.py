"""docs/connection.md: its tables are complete, its examples run, and the test button says what its table has.

The button says whether the connection works, and otherwise what is wrong and which field to fix.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpcore
import pytest
from airflow.cli.cli_parser import get_parser as airflow_parser

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailConfigError, MailConnectError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.hooks.connection import FIELDS
from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator, EmulatorSettings
from tests.api.parts import CONNECT_MESSAGES, PROXY_MESSAGES, explain, transport_error
from tests.api.wire import Wire, closed_port, http
from tests.hooks.conftest import API_KEY
from tests.hooks.wire import Authority
from tests.support import env

MakeHook = Callable[..., MailHook]
PAGE = (env.ROOT / "docs" / "connection.md").read_text()
API = {"host": "https://api.example.com"}


def table(heading: str) -> list[list[str]]:
    """The rows of the table whose first cell is `heading`."""
    lines = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def example(name: str) -> str:
    """The code block under `<!-- run: name -->`, with our API key in place of the reader's."""
    (code,) = re.findall(rf"<!-- run: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    return str(code).replace("<API key>", API_KEY)


def exported(name: str) -> tuple[str, str]:
    """The variable that an example exports."""
    export, assignment = shlex.split(example(name))
    assert export == "export"
    variable, _, value = assignment.partition("=")
    return variable, value


def explained(message: str) -> bool:
    """Whether a message of the test button is in the table, where "..." stands for anything."""
    rows = [row[0].strip("`") for row in table("message")]
    rows[rows.index("host (base URL): is empty` and others that begin with a field")] = "host (base URL): is empty"
    patterns = (".*".join(map(re.escape, row.split("..."))).replace(r"there:\ 3", r"there:\ \d") for row in rows)
    return any(re.match(pattern, message) for pattern in patterns)


# --- the tables ---


def test_every_field_and_every_reason_is_on_the_page() -> None:
    assert table("field in `extra`") == [[f"`{name}`", each.label, each.description] for name, each in FIELDS.items()]
    config = ClientConfig(base_url="https://api.example.com", api_key=API_KEY, timeout=10)
    for error in (  # those that the tests below do not provoke
        httpcore.ConnectTimeout("timed out"),
        httpcore.ConnectError("[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version (_ssl.c:1006)"),
        httpcore.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"),
        httpcore.ReadTimeout("timed out"),
    ):
        assert explained(explain(transport_error("/v5/lists/get", error, config), config)), error
    assert not [text for text in CONNECT_MESSAGES.values() if "proxy" not in text and text.split(";")[0] not in PAGE]
    assert all(text.endswith("check {proxy}.") for text in PROXY_MESSAGES.values())


# --- the examples ---


@pytest.mark.parametrize("written", ["json", "uri", "command"])
def test_the_examples_make_one_connection(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    if written == "command":
        program, *arguments = shlex.split(example("command").replace("\\\n", " "))
        parsed = airflow_parser().parse_args(arguments)
        fields = {name: getattr(parsed, f"conn_{name}") for name in ("host", "password", "port", "extra")}
        assert (program, parsed.conn_id, fields["port"]) == ("airflow", "mail_default", "443")
        monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps({"conn_type": parsed.conn_type, **fields}))
    else:
        monkeypatch.setenv(*exported(written))
    expected = ClientConfig(base_url="https://api.example.com", api_key=API_KEY, requests_per_second=20)
    assert (MailHook().config, MailHook().team_name) == (expected, "Marketing")


def test_the_emulator(monkeypatch: pytest.MonkeyPatch, emulator: Emulator) -> None:
    variable, value = exported("emulator")
    monkeypatch.setenv(variable, re.sub(r"http://127\.0\.0\.1:\d+", emulator.base_url, value))
    assert MailHook().test_connection()[0]


# --- the test button ---


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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": "api .example.com"}, "host (base URL): must be a URL such as https://api.example.com"),
        ({"host": "http://{closed}"}, "HOST cannot be reached: nothing listens there; check host (base URL) and"),
        (API | {"extra": {"proxy": "http://{closed}"}},
         "HOST cannot be reached through the proxy http://{closed}: nothing listens at the proxy's address; check p"),
        ({}, "HOST rejects the password (API key): missing or invalid ApiKey. Check it"),
        ({"extra": {"auth_type": "oauth", "access_token": API_KEY}}, "HOST rejects the access_token (OAuth access to"),
    ],
)  # fmt: skip
def test_what_to_fix(
    make_hook: MakeHook, fields: dict[str, Any], message: str, emulator: Emulator, clock: object
) -> None:
    """The other reasons are those of errors: see `tests/tasks/test_error_messages.py`."""
    with closed_port() as port:
        closed = f"127.0.0.1:{port}"
        usual = {"password": API_KEY, "host": emulator.base_url}
        connection = json.loads(json.dumps(usual | fields).replace("{closed}", closed))
        hook = make_hook(**connection)
        works, said = hook.test_connection()
        assert not works
        assert said.startswith(message.replace("{closed}", closed).replace("HOST", connection["host"]))
        assert API_KEY not in said
        assert explained(said) or said.startswith("host (base URL): ")
        assert emulator.journal.count() == ("rejects the" in message)
        if "nothing listens there" in said:  # a task says the same
            with pytest.raises(MailConnectError) as raised:
                hook.send(GetLists())
            assert str(raised.value) == f"/v5/lists/get: {said}"


def test_a_proxy_of_the_environment_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, make_hook: MakeHook
) -> None:
    with closed_port() as port:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://ada:lovelace@127.0.0.1:{port}")
        _, message = make_hook(**API, password=API_KEY).test_connection()
        address = f"http://127.0.0.1:{port}"
    assert f"through the proxy {address}: nothing listens at the proxy's address; check HTTPS_PROXY" in message
    assert "lovelace" not in message


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


# TLS and proxies: the credentials reach the service that the connection names, and no other.

Send = Callable[..., None]


@pytest.fixture
def send(make_hook: Callable[..., MailHook]) -> Send:
    """Send one request over a connection of these fields."""

    def send(service: Any, **extra: str) -> None:
        hook = make_hook(host=service.base_url, password=service.api_key, extra=extra)
        hook.send(GetLists())
        hook.close()

    return send


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secure(authority: Authority) -> Iterator[Emulator]:
    """The service over TLS, with a certificate of an authority that the system does not know."""
    with Emulator(EmulatorSettings(tls_certificate=str(authority.issue()))) as running:
        yield running


def test_a_certificate_is_trusted_only_through_the_bundle(secure: Emulator, authority: Authority, send: Send) -> None:
    with pytest.raises(MailConfigError, match=r"certificate is not trusted.*Set ca_bundle"):
        send(secure)
    assert secure.journal.entries() == []
    send(secure, ca_bundle=str(authority.bundle))
    (entry,) = secure.journal.entries()
    assert (entry["code"], entry["auth"]) == (200, "api_key")


@pytest.mark.parametrize("source", ["connection", "environment"])
def test_a_proxy_carries_the_request(
    source: str, monkeypatch: pytest.MonkeyPatch, send: Send, no_such_host: str
) -> None:
    service = SimpleNamespace(base_url=f"http://{no_such_host}", api_key=API_KEY)
    with Wire(http(b'{"code": 200, "lists": [], "totalRecords": 0}')) as proxy:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url if source == "environment" else "")
        send(service, **({"proxy": proxy.base_url} if source == "connection" else {}))
    (request,) = proxy.requests
    assert request.startswith(f"POST {service.base_url}/v5/lists/get HTTP/1.1\r\n".encode())


def test_an_address_that_the_environment_exempts_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, emulator: Emulator, send: Send
) -> None:
    with Wire(http(b"{}")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        send(emulator)
    assert proxy.requests == []
    assert len(emulator.journal.entries()) == 1


def test_a_proxy_that_rejects_is_named(make_hook: Callable[..., MailHook]) -> None:
    with Wire(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as proxy:
        hook = make_hook(host="https://api.example.com", password=API_KEY, extra={"proxy": proxy.base_url})
        message = hook.test_connection()[1]
    assert f"through the proxy {proxy.base_url}: the proxy rejects the connection; check proxy. (" in message
