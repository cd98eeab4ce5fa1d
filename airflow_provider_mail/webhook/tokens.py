"""The secret tokens in the URLs of the receiver, of which the database of the inbox holds digests."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider_mail.api.errors import MailConfigError, MailConflictError
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.table import MAX_PART_BYTES, NamePart, TableName
from airflow_provider_mail.webhook.inbox import qualified

if TYPE_CHECKING:
    from airflow_provider_mail.webhook.inbox import Inbox

HIDDEN = "..."
"""What is shown in the place of a token."""

TOKENS_SECONDS = 5
"""How long a receiver may not know a new token, and still accept a retired one."""


_NO_TOKEN = "the inbox has no valid token: make one with `airflow mail receive rotate`"


def new_token() -> str:
    """Return a new token of 256 random bits, which needs no quoting in a URL."""
    return secrets.token_urlsafe(32)


def token_digest(token: str) -> str:
    """Return what is stored of a token. A slow hash would add nothing: nobody guesses 256 random bits.

    :param token: the token.
    """
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def token_of(path: str) -> str:
    """Return the token of a path: its last segment. What precedes it depends on proxies and base paths.

    :param path: the path of a URL.
    """
    return path.rstrip("/").rpartition("/")[2]


class Tokens:
    """The table of tokens beside an inbox.

    :param inbox: the inbox.
    :raises WarehouseError: the name of the inbox is too long for a second table.
    """

    def __init__(self, inbox: Inbox) -> None:
        *schema, own = inbox.name.parts
        self._inbox = inbox
        name = NamePart(f"{own.text}_tokens", own.quoted)
        if len(name.text.encode()) > MAX_PART_BYTES:
            raise WarehouseError(f"[mail] inbox_table: {name.text!r} is longer than {MAX_PART_BYTES} bytes")
        self._name = TableName((*schema, name))
        self.table = qualified(self._name)

    def create(self) -> None:
        """Create the table unless it exists."""
        time = self._inbox.time_type
        self._inbox.create_table(
            self.table,
            f"digest text PRIMARY KEY, mail_conn_id text NOT NULL, created_at {time} NOT NULL, retires_at {time}",
        )

    def valid(self) -> dict[str, str]:
        """Return the ids of the `mail` connections by the digests of their valid tokens.

        :raises MailConfigError: there is no table of tokens.
        """
        with self._inbox.connected() as cursor:
            if not self._inbox.exists(cursor, self._name):
                raise MailConfigError(_NO_TOKEN)
            query = "SELECT digest, mail_conn_id FROM {table} WHERE retires_at IS NULL OR retires_at > {mark}"
            self._run(cursor, query, self._inbox.time(datetime.now(UTC)))
            return dict(cursor.fetchall())

    def check(self) -> None:
        """Check that there is a valid token.

        :raises MailConfigError: there is no valid token.
        """
        if not self.valid():
            raise MailConfigError(_NO_TOKEN)

    def digests(self, mail_conn_id: str) -> set[str]:
        """Return the digests of all tokens that a connection has and had.

        :param mail_conn_id: id of the `mail` connection.
        """
        with self._inbox.connected() as cursor:
            self._run(cursor, "SELECT digest FROM {table} WHERE mail_conn_id = {mark}", mail_conn_id)
            return {digest for (digest,) in cursor.fetchall()}

    def add(self, token: str, mail_conn_id: str) -> None:
        """Make a token valid.

        :param token: the token.
        :param mail_conn_id: id of the `mail` connection that its pushes belong to.
        """
        query = "INSERT INTO {table} (digest, mail_conn_id, created_at) VALUES ({mark}, {mark}, {mark})"
        with self._inbox.connected() as cursor:
            self._run(cursor, query, token_digest(token), mail_conn_id, self._inbox.time(datetime.now(UTC)))
            cursor.connection.commit()

    def retire_others(self, token: str, mail_conn_id: str, grace: timedelta, *, kept: int = 1) -> None:
        """Let the older tokens of a connection end.

        :param token: the newest token.
        :param mail_conn_id: id of the `mail` connection.
        :param grace: how long the others remain valid. One that ends sooner already does not get longer.
        :param kept: number of the newest tokens that do not end.
        :raises MailConflictError: another rotation has made a newer token; nothing is retired.
        """
        ends = self._inbox.time(datetime.now(UTC) + grace)
        newest = "SELECT digest FROM {table} WHERE mail_conn_id = {mark} ORDER BY created_at DESC LIMIT {mark}"
        retire = (
            "UPDATE {table} SET retires_at = {mark} WHERE mail_conn_id = {mark} "
            f"AND digest NOT IN ({newest}) AND (retires_at IS NULL OR retires_at > {{mark}})"
        )
        with self._inbox.connected() as cursor:
            self._run(cursor, newest, mail_conn_id, 1)
            if cursor.fetchone() != (token_digest(token),):
                raise MailConflictError(
                    f"connection {mail_conn_id!r}: another rotation has made a newer token meanwhile; "
                    "when it has ended, rotate again"
                )
            self._run(cursor, retire, ends, mail_conn_id, mail_conn_id, kept, ends)
            cursor.connection.commit()

    def _run(self, cursor: Any, query: str, *parameters: Any) -> None:
        cursor.execute(query.format(table=self.table, mark=self._inbox.mark), parameters)


def with_token(url: str, token: str) -> str:
    """Return a URL with another token as the last segment of its path.

    :param url: the URL, which has a token.
    :param token: the new token.
    """
    parts = urlsplit(url)
    before = parts.path.rstrip("/").rpartition("/")[0]
    return parts._replace(path=f"{before}/{token}").geturl()
