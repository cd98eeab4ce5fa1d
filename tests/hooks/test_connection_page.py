"""docs/connection.md: its tables are complete, its examples run."""

from __future__ import annotations

import json
import re
import shlex
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from airflow.cli.cli_parser import get_parser as airflow_parser

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.hooks.connection import CONN_TYPE, FIELDS, HOOK_NAME, UI_FIELD_BEHAVIOUR
from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator
from tests.api.parts import CONNECT_MESSAGES, PROXY_MESSAGES, explain, transport_error
from tests.hooks.conftest import API_KEY
from tests.support import env

PAGE = (env.ROOT / "docs" / "connection.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the table whose first cell is `heading`."""
    lines = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def example(name: str) -> str:
    """The code block under `<!-- run: name -->`."""
    (code,) = re.findall(rf"<!-- run: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    return str(code)


def exported(name: str) -> tuple[str, str]:
    """The variable that an example exports, with our API key in place of the reader's."""
    export, assignment = shlex.split(example(name).replace("<API key>", API_KEY))
    assert export == "export"
    variable, _, value = assignment.partition("=")
    return variable, value


# --- the tables ---


def test_the_tables_and_pictures_are_complete() -> None:
    assert table("field in `extra`") == [[f"`{name}`", each.label, each.description] for name, each in FIELDS.items()]
    labels = UI_FIELD_BEHAVIOUR["relabeling"]
    standard = [["`host`", labels["host"]], ["`password`", labels["password"]], ["`port`", "Port"]]
    assert [row[:2] for row in table("field")] == standard
    assert f"Connection type **{HOOK_NAME}** (`{CONN_TYPE}`), default id `{MailHook.default_conn_name}`" in PAGE
    pictures = [env.ROOT / "docs" / path for path in re.findall(r"!\[[^]]+\]\((\S+)\)", PAGE)]
    assert pictures
    assert all(1_000 < picture.stat().st_size < 200_000 for picture in pictures)


def explained(message: str) -> bool:
    """Whether a message of the test button is in the table, where "..." stands for anything."""
    rows = [row[0].strip("`") for row in table("message")]
    rows[rows.index("host (base URL): is empty` and others that begin with a field")] = "host (base URL): is empty"
    patterns = (".*".join(map(re.escape, row.split("..."))).replace(r"there:\ 3", r"there:\ \d") for row in rows)
    return any(re.match(pattern, message) for pattern in patterns)


def test_messages_that_are_not_easily_made_are_in_the_table() -> None:
    """`test_check` makes the others."""
    config = ClientConfig(base_url="https://api.example.com", api_key=API_KEY, timeout=10)
    for error in (
        httpx.ConnectTimeout("timed out"),
        httpx.ConnectError("[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version (_ssl.c:1006)"),
        httpx.ReadTimeout("timed out"),
    ):
        assert explained(explain(transport_error("/v5/lists/get", error, config), config)), error


def test_every_reason_of_an_unreachable_service_is_explained() -> None:
    assert not [text for text in CONNECT_MESSAGES.values() if "proxy" not in text and text.split(";")[0] not in PAGE]
    assert all(text.endswith("check {proxy}.") for text in PROXY_MESSAGES.values())


# --- the examples ---

THE_EXAMPLE = ClientConfig(base_url="https://api.example.com", api_key=API_KEY, requests_per_second=20)


@pytest.mark.parametrize("written", ["json", "uri"])
def test_the_environment(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(*exported(written))
    assert (MailHook().config, MailHook().team_name) == (THE_EXAMPLE, "Marketing")


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(example("command").replace("\\\n", " ").replace("<API key>", API_KEY))
    parsed = airflow_parser().parse_args(arguments)
    fields = {name: getattr(parsed, f"conn_{name}") for name in ("type", "host", "password", "port", "extra")}
    assert (program, parsed.conn_id, fields["port"]) == ("airflow", "mail_default", "443")
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps({"conn_type": fields.pop("type"), **fields}))
    assert (MailHook().config, MailHook().team_name) == (THE_EXAMPLE, "Marketing")


def test_the_emulator(monkeypatch: pytest.MonkeyPatch, emulator: Emulator) -> None:
    variable, value = exported("emulator")
    monkeypatch.setenv(variable, re.sub(r"http://127\.0\.0\.1:\d+", emulator.base_url, value))
    assert MailHook().test_connection()[0]


def test_obtaining_a_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], emulator: Emulator
) -> None:
    settings = emulator.settings
    code = example("oauth")
    for placeholder, value in {
        "https://api.example.com": emulator.base_url,
        "<client id>": settings.oauth_client_id,
        "<client secret>": settings.oauth_client_secret,
        "<redirect URI>": settings.oauth_redirect_uri,
    }.items():
        assert placeholder in code
        code = code.replace(placeholder, value)

    def approve(prompt: str) -> str:
        """What the person does in the browser."""
        page = urlsplit(re.findall(r"^Open (\S+)$", capsys.readouterr().out, re.MULTILINE)[0])
        form = {name: value[0] for name, value in parse_qs(page.query).items()} | {"decision": "approve"}
        response = httpx.post(f"{page.scheme}://{page.netloc}{page.path}", data=form, trust_env=False, timeout=60)
        return parse_qs(urlsplit(response.headers["location"]).query)["code"][0]

    monkeypatch.setattr("builtins.input", approve)
    exec(compile(code, "docs/connection.md", "exec"), {})
    token, message = capsys.readouterr().out.splitlines()[-1].split(" ", 1)
    assert message == "expires in -1 s; -1 is never"
    extra = {"auth_type": "oauth", "access_token": token}
    connection = {"conn_type": "mail", "host": emulator.base_url, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_TOKEN", json.dumps(connection))
    assert MailHook("mail_token").test_connection()[0]
