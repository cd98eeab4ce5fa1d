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
    return {
        name: getattr(emulator.settings, f"oauth_{name}") for name in ("client_id", "client_secret", "redirect_uri")
    }


def store(emulator: Emulator, fields: dict[str, Any] | None) -> None:
    """Store the connection, instead of one that is there; without fields only remove that."""
    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id == CONN))
        if fields is not None:
            session.add(Connection(conn_id=CONN, conn_type="mail", host=emulator.base_url, extra=json.dumps(fields)))


@contextmanager
def stored(emulator: Emulator) -> Iterator[dict[str, Any]]:
    """The application's fields, in a connection that is there as long as the body runs."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        fields = register(emulator, held.getsockname()[1])
        store(emulator, fields)
        try:
            yield fields
        finally:
            store(emulator, None)


def extra() -> dict[str, Any]:
    """The connection's fields as they are now."""
    with create_session() as session:
        stored = session.scalars(select(Connection).where(Connection.conn_id == CONN)).one()
        return dict(json.loads(stored.extra))
