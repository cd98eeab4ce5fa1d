"""An OAuth application at the emulator, and a connection in Airflow's database that is ready for a login."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.models import Connection
from airflow.utils.session import create_session
from sqlalchemy import delete, select

from mail_emulator import Emulator

CONN = "mail_oauth"


def register(emulator: Emulator, port: int) -> dict[str, Any]:
    """Register a redirect to a port of this machine; gives back the connection's fields."""
    emulator.change_settings(oauth_redirect_uri=f"http://127.0.0.1:{port}/callback", oauth_echo_state=True)
    settings = emulator.settings
    return {
        "client_id": settings.oauth_client_id,
        "client_secret": settings.oauth_client_secret,
        "redirect_uri": settings.oauth_redirect_uri,
    }


def store(emulator: Emulator, fields: dict[str, Any]) -> None:
    """Store the connection, instead of one that is there."""
    remove()
    with create_session() as session:
        session.add(Connection(conn_id=CONN, conn_type="mail", host=emulator.base_url, extra=json.dumps(fields)))


def remove() -> None:
    """Remove it."""
    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id == CONN))


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port on which the command can listen, and which no other program is given."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def stored(emulator: Emulator) -> Iterator[dict[str, Any]]:
    """The application's fields, in a connection that is there as long as the body runs."""
    with reserved_port() as port:
        fields = register(emulator, port)
        store(emulator, fields)
        try:
            yield fields
        finally:
            remove()


def extra() -> dict[str, Any]:
    """The connection's fields as they are now."""
    with create_session() as session:
        fields: dict[str, Any] = json.loads(
            session.scalars(select(Connection).where(Connection.conn_id == CONN)).one().extra
        )
    return fields
