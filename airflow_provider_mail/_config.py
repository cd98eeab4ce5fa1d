"""The section ``[mail]`` of Airflow's configuration: its options, which are read here and nowhere else.

Every Airflow command imports this module: keep it cheap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any, NamedTuple

from airflow_provider_mail.api.errors import MailConfigError

SECTION = "mail"

MAX_BODY_BYTES = 256 * 2**20
"""The largest limit of a body. Postgres holds up to 1 GiB in one value, and drivers send twice as much."""


def documentation_url() -> str:
    """Return the address of the documentation, which only the package's metadata has; empty if it is not installed."""
    try:
        urls = metadata("airflow-provider-mail").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    return next((url.partition(", ")[2] for url in urls if url.startswith("Documentation, ")), "")


def _option(
    description: str, *, kind: str = "string", default: str = "", example: str | None = None, **more: Any
) -> dict[str, Any]:
    return {"description": description, "type": kind, "default": default, **more, "example": example}


def _table(holds: str, default: str) -> dict[str, Any]:
    return _option(f"The table of {holds}, optionally with its schema.", default=default)


OPTIONS: dict[str, dict[str, Any]] = {
    "name_prefix": _option(
        "What the default names of campaigns begin with, and what the default ids of transactional "
        "messages and notifications are made of, before dag id, task id and run id; the tokens of the receiver carry "
        "it, too. Set it where two Airflow deployments with the same dag ids use one account of the service, or two "
        "deployments one inbox: each takes the other's campaigns and tokens for its own otherwise. A change concerns "
        "runs that are not finished: their cleared tasks do not find what they created.",
        example="production",
    ),
    "inbox_conn_id": _option(
        "The connection of the Postgres or SQLite database that keeps received pushes. Empty: nothing is received.",
        example="warehouse",
    ),
    "inbox_table": _option(
        "The table of received pushes, optionally with its schema.",
        default="mail_inbox",
        example="mail.inbox",
    ),
    "receive_url": _option(
        "The URL under which the service reaches the receiver, without the token. ``airflow mail "
        "receive rotate`` puts it before a new token.",
        example="https://events.example.com",
    ),
    "receive_user_agent": _option(
        "The ``User-Agent`` of pushes; others are answered with 403. Empty: every one is accepted.",
        default="ServiceWebhooks",
    ),
    "receive_max_body_bytes": _option(
        "The longest push in bytes; longer ones are answered with 413.",
        kind="integer",
        default=str(8 * 2**20),
    ),
    "receive_max_pending_bytes": _option(
        "Bytes of pushes that arrive or wait to be written to the inbox, for each process of the "
        "receiver. Beyond them it answers 503, and the service tries again.",
        kind="integer",
        default=str(64 * 2**20),
    ),
    "receive_max_inbox_bytes": _option(
        "Bytes of pushes, before compression, that may wait in the inbox to be drained. Beyond them the "
        "receiver answers 503, and the service tries again.",
        kind="integer",
        default=str(10 * 2**30),
    ),
    "audience_key": _option(
        "The secret by which the state of audiences (``changes_only``) and the people in the memory "
        "are hidden, the same on all workers. Empty: Airflow's ``[core] fernet_key``. With another one, the next run "
        "of each audience sends everybody, and tasks with a memory fail before they send.",
        sensitive=True,
    ),
    "imports_conn_id": _option(
        "The connection of the database in which every import of contacts stores its counts. Empty: none are stored.",
        example="warehouse",
    ),
    "imports_table": _option(
        "The table of the counts of imports, optionally with its schema.",
        default="mail_imports",
        example="mail.imports",
    ),
    "memory_conn_id": _option(
        "The connection of the database that remembers who was mailed what: ``once_per`` and ``at_most`` need it, and "
        "transactional mail of all tasks is recorded there instead of in the task state store. Alerts of notifiers "
        "with a ``digest`` wait in a table whose name ends with ``_alerts``. ``airflow mail memory create`` "
        "creates its tables. Empty: there is no memory.",
        example="warehouse",
    ),
    "memory_table": _table("who was mailed what", "mail_memory"),
    "page_conn_id": _option(
        "The connection of the database whose tables the page shows. Empty: there is no page.",
        example="warehouse",
    ),
    "page_campaign_stats_table": _table("the statistics of campaigns", "mail_campaign_stats"),
    "page_snapshots_table": _option(
        "The table of their snapshots. Empty: the name of ``page_campaign_stats_table``, followed by ``_snapshots``.",
    ),
    "page_campaigns_table": _table("campaign send tasks", "mail_campaigns"),
    "page_contacts_table": _table("contacts", "mail_contacts"),
    "page_transactional_stats_table": _table("the daily statistics of transactional mail", "mail_transactional_stats"),
    "page_events_table": _table("events", "mail_events"),
    "page_dead_letters_table": _table("events that could not be read", "mail_dead_letters"),
    "page_event_differences_table": _table("differences between events and statistics", "mail_event_differences"),
    "page_audience_runs_table": _table("runs of audiences: the ``log_table`` of imports", "mail_audience_runs"),
}


def setting(name: str) -> str:
    """Return the text of an option, or its default."""
    from airflow_provider_mail.version_compat import conf

    return str(conf.get(SECTION, name, fallback=OPTIONS[name]["default"]) or "").strip()


def number(name: str) -> int:
    """Return the number of an option.

    :raises MailConfigError: it is not a whole number.
    """
    text = setting(name)
    if not re.fullmatch(r"\d{1,18}", text):
        raise MailConfigError(f"[mail] {name}: must be a whole number, not {text!r}")
    return int(text)


def name_prefix() -> str:
    """Return the prefix with its separator, which dag ids cannot contain; empty if none is set."""
    prefix = setting("name_prefix")
    return f"{prefix}:" if prefix else ""


class InboxName(NamedTuple):
    """Where an inbox is."""

    conn_id: str
    table: str

    def __str__(self) -> str:
        return f"inbox {self.table!r} of connection {self.conn_id!r}"


def configured_inbox(conn_id: str | None = None, table: str | None = None) -> InboxName | None:
    """Return where the inbox is; ``None`` where no connection is given or configured."""
    conn_id = conn_id or setting("inbox_conn_id")
    return InboxName(conn_id, table or setting("inbox_table")) if conn_id else None


@dataclass(frozen=True)
class ReceiverSettings:
    """The settings of the receiver, checked."""

    receive_url: str
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
            receive_url=setting("receive_url").rstrip("/"),
            receive_user_agent=setting("receive_user_agent"),
            receive_max_body_bytes=number("receive_max_body_bytes"),
            receive_max_pending_bytes=number("receive_max_pending_bytes"),
            receive_max_inbox_bytes=number("receive_max_inbox_bytes"),
        )


def config() -> dict[str, Any]:
    """Return the section for the provider information."""
    options = {name: {"version_added": "0.1.0", **option} for name, option in OPTIONS.items()}
    description = "Default names, events that the email service pushes, the counts of imports, and Airflow's page."
    return {SECTION: {"description": description, "options": options}}
