"""Hold mass mail: no task creates a campaign, sends a batch or imports contacts until the hold is released.

The holds, of all connections or of one, are the Airflow Variable ``mail_hold``. Tasks read it right before each request
that would mail people or import them. A hold that cannot be read counts as set.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_mail.api.errors import MailError, MailHeldError
from airflow_provider_mail.version_compat import (
    AIRFLOW_V_3_2_PLUS,
    ASKING,
    knows_variables,
    store_variable,
    stored_variable,
)

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.cancel_campaign import StopResult
    from airflow_provider_mail.hooks.mail import MailHook

__all__ = ["Hold", "current_hold", "release_hold", "set_hold", "stop"]

VARIABLE = "mail_hold"

FRESH_SECONDS = 2.0
"""A task that sends many requests reads the hold again after this time."""

UPLOAD_SECONDS = 6.0
"""Time in which a request that a task has begun to send has reached the service."""

SETTLE_SECONDS = FRESH_SECONDS + UPLOAD_SECONDS
"""Time after which nothing arrives that was sent in reliance on a reading from before the hold was set."""

OVERWRITE_SECONDS = 0.5
"""Time after which another process that read the Variable before it was written has written it, too."""

MAX_WRITES = 10
"""Attempts to store a hold, each of which another process may overwrite."""

RELEASE = f"{'airflow mail' if AIRFLOW_V_3_2_PLUS else 'python -m airflow_provider_mail'} release"
"""The command that releases a hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A hold.

    :param set_by: the person or task that set it.
    :param set_at: when it was set, ISO 8601 in UTC.
    :param reason: why it was set.
    :param mail_conn_id: the connection whose mass mail is held; empty for all.
    """

    set_by: str
    set_at: str
    reason: str = ""
    mail_conn_id: str = ""

    def __str__(self) -> str:
        return f"set by {self.set_by} at {self.set_at}{f': {self.reason}' if self.reason else ''}"

    @property
    def since(self) -> datetime | None:
        """When it was set; ``None`` where a person wrote the Variable."""
        try:
            return datetime.fromisoformat(self.set_at)
        except ValueError:
            return None

    @property
    def held(self) -> str:
        """What is held, for a sentence: ``all mass mail`` or that of a connection."""
        return f"mass mail of connection {self.mail_conn_id!r}" if self.mail_conn_id else "all mass mail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """The value of the Variable.

    :param holds: the holds that are set, by connection; the empty text stands for all connections.
    :param released: the last hold that was released, with ``released_by`` and ``released_at``; empty if none was.
    """

    holds: Mapping[str, Hold] = field(default_factory=dict)
    released: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> Holds:
        """Read the value of the Variable. Any value that was not written here holds: a person may have written it."""
        if text is None:
            return cls()
        try:
            value = json.loads(text)
            holds = [Hold(**hold) for hold in (value["holds"].values() if "holds" in value else [value])]
            released = dict(value.get("released") or {})
        except (AttributeError, KeyError, TypeError, ValueError):
            holds, released = [Hold(set_by="unknown", set_at="unknown", reason=text)], {}
        return cls(holds={hold.mail_conn_id: hold for hold in holds}, released=released)

    def applying_to(self, mail_conn_id: str | None) -> Hold | None:
        """Return the hold of a connection or of all; for ``None``, any."""
        if mail_conn_id is None:
            return next(iter(self.holds.values()), None)
        return self.holds.get("") or self.holds.get(mail_conn_id)

    def __str__(self) -> str:
        """Return a sentence for each hold; empty if there is none."""
        return " ".join(f"{hold.held[0].upper()}{hold.held[1:]} is held, {hold}." for hold in self.holds.values())

    @property
    def last_release(self) -> str:
        """A sentence about the last hold that was released; empty if none was."""
        return (
            "The hold set by {set_by} was released by {released_by} at {released_at}.".format(**self.released)
            if (self.released.keys() >= {"set_by", "released_by", "released_at"})
            else ""
        )


class HoldCheck:
    """Reads the holds at first use, and again when the reading is older than :data:`FRESH_SECONDS`.

    :param mail_conn_id: the connection of the requests.
    """

    def __init__(self, mail_conn_id: str) -> None:
        self._mail_conn_id = mail_conn_id
        self._released_until = float("-inf")

    def __call__(self, operation: str) -> None:
        """Check that nothing is held.

        :param operation: the path of the operation that would be sent.
        :raises MailHeldError: a hold is set, or could not be read.
        """
        with ASKING:
            began = time.monotonic()
            if began < self._released_until:
                return
            try:
                hold = current_hold(self._mail_conn_id)
            except Exception as error:
                raise MailHeldError(
                    f"the Variable {VARIABLE!r} could not be read ({type(error).__name__}), so a hold may be set: this "
                    "request was not sent. Check that the worker reaches Airflow's API server, then clear the task",
                    operation=operation,
                ) from error
            if hold is not None:
                raise MailHeldError(
                    f"{hold.held} is held, {hold}. This request was not sent. To go on, release it with "
                    f"`{RELEASE}`, then clear the task",
                    operation=operation,
                )
            self._released_until = began + FRESH_SECONDS


def current_hold(mail_conn_id: str | None = None) -> Hold | None:
    """Return the hold that is set, or ``None``.

    A Variable in the environment (``AIRFLOW_VAR_MAIL_HOLD``) holds as well. In a process that is neither a task nor a
    server of Airflow, such as a unit test, only the environment is read.

    :param mail_conn_id: the connection of the requests. Default: any.
    :raises Exception: Airflow's error when the Variable cannot be read.
    """
    text = os.environ.get(f"AIRFLOW_VAR_{VARIABLE.upper()}")
    if text is None and knows_variables():
        return stored_holds().applying_to(mail_conn_id)
    return Holds.parse(text).applying_to(mail_conn_id)


def stored_holds() -> Holds:
    """Return the holds in Airflow's database.

    :raises Exception: Airflow's error when the Variable cannot be read.
    """
    return Holds.parse(stored_variable(VARIABLE))


def set_hold(*, set_by: str, reason: str = "", mail_conn_id: str | None = None) -> Hold:
    """Hold mass mail, in all DAGs.

    :param set_by: the person or task that sets it; shown in every message of a held task.
    :param reason: why.
    :param mail_conn_id: the connection whose mass mail is held. Default: all connections.
    :return: the hold.
    :raises MailError: Airflow did not store it.
    """
    hold = Hold(set_by=set_by, set_at=_now(), reason=reason, mail_conn_id=mail_conn_id or "")
    for _ in range(MAX_WRITES):
        before = stored_holds()
        if before.holds.get(hold.mail_conn_id) == hold:
            return hold
        _store(Holds(holds={**before.holds, hold.mail_conn_id: hold}, released=before.released))
        # Another process that sets or releases a hold at this moment may have overwritten it.
        time.sleep(OVERWRITE_SECONDS)
    raise MailError(f"the Variable {VARIABLE!r} was not stored: nothing is held. Set it in Airflow's interface")


def release_hold(*, released_by: str = "unknown", mail_conn_id: str | None = None) -> Hold | None:
    """Release a hold; return the one that was set, or ``None``.

    :param released_by: the person or task that releases it; the page shows it.
    :param mail_conn_id: the connection for which it was set. Default: all holds are released.
    :raises MailError: it is still set.
    """
    before = stored_holds()
    left = {name: hold for name, hold in before.holds.items() if mail_conn_id is not None and name != mail_conn_id}
    released = next((hold for name, hold in before.holds.items() if name not in left), None)
    if released is not None:
        _store(Holds(holds=left, released={**asdict(released), "released_by": released_by, "released_at": _now()}))
        released_now = stored_holds().holds.get(released.mail_conn_id) is None
    if os.environ.get(f"AIRFLOW_VAR_{VARIABLE.upper()}") is not None or (released is not None and not released_now):
        raise MailError(
            f"the Variable {VARIABLE!r} is still set: delete it in Airflow's interface, and in the environment of "
            f"workers and API servers (AIRFLOW_VAR_{VARIABLE.upper()})"
        )
    return released


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _store(holds: Holds) -> None:
    store_variable(VARIABLE, json.dumps(asdict(holds)), "Which mass mail is held, by connection")


def stop(hook: MailHook, *, prefix: str = "", hold: Hold | None = None) -> StopResult:
    """Cancel every scheduled campaign of a connection whose name begins with ``prefix``.

    :param hook: the hook of the connection.
    :param prefix: the beginning of the names. Default: all campaigns.
    :param hold: the hold that was set just before. The campaigns that tasks were about to create are then cancelled as
        well, a few seconds later. Default: none was set.
    :raises MailError: the campaigns could not be listed.
    """
    from airflow_provider_mail.api.flows.cancel_campaign import stop_campaigns

    client = hook.get_conn()
    settle_seconds = 0.0 if hold is None else SETTLE_SECONDS
    return stop_campaigns(client, prefix, settle_seconds=settle_seconds)
