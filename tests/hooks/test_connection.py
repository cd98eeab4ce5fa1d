"""What is written in a connection is what the client gets, and its secrets are shown by nothing of ours."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import pkgutil
import secrets
import ssl
import traceback
from collections.abc import Callable
from importlib.metadata import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import pytest
from airflow.models import Connection
from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger
from asgiref.sync import async_to_sync
from pydantic import SecretStr

import airflow_provider_mail
from airflow_provider_mail._config import InboxName
from airflow_provider_mail.api import ImportPlan, find_list
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailConfigError, chain_of
from airflow_provider_mail.api.flows.campaign_checks import CampaignCaps
from airflow_provider_mail.get_provider_info import get_provider_info
from airflow_provider_mail.hooks.connection import FIELDS, UI_FIELD_BEHAVIOUR, client_config, conn_fields, fields_of
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import BaseHook, redact
from airflow_provider_mail.webhook.inbox import Inbox
from mail_emulator import Emulator
from tests.hooks.conftest import API_KEY, InboxReader
from tests.support.dags import AIRFLOW_VERSION

MakeHook = Callable[..., MailHook]

DEFAULTS = ClientConfig(base_url="https://api.example.com", api_key=API_KEY)


@pytest.fixture
def every_field() -> dict[str, Any]:
    """All of FIELDS, none at its default."""
    return {
        "auth_type": "oauth", "sandbox": True, "team_name": "Équipe nº 1", "service_tags": "unsubscribe_link, {{year}}",
        "campaign_url": "https://app.example.com/campaigns/{guid}?name={mail_name}",
        "access_token": "token/with+odd=characters&more".ljust(512, "t"), "client_id": "client",
        "client_secret": "secret:of@the//client", "redirect_uri": "https://example.com/callback?x=1",
        "oauth_obtained_at": "2026-01-01T00:00:00+00:00", "oauth_expires_at": "2126-01-01T00:00:00+00:00",
        "timeout": 2.5, "requests_per_second": 0.5, "rate_limit_conn_id": "limits",
        "rate_limit_when_away": "wait", "max_in_flight": 3, "max_campaigns_per_day": 4,
        "max_recipients_per_day": 100_000, "ca_bundle": certifi.where(),
        "proxy": "http://proxy.example.com:3128",
    }  # fmt: skip


def as_json(**fields: Any) -> str:
    return json.dumps({"conn_type": "mail", **fields})


def as_uri(extra: dict[str, Any], **fields: Any) -> str:
    """The way of the test button and of `airflow connections get`."""
    return str(Connection(conn_id="any", conn_type="mail", extra=json.dumps(extra), **fields).get_uri())


def as_text_only_uri(extra: dict[str, Any], **fields: Any) -> str:
    """Every value as a query parameter: numbers and truth values come as text, as from the forms of 3.0 and 3.1."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in extra.items()}
    uri = as_uri(texts, **fields)
    assert "__extra__" not in uri
    return uri


@pytest.mark.parametrize("written", [as_json, as_uri, as_text_only_uri])
def test_every_field_reaches_the_client(
    make_hook: MakeHook, every_field: Any, written: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"conn_type": "redis", "host": "redis.example.com", "port": 6380, "login": "me", "password": "se/cret"}
    monkeypatch.setenv("AIRFLOW_CONN_LIMITS", json.dumps({**limits, "extra": {"ssl": True, "db": 2}}))
    assert every_field.keys() == FIELDS.keys()
    hook = make_hook(written(extra=every_field, host="https://api.example.com/mail", port=8443, password=API_KEY))
    same = ("auth_type", "sandbox", "timeout", "requests_per_second", "rate_limit_when_away", "max_in_flight", "proxy")
    assert hook.config.model_dump() == DEFAULTS.model_dump() | {name: every_field[name] for name in same} | {
        "base_url": "https://api.example.com:8443/mail",
        "api_key": hook.config.api_key,
        "access_token": hook.config.access_token,
        "ca_bundle": Path(every_field["ca_bundle"]),
        "rate_limit_account": "client Équipe nº 1",
        "rate_limit_url": SecretStr("rediss://me:se%2Fcret@redis.example.com:6380/2"),
    }
    assert hook.config.credentials() == {"OAuth": every_field["access_token"]}
    assert hook.caps == CampaignCaps(4, 100_000)
    assert (hook.team_name, hook.service_tags) == ("Équipe nº 1", {"unsubscribe_link", "year"})
    assert fields_of(hook.get_connection("mail_test"))["client_secret"] == every_field["client_secret"]

    async def settings_of_the_async_client() -> ClientConfig:
        async with await MailHook("mail_test").get_async_conn() as client:
            return client.config

    assert asyncio.run(settings_of_the_async_client()) == hook.config


@pytest.mark.parametrize("extra", [{}, dict.fromkeys(FIELDS), dict.fromkeys(FIELDS, "")])
def test_untouched_and_emptied_fields_are_not_set(make_hook: MakeHook, extra: dict[str, Any]) -> None:
    """And a line break at the end of a key does no harm."""
    hook = make_hook(host="https://api.example.com", password=f"{API_KEY}\n", extra=extra)
    config = hook.config
    assert (config, config.credentials(), hook.team_name) == (DEFAULTS, {"ApiKey": API_KEY}, None)
    assert (config.timeout, config.max_in_flight, config.requests_per_second, config.sandbox) == (30, 16, None, False)


@pytest.mark.parametrize(
    ("fields", "base_url"),
    [
        (["api.example.com"], "https://api.example.com"), (["https://bücher.example"], "https://bücher.example"),
        ([" https://api.example.com/ "], "https://api.example.com"), (["https://v5"], "https://v5"),
        (["https://api.example.com/mail/v5/"], "https://api.example.com/mail"),
        (["https://api.example.com/mail", 8443], "https://api.example.com:8443/mail"),
        (["https://api.example.com:9000", 443], "https://api.example.com:9000"),
        (["https://api.example.com", 0], "https://api.example.com"),
        (["https://api.example.com", 443], "https://api.example.com"), (["http://a.example", 80], "http://a.example"),
        (["api.example.com", 8080, "http"], "http://api.example.com:8080"),
        (["https://api.example.com", None, "http"], "https://api.example.com"),
        (["::1", 8099, "http"], "http://[::1]:8099"), (["2001:db8::1"], "https://[2001:db8::1]"),
    ],
)  # fmt: skip
def test_base_url(make_hook: MakeHook, fields: list[Any], base_url: str) -> None:
    """Of host, port and schema."""
    given = dict(zip(("host", "port", "schema"), fields, strict=False))
    assert make_hook(**given, password=API_KEY).config.base_url == base_url


@pytest.mark.parametrize(
    ("fields", "extra", "complaint"),
    [
        ({"host": None}, {}, "host (base URL): is empty"),
        ({"host": "https://"}, {}, "host (base URL): must be a URL such as https://api.example.com"),
        ({"host": "https://api.example.com:port"}, {}, "host (base URL): is not a URL"),
        ({"host": f"https://{'a' * 64}.example.com"}, {}, "host (base URL): is not a URL"),
        ({"host": "https://api.example.com?key=planted-secret"}, {}, "host (base URL): must be a plain URL"),
        ({"host": "https://me:planted-secret@api.example.com"}, {}, "host (base URL): must be a plain URL"),
        ({"password": " \n"}, {}, "password (API key): is empty, and auth_type is api_key"),
        ({"password": "planted\nsecret"}, {}, "password (API key): has characters that a header cannot contain"),
        ({"password": "planted-sécret"}, {}, "password (API key): has characters that a header cannot contain"),
        ({}, {"access_token": "t" * 513}, "access_token: 513 bytes, at most 512 are allowed"),
        ({}, {"auth_type": "basic"}, "auth_type: Input should be 'api_key' or 'oauth'"),
        ({}, {"timeout": 0}, "timeout: Input should be greater than 0"),
        ({}, {"timeout": 3601}, "timeout: Input should be less than or equal to 3600"),
        ({}, {"requests_per_second": 0}, "requests_per_second: Input should be greater than 0"),
        ({}, {"requests_per_second": "inf"}, "requests_per_second: Input should be a finite number"),
        ({}, {"max_in_flight": 0}, "max_in_flight: Input should be greater than or equal to 1"),
        ({}, {"max_in_flight": 1001, "timeout": "soon"}, "timeout: Input should be a valid number"),
        ({}, {"ca_bundle": __file__}, f"ca_bundle: {__file__} contains no readable certificates"),
        ({}, {"proxy": "socks5://127.0.0.1"}, "proxy: must be a URL such as http://proxy.example.com:3128"),
        ({}, {"proxy": "http://me:planted-secret@proxy.example.com"}, "proxy: must be a plain URL, without user"),
    ],
)
def test_a_wrong_field_is_named(make_hook: MakeHook, fields: Any, extra: Any, complaint: str) -> None:
    """Each of several; others are in `tests/tasks/test_error_messages.py`."""
    hook = make_hook(**{"host": "https://api.example.com", "password": "planted-secret", "extra": extra, **fields})
    with pytest.raises(MailConfigError) as caught:
        hook.get_conn()
    assert str(caught.value).startswith(f"connection 'mail_test': {complaint}")
    assert "planted" not in repr(caught.value)
    assert all(f"{field}: " in str(caught.value) for field in extra if len(extra) > 1)


def test_certificates_are_read_for_tls_alone(make_hook: MakeHook, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the variable with their file is named where it cannot be used."""
    for scheme, reads in (("http", False), ("https", True)):
        config = make_hook(host=f"{scheme}://api.example.com", password=API_KEY).config
        assert bool(config.ssl_context().get_ca_certs()) is reads
        assert config.ssl_context().verify_mode is ssl.CERT_REQUIRED
    for file, complaint in (("/no/such/file.pem", "cannot be read"), (__file__, "contains no readable certificates")):
        monkeypatch.setenv("SSL_CERT_FILE", file)
        with pytest.raises(MailConfigError, match=f"SSL_CERT_FILE: {file} {complaint}"):
            make_hook(host="https://api.example.com", password=API_KEY).get_conn()


def test_extra_that_is_not_an_object() -> None:
    """Airflow does not store such a connection, but a secrets backend may hold one."""
    for extra in ("{", "[1]", '"text"', "planted-secret"):
        fields = {"host": "https://api.example.com", "port": None, "schema": None, "password": API_KEY, "extra": extra}
        with pytest.raises(MailConfigError) as caught:
            client_config(SimpleNamespace(conn_id="mail_test", conn_type="mail", **fields))
        assert str(caught.value) == "connection 'mail_test': extra: is not a JSON object"
        assert caught.value.__context__ is None


def test_one_hook_keeps_one_client_until_it_is_closed(make_hook: MakeHook) -> None:
    hook = make_hook(host="https://api.example.com", password=API_KEY)
    client = hook.get_conn()
    assert hook.get_conn() is client
    hook.close()
    hook.close()
    assert hook.get_conn() is not client
    make_hook(host="https://api.example.com", password="rotated")
    hook.close()
    assert hook.config.api_key.get_secret_value() == "rotated"
    assert MailHook().mail_conn_id == "mail_default"


def test_what_needs_several_requests(hook: MailHook, emulator: Emulator) -> None:
    emulator.add_campaigns(3, prefix="news", first_day="2026-01-01")
    assert hook.find_campaign("news-000001").mail_name == "news-000001"
    assert hook.find_campaign("news") is None
    batches = [[(f"{number}@example.com",) for number in range(first, first + 2)] for first in (0, 2, 4)]
    progress = hook.import_contacts(batches, ImportPlan(properties=("email",), list_name="vip"), on_reject=print)
    assert (progress.accepted, progress.requests) == (6, 3)
    assert find_list(hook.get_conn(), "vip").list_name == "vip"
    emails = {contact.email for contact in hook.iter_contacts("vip", page_size=4)}
    assert emails == {f"{number}@example.com" for number in range(6)}


@pytest.mark.parametrize("reader", ["service", "inbox"])
def test_a_cancelled_trigger_does_not_cancel_its_call_to_airflow(monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """On Airflow 3.0 and 3.1 the next call of any trigger would read the response to the cancelled one."""

    async def cancelled_meanwhile() -> str:
        called, respond, ended = asyncio.Event(), asyncio.Event(), asyncio.Queue[str]()

        async def call() -> Connection:
            called.set()
            try:
                await respond.wait()
            except asyncio.CancelledError:
                ended.put_nowait("cancelled")
                raise
            ended.put_nowait("completed")
            raise LookupError("nobody")

        # How a thread reads a connection in the triggerer of these versions.
        monkeypatch.setattr(BaseHook, "get_connection", staticmethod(lambda conn_id: async_to_sync(call)()))
        inbox = InboxReader(InboxName("nobody", "pushes"))
        work = MailHook("nobody").get_async_conn() if reader == "service" else inbox.aquery(Inbox.waiting)
        trigger = asyncio.create_task(work)  # type: ignore[arg-type]
        await called.wait()
        trigger.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trigger
        respond.set()
        return await ended.get()

    assert asyncio.run(cancelled_meanwhile()) == "completed"


# --- secrets ---

SECRETS = ["password", *(name for name, field in FIELDS.items() if field.secret)]


@pytest.fixture
def plant(make_hook: MakeHook) -> Callable[..., dict[str, str]]:
    """Make the connection `mail_test` with secrets that nothing can have masked before, and return them."""

    def make(**others: object) -> dict[str, str]:
        planted = {name: f"planted-{secrets.token_hex(8)}" for name in SECRETS}
        extra = {name: value for name, value in planted.items() if name in FIELDS}
        make_hook(host="https://api.example.com", password=planted["password"], extra={**extra, **others})
        return planted

    return make


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_secrets_are_masked_in_log_lines(plant: Callable[..., dict[str, str]], kind: str) -> None:
    """By Airflow, once a hook has read them."""
    assert SECRETS == ["password", "access_token", "client_secret"]
    planted, hook = plant(), MailHook("mail_test")
    if kind == "sync":
        shown = [repr(hook), repr(hook.config), hook.config.model_dump_json(), repr(hook.get_conn())]
        assert not [text for text in shown for secret in planted.values() if secret in text]
    else:
        asyncio.run(hook.get_async_conn())
    assert [redact(f"it is {planted[name]}, you know") for name in SECRETS] == ["it is ***, you know"] * 3


@pytest.mark.parametrize("wrong", [{"timeout": "soon"}, {"auth_type": "basic"}, {"sandbox": []}, {"surprise": 1}])
def test_no_error_about_a_connection_shows_a_secret(plant: Callable[..., dict[str, str]], wrong: Any) -> None:
    planted = plant(**wrong)
    works, message = MailHook("mail_test").test_connection()
    assert not works
    with pytest.raises(MailConfigError) as raised:
        MailHook("mail_test").get_conn()
    # With variables, as Airflow 3.0 prints it on its console, and services that collect errors.
    links = [traceback.TracebackException.from_exception(link, capture_locals=True) for link in chain_of(raised.value)]
    lines = [line for link in links for line in link.format(chain=False) if "tests/" not in line]
    assert not [secret for secret in planted.values() if secret in message + "".join(lines)]


# The provider information names every module for DAG authors, and nothing that is not there.

INFO = get_provider_info()


def modules_with_something_public(package: str) -> set[str]:
    """Modules of a package that define an operator, sensor or trigger for users."""
    folder = importlib.import_module(f"airflow_provider_mail.{package}")
    names = [info.name for info in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}.")]
    return {
        module
        for module in names
        if not module.rpartition(".")[2].startswith("_")
        for name, kind in inspect.getmembers(importlib.import_module(module), inspect.isclass)
        # A module may offer what a private module beside it defines.
        if kind.__module__.rpartition(".")[0] == folder.__name__ and not name.startswith(("Base", "_"))
        if issubclass(kind, BaseOperator | BaseTrigger)
    }


def test_modules_are_listed() -> None:
    for package in ("operators", "sensors", "triggers"):
        (entry,) = INFO[package]
        assert entry["integration-name"] == "Mail"
        assert set(entry["python-modules"]) == modules_with_something_public(package)
    listed = [entry["python-module"] for entry in INFO["transfers"]]
    assert len(set(listed)) == len(listed)
    assert set(listed) == modules_with_something_public("transfers")


def test_what_is_listed_exists() -> None:
    def paths(value: Any) -> set[str]:
        if isinstance(value, str):
            return {value} if value.startswith(f"{airflow_provider_mail.__name__}.") else set()
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {path for item in items for path in paths(item)}

    for path in paths(INFO):
        assert pkgutil.resolve_name(path), path


def test_connection_type_and_hook_agree() -> None:
    (entry,) = INFO["connection-types"]
    assert entry["connection-type"] == MailHook.conn_type == "mail"
    assert entry["hook-name"] == MailHook.hook_name
    assert entry["hook-class-name"] == f"{MailHook.__module__}.{MailHook.__name__}"
    assert MailHook.conn_name_attr in inspect.signature(MailHook.__init__).parameters


def test_the_fields_of_the_connection() -> None:
    """Airflow masks the secret ones by their names, and both forms have the same standard fields."""
    secrets = {name: "planted" for name, field in FIELDS.items() if field.secret}
    assert redact(secrets) == dict.fromkeys(secrets, "***")
    assert MailHook.get_ui_field_behaviour() == {
        name.replace("-", "_"): UI_FIELD_BEHAVIOUR[name] for name in ("hidden-fields", "relabeling", "placeholders")
    }


def test_airflow_finds_the_documentation() -> None:
    """Airflow shows the address in its list of providers, from 3.1 on; it takes it from the package's metadata."""
    from airflow.providers_manager import ProvidersManager

    shown = ProvidersManager().providers["airflow-provider-mail"].data.get("documentation-url", "").strip()
    declared = metadata("airflow-provider-mail").get_all("Project-URL", [])
    assert f"Documentation, {shown}" in declared or AIRFLOW_VERSION < (3, 1)
    (integration,) = get_provider_info()["integrations"]
    assert f"Documentation, {integration['external-doc-url']}" in declared


def test_what_few_need_is_folded_and_what_commands_write_is_not_in_the_form() -> None:
    sections: dict[str, set[str]] = {}
    for name, each in conn_fields().items():
        sections.setdefault(each["schema"].get("section", ""), set()).add(name)
    assert sections.keys() == {"", "OAuth", "Advanced"}
    assert sections[""] == {"auth_type", "sandbox", "team_name", "campaign_url"}
    written = inspect.getsource(importlib.import_module("airflow_provider_mail.cli.oauth")._entries)
    assert FIELDS.keys() - conn_fields().keys() == {name for name in FIELDS if name.startswith("oauth_")}
    assert all(f'"{name}"' in written for name in FIELDS.keys() - conn_fields().keys())
