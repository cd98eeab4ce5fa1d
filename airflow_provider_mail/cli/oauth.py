"""``airflow mail oauth``: the authorization-code flow (document, "Authentication") from a terminal."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import SecretStr

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.oauth import GetToken, TokenResponse, authorize_url
from airflow_provider_mail.cli.commands import command, fail, show
from airflow_provider_mail.hooks.connection import client_config, fields_of, seconds_left
from airflow_provider_mail.hooks.mail import MailHook

LOOPBACK = ("127.0.0.1", "localhost", "::1")

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title></head>
<body style="font: 1.1rem/1.5 sans-serif; max-width: 34rem; margin: 4rem auto; padding: 0 1rem">
<h1>{title}</h1><p>You can close this page and go back to the terminal.</p></body></html>
"""

MOST_ERROR_CHARACTERS = 200

KILL_POLL_SECONDS = 0.2
"""Seconds from one look to the next whether the browser has come."""

Redirect = Mapping[str, str]
"""The query parameters with which the browser came back."""


@command
def login(args: Namespace) -> None:
    """``airflow mail oauth login``."""
    connection = MailHook.get_connection(args.conn_id)
    # Everything that can be wrong is found before somebody goes and approves something.
    config = client_config(connection, auth_type="api_key", api_key=connection.password or "not used")
    fields = fields_of(connection)
    if missing := [name for name in ("client_id", "client_secret", "redirect_uri") if not fields.get(name)]:
        fail(f"connection {args.conn_id!r}: {', '.join(missing)}: needed, as registered on the platform")
    if args.token_file is None and not is_stored(args.conn_id):
        fail(
            f"connection {args.conn_id!r} is not in Airflow's database but in the environment or a secrets backend, "
            "where nothing can be stored from here: give --token-file, and put the token there yourself"
        )
    if args.token_file is not None and os.path.lexists(args.token_file):
        fail(f"--token-file: {args.token_file} exists")

    state = secrets.token_urlsafe(24)
    application = {name: fields[name] for name in ("client_id", "redirect_uri")}
    url = authorize_url(config.base_url, **application, state=state)
    print(f"Open this address in a browser and approve:\n\n  {url}\n", flush=True)
    target = urlsplit(fields["redirect_uri"])
    here = target.scheme == "http" and target.hostname in LOOPBACK
    redirect = _pasted() if args.paste or not here else _received(target, args.wait)
    code = _code(redirect, state, missing_allowed=args.allow_missing_state)

    request = GetToken(client_id=fields["client_id"], client_secret=fields["client_secret"], code=SecretStr(code))
    with MailClient(config) as client:
        token = client.send(request)
    entries = _entries(token)
    if args.token_file is not None:
        _write(args.token_file, entries)
    else:
        _store(args.conn_id, entries)
    where = args.token_file or f"connection {args.conn_id!r}"
    print(f"The access token is in {where}; it {_life(seconds_left(entries))}.")


@command
def status(args: Namespace) -> None:
    """``airflow mail oauth status``."""
    connection = MailHook.get_connection(args.conn_id)
    fields = fields_of(connection)
    kind = fields.get("auth_type", "api_key")
    row = {"connection": args.conn_id, "authentication": kind}
    data: dict[str, Any] = {"conn_id": args.conn_id, "auth_type": kind}
    if kind == "oauth":
        obtained, left = fields.get("oauth_obtained_at"), seconds_left(fields)
        known = obtained is not None
        row |= {
            "token": "stored" if fields.get("access_token") else "none",
            "obtained": _ago(obtained) if obtained else "not by the login command",
            "life": _life(left) if known or left is not None else "is not known",
        }
        data |= {
            "token_stored": bool(fields.get("access_token")),
            "obtained_at": obtained,
            "expires_at": fields.get("oauth_expires_at"),
            "is_permanent": left is None if known or left is not None else None,
            "seconds_left": None if left is None else round(left),
        }
    show([row], args.output, data)


def is_stored(conn_id: str) -> bool:
    """Whether the connection that Airflow uses for this id is the one in its database."""
    from airflow.models import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    if f"AIRFLOW_CONN_{conn_id.upper()}" in os.environ:
        return False  # it would win over the database's
    with create_session() as session:
        return session.scalar(select(Connection).where(Connection.conn_id == conn_id)) is not None


def _store(conn_id: str, entries: Mapping[str, str]) -> None:
    from airflow.models import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        connection = session.scalars(select(Connection).where(Connection.conn_id == conn_id)).one()
        # Only what belongs to the token is changed; what somebody changed meanwhile stays.
        connection.set_extra(json.dumps({**json.loads(connection.extra or "{}"), **entries}))


def _write(path: str, entries: Mapping[str, str]) -> None:
    # Made anew and for its owner alone before there is anything in it.
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        json.dump(dict(entries), file, indent=2)


def _entries(token: TokenResponse) -> dict[str, str]:
    """What is stored beside the other fields of the connection."""
    now = datetime.now(UTC).replace(microsecond=0)
    ends = "" if token.expires_in < 0 else (now + timedelta(seconds=token.expires_in)).isoformat()
    return {
        "auth_type": "oauth",
        "access_token": token.access_token.get_secret_value(),
        "oauth_obtained_at": now.isoformat(),
        "oauth_expires_at": ends,
    }


def _code(redirect: Redirect, state: str, *, missing_allowed: bool) -> str:
    """The authorization code that the browser brought.

    Without the state any page that is open in the browser could send it here with a code of its own, and mail would
    go out over somebody else's account. The document does not show whether the service returns it.

    :raises MailConfigError: when access was denied, or the redirect is not an answer to our request.
    """
    if "state" in redirect and not secrets.compare_digest(redirect["state"].encode(), state.encode()):
        raise MailConfigError(
            "state: the browser did not come from the page that was opened, so what it brought is not used. Start anew"
        )
    if "error" in redirect:
        raise MailConfigError(f"access was not granted ({redirect['error'][:MOST_ERROR_CHARACTERS]})")
    if not redirect.get("code"):
        raise MailConfigError("access was not granted: the browser came back without a code")
    if "state" not in redirect:
        if not missing_allowed:
            raise MailConfigError(
                "state: the browser came back without it, so it cannot be told whether it came from the page that was "
                "opened, and what it brought is not used. If this service never returns the state, give "
                "--allow-missing-state, and keep other pages closed until the login has ended"
            )
        print(
            "Warning: the service did not return the state, so it cannot be checked who opened the page.",
            file=sys.stderr,
            flush=True,
        )
    return redirect["code"]


def _pasted() -> Redirect:
    return _query(input("Paste the address that the browser was sent to: ").strip())


def _query(address: str) -> Redirect:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def _received(target: SplitResult, seconds: float) -> Redirect:
    """Wait on the loopback interface for the browser to come back.

    :raises MailConfigError: when it does not come, or the port is taken.
    """
    came: list[Redirect] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Under another name this is what a page of elsewhere, whose name leads here, asks for.
            ours = urlsplit(self.path).path == (target.path or "/") and _is_host(target, self.headers.get("Host", ""))
            query = _query(self.path)
            title = "The answer has arrived" if query.get("code") else "Access was not granted"
            page = PAGE.format(title=title).encode() if ours else b""
            self.send_response(200 if ours else 404)
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            self.wfile.write(page)
            if ours:
                came.append(query)

        def log_message(self, *_: Any) -> None:
            """The path holds the code."""

    try:
        # Browsers open connections that they do not use; none of them may keep the others waiting.
        server = _Server((target.hostname or LOOPBACK[0], target.port or 80), Handler)
    except OSError as error:
        raise MailConfigError(
            f"redirect_uri: cannot listen at {target.netloc} ({error.strerror}): end what does, or give --paste"
        ) from None
    with server:
        print(f"Waiting {seconds:.0f} s for the browser to come back to {target.netloc} ...", flush=True)
        end = time.monotonic() + seconds
        while not came and (left := end - time.monotonic()) > 0:
            server.timeout = min(left, KILL_POLL_SECONDS)
            server.handle_request()
    if not came:
        raise MailConfigError(f"the browser did not come back within {seconds:.0f} s; start anew, or give --paste")
    return came[0]


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)


def _is_host(target: SplitResult, host: str) -> bool:
    """Whether a browser that was sent to ``target`` says this of where it goes."""
    try:
        said = urlsplit(f"//{host}")
        return (said.hostname, said.port or 80) == (target.hostname, target.port or 80)
    except ValueError:
        return False


def _life(left: float | None) -> str:
    if left is None:
        return "is permanent"
    return f"is good for another {_span(left)}" if left > 0 else f"ended {_span(-left)} ago"


def _ago(moment: str) -> str:
    then = datetime.fromisoformat(moment)
    return f"{_span((datetime.now(UTC) - then).total_seconds())} ago"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
