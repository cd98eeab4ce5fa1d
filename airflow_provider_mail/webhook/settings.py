"""The section ``[mail]`` of Airflow's configuration. Every Airflow command imports this module: keep it cheap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.webhook import DEFAULT_TABLE

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.webhook.inbox import Inbox

SECTION = "mail"

URL_PREFIX = "/mail-events"
"""Where the API server mounts the receiver, below its base path."""

MAX_BODY_BYTES = 256 * 2**20
"""The largest limit of a body. Postgres holds up to 1 GiB in one value, and drivers send twice as much."""

OPTIONS: dict[str, dict[str, Any]] = {
    "inbox_conn_id": {
        "description": "The connection of the Postgres or SQLite database that keeps received pushes. Empty: nothing "
        "is received.",
        "type": "string",
        "default": "",
        "example": "warehouse",
    },
    "inbox_table": {
        "description": "The table of received pushes, optionally with its schema. The digests of the tokens are in a "
        "second table, whose name ends with ``_tokens``.",
        "type": "string",
        "default": DEFAULT_TABLE,
        "example": "mail.inbox",
    },
    "receive_url": {
        "description": "The URL under which the service reaches the receiver, without the token. ``airflow mail "
        "receive rotate`` puts it before a new token.",
        "type": "string",
        "default": "",
        "example": f"https://airflow.example.com{URL_PREFIX}",
    },
    "receive_in_api_server": {
        "description": f"Whether Airflow's API server receives pushes below its path ``{URL_PREFIX}``. This path asks "
        "for no login: anyone who knows the token can push.",
        "type": "boolean",
        "default": "False",
        "example": None,
    },
    "receive_user_agent": {
        "description": "The ``User-Agent`` of pushes; others are answered with 403. Empty: every one is accepted.",
        "type": "string",
        "default": "ServiceWebhooks",
        "example": None,
    },
    "receive_max_body_bytes": {
        "description": "The longest push in bytes; longer ones are answered with 413.",
        "type": "integer",
        "default": str(8 * 2**20),
        "example": None,
    },
    "receive_max_pending_bytes": {
        "description": "Bytes of pushes that arrive or wait to be written to the inbox, for each process of the "
        "receiver. Beyond them it answers 503, and the service tries again.",
        "type": "integer",
        "default": str(64 * 2**20),
        "example": None,
    },
    "receive_max_inbox_bytes": {
        "description": "Bytes of pushes, before compression, that may wait in the inbox to be drained. Beyond them the "
        "receiver answers 503, and the service tries again.",
        "type": "integer",
        "default": str(10 * 2**30),
        "example": None,
    },
}


@dataclass(frozen=True)
class ReceiverSettings:
    """The settings of the receiver, checked.

    :param inbox_conn_id: the connection of the inbox; empty when nothing is received.
    :param inbox_table: the table of the inbox.
    :param receive_url: the URL of the receiver without the token; may be empty.
    :param receive_in_api_server: whether the API server receives.
    :param receive_user_agent: the only ``User-Agent`` that is accepted; empty for all.
    :param receive_max_body_bytes: the longest push.
    :param receive_max_pending_bytes: bytes that may arrive and wait to be written.
    :param receive_max_inbox_bytes: bytes that may wait to be drained.
    """

    inbox_conn_id: str
    inbox_table: str
    receive_url: str
    receive_in_api_server: bool
    receive_user_agent: str
    receive_max_body_bytes: int
    receive_max_pending_bytes: int
    receive_max_inbox_bytes: int

    def __post_init__(self) -> None:
        if self.receive_url and not re.fullmatch(r"https?://[^\s?#]+", self.receive_url):
            raise MailConfigError("[mail] receive_url: must begin with https:// or http://, without a query")
        if not 0 < self.receive_max_body_bytes <= MAX_BODY_BYTES:
            raise MailConfigError(f"[mail] receive_max_body_bytes: must be from 1 to {MAX_BODY_BYTES}")
        for name in ("receive_max_pending_bytes", "receive_max_inbox_bytes"):
            if getattr(self, name) < self.receive_max_body_bytes:
                raise MailConfigError(f"[mail] {name}: must be at least receive_max_body_bytes")

    @classmethod
    def from_airflow(cls) -> ReceiverSettings:
        """Read the section.

        :raises MailConfigError: an option has an impossible value.
        """
        return cls(
            inbox_conn_id=setting("inbox_conn_id"),
            inbox_table=setting("inbox_table"),
            receive_url=setting("receive_url").rstrip("/"),
            receive_in_api_server=receives_in_api_server(),
            receive_user_agent=setting("receive_user_agent"),
            receive_max_body_bytes=_number("receive_max_body_bytes"),
            receive_max_pending_bytes=_number("receive_max_pending_bytes"),
            receive_max_inbox_bytes=_number("receive_max_inbox_bytes"),
        )

    def inbox(self, conn_id: str | None = None, table: str | None = None) -> Inbox:
        """Return the inbox.

        :param conn_id: the connection to another inbox. Default: the one of the settings.
        :param table: another table. Default: the one of the settings.
        :raises MailConfigError: there is no ``inbox_conn_id``, or no such database.
        :raises WarehouseError: it is neither Postgres nor SQLite.
        """
        conn_id = conn_id or self.inbox_conn_id
        if not conn_id:
            raise MailConfigError(
                "[mail] inbox_conn_id: there is no inbox; set it to the connection of a Postgres or SQLite database "
                "(AIRFLOW__MAIL__INBOX_CONN_ID)"
            )
        return inbox_of(conn_id, table or self.inbox_table)


class InboxName(NamedTuple):
    """Where an inbox is."""

    conn_id: str
    table: str

    def __str__(self) -> str:
        return f"inbox {self.table!r} of connection {self.conn_id!r}"


def configured_inbox(conn_id: str | None = None, table: str | None = None) -> InboxName | None:
    """Return where the inbox is; ``None`` where no connection is given or configured.

    :param conn_id: the connection to its database. Default: ``[mail] inbox_conn_id`` of Airflow's configuration.
    :param table: its table. Default: ``[mail] inbox_table``, or ``mail_inbox``.
    """
    conn_id = conn_id or setting("inbox_conn_id")
    return InboxName(conn_id, table or setting("inbox_table")) if conn_id else None


def inbox_of(conn_id: str, table: str) -> Inbox:
    """Return the inbox in a database.

    :raises MailConfigError: there is no such database.
    :raises WarehouseError: it is neither Postgres nor SQLite.
    """
    from airflow_provider_mail.webhook.inbox import Inbox

    hook = database_hook(conn_id, option="inbox_conn_id", needs="the inbox needs a Postgres or SQLite database")
    return Inbox(hook, table)


def database_hook(conn_id: str, *, option: str, needs: str) -> DbApiHook:
    """Return the hook of a database.

    :param option: the option that names it, for errors.
    :param needs: the error message for a connection that is not to a database.
    :raises MailConfigError: there is no such database.
    """
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.version_compat import AirflowException, BaseHook

    try:
        hook = BaseHook.get_connection(conn_id).get_hook()
    except (AirflowException, ImportError) as error:
        raise MailConfigError(f"[mail] {option}: connection {conn_id!r}: {error}") from None
    if not isinstance(hook, DbApiHook):
        raise MailConfigError(f"[mail] {option}: {conn_id!r}: {needs}")
    return hook


def receives_in_api_server() -> bool:
    """Return whether the API server receives pushes; cheap, since every part of Airflow may ask."""
    from airflow_provider_mail.version_compat import conf

    return bool(conf.getboolean(SECTION, "receive_in_api_server", fallback=False))


def setting(name: str, options: Mapping[str, Mapping[str, Any]] = OPTIONS) -> str:
    """Return the text of an option, or its default.

    :param options: the options that contain it. Default: those of the receiver.
    """
    from airflow_provider_mail.version_compat import conf

    return str(conf.get(SECTION, name, fallback=options[name]["default"]) or "").strip()


def _number(name: str) -> int:
    text = setting(name)
    if not re.fullmatch(r"\d{1,18}", text):
        raise MailConfigError(f"[mail] {name}: must be a whole number, not {text!r}")
    return int(text)
