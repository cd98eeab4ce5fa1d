"""``airflow mail oauth``: the authorization-code flow (specification, "Authentication") from a terminal."""

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

from airflow.models import Connection
from airflow.utils.session import create_session
from pydantic import SecretStr
from sqlalchemy import select

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.oauth import GetToken, TokenResponse, authorize_url
from airflow_provider_mail.cli.commands import command, fail, show
from airflow_provider_mail.hooks.connection import client_config, fields_of, token_end
from airflow_provider_mail.hooks.mail import MailHook

LOOPBACK = ("127.0.0.1", "localhost", "::1")

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title></head>
<body style="font: 1.1rem/1.5 sans-serif; max-width: 34rem; margin: 4rem auto; padding: 0 1rem">
<h1>{title}</h1><p>You can close this page and return to the terminal.</p></body></html>
"""

MAX_ERROR_CHARACTERS = 200

KILL_POLL_SECONDS = 0.2
"""Seconds between checks for the redirect."""

Redirect = Mapping[str, str]
"""The query parameters of the redirect."""


@command
def login(args: Namespace) -> None:
    connection = MailHook.get_connection(args.conn_id)
    # Check everything before the user approves access.
    config = client_config(connection, auth_type="api_key", api_key=connection.password or "not used")
    fields = fields_of(connection)
    if missing := [name for name in ("client_id", "client_secret", "redirect_uri") if not fields.get(name)]:
        fail(f"connection {args.conn_id!r}: {', '.join(missing)}: required, as registered on the platform")
    if args.token_file is None and not is_stored(args.conn_id):
        fail(
            f"connection {args.conn_id!r} is in the environment or a secrets backend, not in Airflow's database: "
            "the token cannot be stored; pass --token-file, and store it yourself"
        )
    if args.token_file is not None and os.path.lexists(args.token_file):
        fail(f"--token-file: {args.token_file} exists")

    state = secrets.token_urlsafe(24)
    application = {name: fields[name] for name in ("client_id", "redirect_uri")}
    url = authorize_url(config.base_url, **application, state=state)
    print(f"Open this address in a browser and approve:\n\n  {url}\n", flush=True)
    target = urlsplit(fields["redirect_uri"])
    is_loopback = target.scheme == "http" and target.hostname in LOOPBACK
    if args.paste or not is_loopback:
        redirect = _query(input("Paste the address of the redirect: ").strip())
    else:
        redirect = _receive(target, state, args.wait)
    code = _code(redirect, state, missing_allowed=args.allow_missing_state)

    request = GetToken(client_id=fields["client_id"], client_secret=fields["client_secret"], code=SecretStr(code))
    with MailClient(config) as client:
        token = client.send(request)
    entries = _entries(token)
    if args.token_file is not None:
        _write(args.token_file, entries)
    else:
        _store(args.conn_id, entries)
    destination = args.token_file or f"connection {args.conn_id!r}"
    print(f"The access token is stored in {destination}; it {_life(_seconds_left(entries))}.")


@command
def status(args: Namespace) -> None:
    connection = MailHook.get_connection(args.conn_id)
    fields = fields_of(connection)
    auth_type = fields.get("auth_type", "api_key")
    row = {"connection": args.conn_id, "authentication": auth_type}
    data: dict[str, Any] = {"conn_id": args.conn_id, "auth_type": auth_type}
    if auth_type == "oauth":
        obtained, remaining = fields.get("oauth_obtained_at"), _seconds_left(fields)
        # A permanent token has no time of expiry; neither has one of which it is not known when it was obtained.
        is_life_known = obtained is not None or remaining is not None
        row |= {
            "token": "stored" if fields.get("access_token") else "none",
            "obtained": _ago(obtained) if obtained else "not by the login command",
            "life": _life(remaining) if is_life_known else "is not known",
        }
        data |= {
            "token_stored": bool(fields.get("access_token")),
            "obtained_at": obtained,
            "expires_at": fields.get("oauth_expires_at"),
            "is_permanent": remaining is None if is_life_known else None,
            "seconds_left": None if remaining is None else round(remaining),
        }
    show([row], args.output, data)


def is_stored(conn_id: str) -> bool:
    """Return whether Airflow uses the connection of its database for an id."""
    if f"AIRFLOW_CONN_{conn_id.upper()}" in os.environ:
        return False  # it takes precedence over the database
    with create_session() as session:
        return session.scalar(select(Connection).where(Connection.conn_id == conn_id)) is not None


def _store(conn_id: str, entries: Mapping[str, str]) -> None:
    with create_session() as session:
        connection = session.scalars(select(Connection).where(Connection.conn_id == conn_id)).one()
        # Change only the fields of the token; keep concurrent changes of the others.
        connection.set_extra(json.dumps({**json.loads(connection.extra or "{}"), **entries}))


def _write(path: str, entries: Mapping[str, str]) -> None:
    # Create it with permissions for the owner only, before writing.
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        json.dump(dict(entries), file, indent=2)


def _entries(token: TokenResponse) -> dict[str, str]:
    """Return the fields of the connection that belong to the token."""
    now = datetime.now(UTC).replace(microsecond=0)
    expires_at = "" if token.expires_in < 0 else (now + timedelta(seconds=token.expires_in)).isoformat()
    return {
        "auth_type": "oauth",
        "access_token": token.access_token.get_secret_value(),
        "oauth_obtained_at": now.isoformat(),
        "oauth_expires_at": expires_at,
    }


def _code(redirect: Redirect, state: str, *, missing_allowed: bool) -> str:
    """Return the authorization code of the redirect.

    Without the state any page open in the browser could redirect here with its own code, and mail would be sent with
    another account. The specification does not show whether the service returns the state.
    """
    if not _may_belong(redirect, state):
        raise MailConfigError("state: the redirect does not belong to this login and is ignored. Start again")
    if "error" in redirect:
        raise MailConfigError(f"access was not granted ({redirect['error'][:MAX_ERROR_CHARACTERS]})")
    if not redirect.get("code"):
        raise MailConfigError("access was not granted: the redirect has no code")
    if "state" not in redirect:
        _say("Warning: the service did not return the state, so the redirect cannot be verified.")
        if not (missing_allowed or _confirmed()):
            raise MailConfigError(
                "state: the redirect has none. Its code was not used: if it is from the page that you approved, run "
                "the command again with --paste --allow-missing-state within five minutes of the approval, and paste "
                "the address that the browser shows"
            )
    return redirect["code"]


def _may_belong(redirect: Redirect, state: str) -> bool:
    """Whether a redirect has no other state than that of this login."""
    return secrets.compare_digest(redirect.get("state", state).encode(), state.encode())


def _confirmed() -> bool:
    """Ask whether the redirect is the user's own, before its code is used up."""
    _say("Any page open in the browser could have sent it, with a code for another account.")
    try:
        return input("Have you just approved access in the browser? [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, OSError):
        return False  # there is no terminal to ask at


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _query(address: str) -> Redirect:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def _receive(target: SplitResult, state: str, seconds: float) -> Redirect:
    """Wait for the redirect on the loopback interface. Other requests, which any page can make, do not end the wait."""
    try:
        # Threads, since browsers open connections without using them.
        server = _Server(target, state)
    except OSError as error:
        raise MailConfigError(
            f"redirect_uri: cannot listen at {target.netloc} ({error.strerror}): free the port, or pass --paste"
        ) from None
    with server:
        print(f"Waiting {seconds:.0f} s for the redirect to {target.netloc} ...", flush=True)
        end = time.monotonic() + seconds
        while server.received is None and (remaining := end - time.monotonic()) > 0:
            server.timeout = min(remaining, KILL_POLL_SECONDS)
            server.handle_request()
    if server.received is None:
        others = f"; {server.others} requests for redirect_uri did not belong to this login" if server.others else ""
        raise MailConfigError(f"no redirect within {seconds:.0f} s{others}; start again, or pass --paste")
    return server.received


class _Server(ThreadingHTTPServer):
    received: Redirect | None = None
    others = 0

    def __init__(self, target: SplitResult, state: str) -> None:
        self.target = target
        self.state = state
        address = (target.hostname or LOOPBACK[0], target.port or 80)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        target, query = self.server.target, _query(self.path)
        # Another host name is DNS rebinding: a foreign page whose name resolves to this interface.
        is_for_login = urlsplit(self.path).path == (target.path or "/") and _is_host(
            target, self.headers.get("Host", "")
        )
        accepted = is_for_login and _may_belong(query, self.server.state) and query.keys() & {"code", "error", "state"}
        title = "The login was received" if query.get("code") else "Access was not granted"
        title = title if accepted else "The login is not this one"
        page = PAGE.format(title=title).encode() if is_for_login else b""
        status = 400 if is_for_login else 404
        # Before the response, after which the command may end.
        self.server.others += is_for_login and not accepted
        self.send_response(200 if accepted else status)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(page)
        if accepted:
            self.server.received = self.server.received or query

    def log_message(self, *_: Any) -> None:
        """Log nothing: the path holds the code."""


def _is_host(target: SplitResult, host: str) -> bool:
    """Whether the Host header of a request is that of ``target``."""
    try:
        actual = urlsplit(f"//{host}")
        return (actual.hostname, actual.port or 80) == (target.hostname, target.port or 80)
    except ValueError:
        return False


def _seconds_left(fields: Mapping[str, Any]) -> float | None:
    end = token_end(fields)
    return None if end is None else end.left


def _life(remaining: float | None) -> str:
    if remaining is None:
        return "is permanent"
    return f"is valid for another {_span(remaining)}" if remaining > 0 else f"expired {_span(-remaining)} ago"


def _ago(moment: str) -> str:
    return f"{_span((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())} ago"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
