"""The secret tokens in the URLs of the receiver, of which the database of the inbox holds digests."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from airflow_provider_mail.api.errors import MailConfigError, MailConflictError
from airflow_provider_mail.warehouse.dialects.inbox import qualified
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message

if TYPE_CHECKING:
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.webhook.inbox import Inbox

HIDDEN = "..."
"""What is shown in the place of a token."""

TOKENS_SECONDS = 5
"""How long it may take until a receiver knows a new token, and rejects a retired one."""

_NO_TOKEN = "the inbox has no valid token: make one with `airflow mail receive rotate`"


def new_token() -> str:
    """Return a new token of 256 random bits, which needs no quoting in a URL."""
    return secrets.token_urlsafe(32)


def token_digest(token: str) -> str:
    """Return what is stored of a token. A slow hash would add nothing: nobody guesses 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_of(path: str) -> str:
    """Return the token of a path: its last segment. What precedes it depends on proxies and base paths."""
    return path.rstrip("/").rpartition("/")[2]


def check_tokens(valid: Collection[str]) -> None:
    """Raise `MailConfigError` without a valid token."""
    if not valid:
        raise MailConfigError(_NO_TOKEN)


class TokenOwner(NamedTuple):
    """Whose tokens end together: several deployments may use one inbox, and the same id for different connections.

    :param account: digest of the credentials.
    """

    mail_conn_id: str
    service_host: str
    account: str

    @classmethod
    def of(cls, mail_conn_id: str, config: ClientConfig) -> TokenOwner:
        credentials = "\x00".join(config.credentials().values())
        return cls(mail_conn_id, httpx.URL(config.base_url).netloc.decode(), token_digest(credentials)[:32])


_IS_OWNERS = "mail_conn_id = {mark} AND service_host = {mark} AND account = {mark}"


class Tokens:
    """The table of tokens beside an inbox.

    :param owner: whose tokens these are. Only a rotation needs it: each receiver accepts the tokens of all.
    """

    def __init__(self, inbox: Inbox, owner: TokenOwner | None = None) -> None:
        self._inbox = inbox
        self._owner = owner or TokenOwner("", "", "")
        self.table = qualified(inbox.tokens_name)

    def valid(self) -> dict[str, str]:
        """Return the ids of the `mail` connections by the digests of their valid tokens."""
        with self._inbox.connected() as cursor:
            if not self._inbox.sql.exists(cursor, self._inbox.tokens_name):
                raise MailConfigError(_NO_TOKEN)
            self._run(
                cursor, "SELECT digest, mail_conn_id FROM {table} WHERE retires_at IS NULL OR retires_at > {time}", 0
            )
            return dict(cursor.fetchall())

    def claim(self, digests: Collection[str]) -> int:
        """Take over tokens of the connection that the service has in the URLs of the account.

        Otherwise, with a new API key, those of the former key would never end.

        :return: the number of other valid tokens of the connection, which belong to other services or accounts.
        """
        conn_id, host, account = self._owner
        claimed = "UPDATE {table} SET account = {mark} WHERE mail_conn_id = {mark} AND service_host = {mark} AND "
        others = (
            "SELECT count(*) FROM {table} WHERE mail_conn_id = {mark} AND NOT (service_host = {mark} AND account = "
            "{mark}) AND (retires_at IS NULL OR retires_at > {time})"
        )
        with self._inbox.connected() as cursor:
            for digest in digests:
                self._run(cursor, claimed + "digest = {mark}", account, conn_id, host, digest)
            self._run(cursor, others, conn_id, host, account, 0)
            count = int(cursor.fetchone()[0])
            cursor.connection.commit()
            return count

    def add(self, token: str) -> None:
        query = (
            "INSERT INTO {table} (digest, mail_conn_id, service_host, account, created_at) "
            "VALUES ({mark}, {mark}, {mark}, {mark}, {time})"
        )
        with self._inbox.connected() as cursor:
            self._run(cursor, query, token_digest(token), *self._owner, 0)
            cursor.connection.commit()

    @contextmanager
    def rotation(self) -> Iterator[Any]:
        """Keep other rotations of the connection out until `retire_others`; yield a cursor for it and for `digests`.

        In Postgres the lock is that of the cursor's transaction. If the database loses it, it loses the cursor, too,
        and no token is retired. In SQLite it is a lock of a file beside the database, for all connections.
        """
        mail_conn_id = self._owner.mail_conn_id
        name = f"mail rotation {self.table} {mail_conn_id}"
        with self._inbox.connected() as cursor, self._inbox.sql.only_one(cursor, name) as is_only_one:
            if not is_only_one:
                raise MailConflictError(
                    f"rotate again later: another rotation of connection {mail_conn_id!r} has not ended. Nothing was "
                    "changed"
                )
            yield cursor

    def digests(self, cursor: Any) -> list[str]:
        """Return those of the owner, the newest one first."""
        # A clock that was set back must not make a former token the newest.
        order = "created_at > {time}, created_at DESC"
        self._run(cursor, f"SELECT digest FROM {{table}} WHERE {_IS_OWNERS} ORDER BY {order}", *self._owner, 0)
        return [digest for (digest,) in cursor.fetchall()]

    def retire_others(self, cursor: Any, kept: Collection[str], grace: timedelta) -> None:
        """Let tokens of the owner end, and end the rotation.

        :param kept: digests of the tokens that do not end.
        :param grace: how long the others remain valid. One that ends sooner already does not get longer.
        :raises WarehouseError: the database has ended the rotation; no token ends.
        """
        query = (
            f"UPDATE {{table}} SET retires_at = {{time}} WHERE {_IS_OWNERS} "
            f"AND digest NOT IN ({', '.join(['{mark}'] * len(kept))}) "
            "AND (retires_at IS NULL OR retires_at > {time})"
        )
        seconds = grace.total_seconds()
        try:
            self._run(cursor, query, seconds, *self._owner, *kept, seconds)
            cursor.connection.commit()
        except Exception as error:
            message = safe_message(error)
        else:
            return
        raise WarehouseError(f"rotate again: the database has ended this rotation ({message}). No token ends")

    def _run(self, cursor: Any, query: str, *parameters: Any) -> None:
        mark = self._inbox.mark
        # The clock of the database decides what is valid and newer: of several machines, one may have a wrong clock.
        time = self._inbox.sql.now.format(mark=mark)
        cursor.execute(query.format(table=self.table, mark=mark, time=time), parameters)


def with_token(url: str, token: str) -> str:
    """Return a URL with another token as the last segment of its path."""
    parts = urlsplit(url)
    before = parts.path.rstrip("/").rpartition("/")[0]
    return parts._replace(path=f"{before}/{token}").geturl()
