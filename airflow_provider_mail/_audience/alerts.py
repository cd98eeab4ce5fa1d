"""Alerts that wait for a summary, in a table beside the memory.

The first alert to some recipients opens a window; those inside of it are stored. Whichever process comes after it
claims all of them in one transaction, so that one summary is sent. Transactions take turns.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.warehouse.database import LoadRequest, Source, StoredTable, TableName, load
from airflow_provider_mail.warehouse.tables.imports import ALERTS

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail._audience.sealing import AudienceKey

WAITING, INTENDED, IN_DOUBT = "waiting", "intended", "in doubt"

CLAIM_SECONDS = 60
"""How long, in addition to the notifier's time-out, a claimed alert belongs to the process that sends it."""


@dataclass(frozen=True, slots=True)
class WaitingAlert:
    """An alert that was claimed.

    :param alert: its id.
    :param happened_at: in seconds since 1970.
    :param may_be_sent: whether an earlier mail may have reported it.
    :param content: what was stored.
    """

    alert: str
    happened_at: int
    may_be_sent: bool
    content: dict[str, Any]


class Alerts:
    """The table of one database."""

    def __init__(self, hook: DbApiHook, table: str, key: AudienceKey) -> None:
        self.hook, self._name, self._key = hook, table, key
        self._table = StoredTable(hook, ALERTS, table)

    def create(self) -> None:
        load(self.hook, LoadRequest(ALERTS, TableName.parse(self._name), Source([("", "", 0, 0, "", "", "")])))

    def digest_of(self, recipients: str) -> str:
        return self._key.people(f"digest/{recipients}".encode())[0]

    def claim(
        self, digest: str, content: dict[str, Any] | None = None, *, window: float = 0, timeout: float
    ) -> tuple[str, list[WaitingAlert]]:
        """Store an alert; if the window is over, open the next one and claim all alerts, to send them now.

        :param content: the alert, as JSON. Default: none, only those that wait are claimed.
        :param window: length of the window in seconds, of a new alert.
        :param timeout: seconds in which they will be sent.
        :return: the claim, for :meth:`settle`, and its alerts; none if the alert waits.
        """
        claim = uuid.uuid4().hex
        sealed = "" if content is None else self._key.seal(json.dumps(content).encode(), digest)

        def work(execute: Callable[..., Any]) -> list[Any]:
            mark, table = self.hook.placeholder, self._table.spelled
            execute(f"UPDATE {table} SET due_at = due_at + 1 WHERE digest = '' AND alert = ''")
            now = self._table.now(execute)
            is_of_window = f"WHERE digest = {mark} AND alert = ''"
            found = execute(f"SELECT happened_at, due_at FROM {table} {is_of_window}", [digest], reads=True)
            insert = f"INSERT INTO {table} (digest, alert, happened_at, due_at, state, claim, sealed) VALUES "
            insert += f"({', '.join([mark] * 7)})"
            if sealed:
                # Their ids keep the order of alerts of one second.
                alert = f"{time.time_ns():016x}{claim[:16]}"
                execute(insert, [digest, alert, now, 0, WAITING, "", sealed])
            if found and int(found[0][1]) > now:
                return []
            is_free = f"WHERE digest = {mark} AND alert <> '' AND due_at <= {mark}"
            rows = execute(
                f"SELECT alert, happened_at, state, sealed FROM {table} {is_free}", [digest, now], reads=True
            )
            if rows:
                execute(
                    f"UPDATE {table} SET claim = {mark}, due_at = {mark}, "
                    f"state = CASE WHEN state = {mark} THEN {mark} ELSE {mark} END {is_free}",
                    [claim, int(now + timeout + CLAIM_SECONDS), WAITING, INTENDED, IN_DOUBT, digest, now],
                )
                if found:
                    end = now + (int(window) or int(found[0][1]) - int(found[0][0]))
                    execute(
                        f"UPDATE {table} SET happened_at = {mark}, due_at = {mark} {is_of_window}", [now, end, digest]
                    )
                else:
                    execute(insert, [digest, "", now, now + int(window), "", "", ""])
            return list(rows)

        rows = self._table.transaction(work)
        try:
            alerts = [
                WaitingAlert(alert, int(at), state != WAITING, json.loads(self._key.unseal(stored, digest)))
                for alert, at, state, stored in rows
            ]
        except ValueError:
            raise MailConfigError(
                f"[mail] memory_conn_id: the alerts in table {self._name} are hidden by another secret: give [mail] "
                "audience_key, or [core] fernet_key, its former value, too"
            ) from None
        return claim, sorted(alerts, key=lambda alert: (alert.happened_at, alert.alert))

    def settle(self, claim: str, outcome: str) -> None:
        """Store what has become of claimed alerts.

        :param outcome: ``sent`` deletes them; ``in doubt`` and ``waiting`` leave them to the next summary.
        """
        mark, table = self.hook.placeholder, self._table.spelled
        statement, values = f"DELETE FROM {table}", []
        if outcome != "sent":
            statement = f"UPDATE {table} SET due_at = 0, state = CASE WHEN state = {mark} THEN {mark} ELSE {mark} END"
            values = [INTENDED, outcome, IN_DOUBT]
        self._table.transaction(lambda execute: execute(f"{statement} WHERE claim = {mark}", [*values, claim]))

    def due(self) -> list[str]:
        """Return the digests of which alerts wait and the window may be over."""
        return [digest for (digest,) in self._table.select("DISTINCT digest", "alert <> ''")]
