"""The control interface that ``Emulator`` and ``EmulatorClient`` share: read the state, change settings, reset."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

from mail_emulator import contacts, oauth
from mail_emulator.campaign_life import DONE, SENDING, counts, mail_status
from mail_emulator.clock import VirtualClock, iso
from mail_emulator.inbox.control import InboxControl
from mail_emulator.responses import decode_json
from mail_emulator.rpc import Channel, ClockControl, FaultControl, Group, JournalControl, control
from mail_emulator.seeding import Seeding
from mail_emulator.store import Row
from mail_emulator.webhooks import configuration


class ControlApi(Seeding):
    """The control interface that ``Emulator`` and ``EmulatorClient`` share.

    :param channel: how calls reach the emulator.
    """

    # Not only in __init__: the pages, which mypy reads before, need the types.
    clock: ClockControl
    faults: FaultControl
    journal: JournalControl
    inbox: InboxControl

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.clock = ClockControl(channel)
        self.faults = FaultControl(channel)
        self.journal = JournalControl(channel)
        self.inbox = InboxControl(channel)

    def groups(self) -> dict[str, Group]:
        """Return all groups by their place in the path."""
        return {group.name: group for group in (self, self.clock, self.faults, self.journal, self.inbox)}

    @control
    def read_settings(self) -> dict[str, Any]:
        """Return all settings by name."""
        settings = self.service.settings
        return {name: getattr(settings, name) for name in settings.__slots__}

    @control
    def change_settings(self, **values: Any) -> None:
        """Change settings: all of them, or none if one is unknown or invalid.

        :param values: values by name.
        :raises ValueError: naming the setting.
        """
        self.service.settings.update(values)

    @control
    def reset(self) -> None:
        """Delete all state, faults and journal entries, and run the clock with real time; settings are kept."""
        service = self.service
        service.store.clear()
        service.faults.added.clear()
        service.journal.clear()
        service.clock = VirtualClock()

    @control
    def issue_token(self) -> str:
        """Issue an OAuth access token without the flow."""
        return str(oauth.issue(self.service.context())["token"])

    @control
    def pause_listening(self, seconds: float) -> None:
        """Refuse new connections; open ones continue.

        :param seconds: real seconds.
        :raises ValueError: they are negative or not finite.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError("seconds: must be a finite number that is not negative")
        self._local.notify(lambda: self.server.pause(seconds))

    @control
    def crashes(self) -> list[str]:
        """Return tracebacks of errors of the emulator itself."""
        return self.service.crashes

    @control
    def pushes(self) -> list[dict[str, Any]]:
        """Return attempts to push events (the fields of ``webhook_delivery.Push``), oldest first."""
        return [asdict(push) for push in self.server.webhook_sender.pushes]

    @control
    def push_status(self) -> dict[str, int]:
        """Return the number of completed checks for due events (``looks``) and of ``unfinished`` pushes."""
        sender = self.server.webhook_sender
        return {"looks": sender.looks, "unfinished": sender.unfinished}

    def flush_events(self, timeout: float = 30.0) -> None:
        """Wait until every due event was pushed or given up.

        :param timeout: real seconds to wait.
        :raises TimeoutError: when events are still unfinished then.
        """
        deadline = time.monotonic() + timeout
        # The current check may have begun too early, so wait for the second from now.
        enough = self.push_status()["looks"] + 2
        while (status := self.push_status())["looks"] < enough or status["unfinished"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"events are still unfinished after {timeout:g} s")
            time.sleep(0.005)

    # The state, read without a request in the journal, as plain JSON.

    @control
    def contact(self, email: str) -> dict[str, Any] | None:
        """Return a contact in the form of the specification's section "Contact"; None when there is none.

        :param email: its address.
        """
        row = contacts.find(self.service.context(), email)
        return None if row is None else contacts.to_json(row)

    @control
    def contacts(
        self, list_name: str | None = None, *, limit: int | None = None, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Return contacts, in the order of creation.

        :param list_name: only those of this list. Default: all.
        :param limit: maximum number. Default: all.
        :param offset: how many to skip.
        """
        store = self.service.store
        part = [-1 if limit is None else limit, offset]
        if list_name is None:
            rows = store.rows("SELECT * FROM contacts ORDER BY id LIMIT ? OFFSET ?", part)
        else:
            rows = store.rows(
                "SELECT contacts.* FROM members JOIN contacts ON contacts.id = contact_id "
                "WHERE list_id = (SELECT id FROM lists WHERE name = ?) ORDER BY contact_id LIMIT ? OFFSET ?",
                [list_name, *part],
            )
        return [contacts.to_json(row) for row in rows]

    @control
    def contact_count(self, list_name: str | None = None) -> int:
        """Return the number of contacts.

        :param list_name: only those of this list; 0 when there is none of that name. Default: all.
        """
        store = self.service.store
        if list_name is None:
            return int(store.value("SELECT count(*) FROM contacts"))
        list_id = store.value("SELECT id FROM lists WHERE name = ?", [list_name])
        return 0 if list_id is None else store.members.total(list_id)

    @control
    def lists(self) -> list[dict[str, Any]]:
        """All lists: name, description, team, type (0 dynamic, 1 static) and number of contacts."""
        rows = self.service.store.rows("SELECT id, name, description, team, type FROM lists ORDER BY id")
        return [{**row, "contacts": self.service.store.members.total(row.pop("id"))} for row in rows]

    @control
    def templates(self) -> list[dict[str, Any]]:
        """All templates: name, subject, content, editor."""
        return self.service.store.rows("SELECT name, subject, content, editor FROM templates ORDER BY id")

    @control
    def senders(self) -> list[dict[str, Any]]:
        """All sender entries: entry and type."""
        return self.service.store.rows("SELECT entry, type FROM senders ORDER BY id")

    @control
    def suppressions(self) -> dict[str, str]:
        """Return suppressed addresses and the reason of each."""
        return {row["key"]: row["reason"] for row in self.service.store.rows("SELECT * FROM suppressions")}

    @control
    def campaigns(self, mail_name: str | None = None) -> list[dict[str, Any]]:
        """Return tasks, also removed ones, oldest first.

        Each with id, guid, mailName, state (draft, scheduled, sending, done, failed), mailStatus, removed, cancelled,
        keptBecause, attachmentBytes, created, sendDate (ISO 8601), request (the body of its creation without the
        attachment), sentCount (how many it was sent to, 0 before sending) and, when done, mailStats.

        :param mail_name: only those of exactly this name. Default: all.
        """
        rows = self.service.store.rows(
            "SELECT * FROM campaigns WHERE ? IS NULL OR name = ? ORDER BY id", [mail_name, mail_name]
        )
        return [self._campaign(row) for row in rows]

    @control
    def newest_campaigns(
        self, limit: int = 50, *, before: int | None = None, containing: str = ""
    ) -> list[dict[str, Any]]:
        """Return tasks in the form of :meth:`campaigns`, newest first.

        :param limit: maximum number.
        :param before: only those with a lower id.
        :param containing: only those with this in their name or subject, in upper or lower case.
        """
        rows = self.service.store.rows(
            "SELECT * FROM campaigns WHERE (:before IS NULL OR id < :before) AND "
            "(instr(lower(name), :text) OR instr(lower(subject), :text)) ORDER BY id DESC LIMIT :limit",
            {"before": before, "text": containing.lower(), "limit": limit},
        )
        return [self._campaign(row) for row in rows]

    @control
    def find_campaign(self, identity: str) -> dict[str, Any] | None:
        """Return the newest task in the form of :meth:`campaigns`; None when there is none.

        :param identity: its exact name, its guid or its id.
        """
        row = self.service.store.row(
            "SELECT * FROM campaigns WHERE ? IN (name, guid, CAST(id AS TEXT)) ORDER BY id DESC", [identity]
        )
        return None if row is None else self._campaign(row)

    def _campaign(self, row: Row) -> dict[str, Any]:
        settings = self.service.settings
        return {
            "id": row["id"],
            "guid": row["guid"],
            "mailName": row["name"],
            "state": row["state"],
            "mailStatus": mail_status(row["state"], settings),
            "removed": row["deleted_at"] is not None,
            "cancelled": row["cancelled_at"] is not None,
            "keptBecause": row["kept_because"],
            "attachmentBytes": row["attachment_bytes"],
            "created": iso(row["created"]),
            "sendDate": iso(row["send_at"]),
            "request": decode_json(row["request"]),
            "sentCount": row["sent"] if row["state"] in (SENDING, DONE) else 0,
            "mailStats": counts(row, self.service.clock.now_ms(), settings) if row["state"] == DONE else None,
        }

    @control
    def campaign_recipients(self, mail_name: str) -> list[str]:
        """Return the recipients of campaigns of this name; an address mailed twice is listed twice.

        :param mail_name: the campaign's exact name.
        """
        rows = self.service.store.rows(
            "SELECT email FROM recipients JOIN campaigns ON campaigns.id = campaign_id "
            "WHERE name = ? AND rank >= 0 ORDER BY email",
            [mail_name],
        )
        return [row["email"] for row in rows]

    @control
    def mails_to(self, email: str) -> list[dict[str, Any]]:
        """Return all mail sent or scheduled to an address, of campaigns (mailName) and transactional (uniqueMsgID).

        :param email: the address.
        """
        store = self.service.store
        return [
            *store.rows(
                "SELECT 'campaign' AS kind, name AS mailName, subject FROM recipients "
                "JOIN campaigns ON campaigns.id = campaign_id WHERE rank >= 0 AND lower(email) = lower(?)",
                [email],
            ),
            *store.rows(
                "SELECT 'transactional' AS kind, unique_msg_id AS uniqueMsgID, subject, role FROM deliveries "
                "JOIN messages ON messages.id = message_id WHERE dropped IS NULL AND lower(email) = lower(?)",
                [email],
            ),
        ]

    @control
    def messages(self, unique_msg_id: str | None = None, *, recipient: str | None = None) -> list[dict[str, Any]]:
        """Return accepted transactional messages: one per request (single form) or version (batch form).

        Each with batch (number of the request), version, form, unique_msg_id, sender, sender_name, reply_to, subject
        and content (tags filled in), template, category, campaign, attachment_name, attachment_bytes, send_date (ISO
        8601) and recipients (role, email, name, dropped: the reason or None, bounce: hard, soft or None).

        :param unique_msg_id: only those with this ``uniqueMsgID``. Default: all.
        :param recipient: only those to this address. Default: all.
        """
        store = self.service.store
        messages = store.rows(
            "SELECT * FROM messages WHERE (? IS NULL OR unique_msg_id = ?) AND (? IS NULL OR id IN "
            "(SELECT message_id FROM deliveries WHERE lower(email) = lower(?))) ORDER BY id",
            [unique_msg_id, unique_msg_id, recipient, recipient]
        )  # fmt: skip
        for message in messages:
            message["send_date"] = iso(message.pop("send_at"))
            message["created"] = iso(message["created"])
            message["recipients"] = store.rows(
                "SELECT role, email, name, dropped, bounce FROM deliveries WHERE message_id = ? ORDER BY id",
                [message.pop("id")],
            )
        return messages

    @control
    def webhook(self) -> dict[str, Any]:
        """The webhook configuration as webhook/get shows it."""
        return configuration(self.service.store)
