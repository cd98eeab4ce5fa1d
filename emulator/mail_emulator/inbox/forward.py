"""A mail as an internet message (RFC 5322), and its forwarding to an SMTP server, such as one that catches mail."""

from __future__ import annotations

import heapq
import logging
import smtplib
import threading
from collections import deque
from datetime import datetime
from email import policy
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

from mail_emulator.campaign_life import DONE
from mail_emulator.inbox.mails import read_mail
from mail_emulator.markup import to_text

if TYPE_CHECKING:
    from mail_emulator.service import Service

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.2
_RETRY_SECONDS = 1.0
_CHUNK = 100


def compose(mail: dict[str, Any]) -> EmailMessage:
    """Return the message of a mail, with its text and HTML.

    The emulator keeps only the name and the size of an attachment, which become a header.
    """
    message = EmailMessage(policy=policy.SMTP)
    people: dict[str, list[str]] = {"to": [], "cc": []}
    for recipient in mail["recipients"]:
        if recipient["role"] in people:
            people[recipient["role"]].append(_address(recipient["email"], recipient["name"]))
    headers = {
        "From": _address(mail["from_email"], mail["from_name"]),
        "To": ", ".join(people["to"]),
        "Cc": ", ".join(people["cc"]),
        "Reply-To": _one_line(mail["reply_to"]),
        "Subject": _one_line(mail["subject"]),
        "Date": format_datetime(datetime.fromisoformat(mail["at"])),
        "Message-ID": f"<{mail['id']}@emulator.invalid>",
        "X-Campaign": _one_line(mail["mail_name"] or mail["campaign"]),
        "X-Category": _one_line(mail["category"]),
        "X-Unique-Msg-ID": _one_line(mail["unique_msg_id"]),
        "X-Attachment": mail["attachment_bytes"]
        and f"{_one_line(mail['attachment_name'])} ({mail['attachment_bytes']} bytes, not kept by the emulator)",
    }
    for name, value in headers.items():
        if value:
            message[name] = value
    message.set_content(to_text(mail["content"]))
    message.add_alternative(mail["content"], subtype="html")
    return message


def _address(email: str, name: str | None) -> str:
    email, name = _one_line(email), _one_line(name)
    try:
        return str(Address(name, addr_spec=email))
    except (ValueError, IndexError, HeaderParseError):
        return email


def _one_line(text: str | None) -> str:
    """Replace what would end the header."""
    return "".join(character if character.isprintable() else " " for character in text or "")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port; ValueError for another form."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise ValueError(f"--forward-smtp {text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


class Forwarder:
    """Forwards each mail once it is delivered, one after the other, from a thread.

    Mail that was delivered before the start, bounced or dropped is not forwarded. While the server cannot be reached,
    mail waits; mail that the server rejects is logged by its id and skipped.
    """

    def __init__(self, service: Service, address: tuple[str, int]) -> None:
        self._service = service
        self._address = address
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forward-smtp", daemon=True)
        self._smtp: smtplib.SMTP | None = None
        #: (send time, id) of scheduled deliveries.
        self._scheduled: list[tuple[int, int]] = []
        #: Id, and the next recipient's rank, of campaigns that are being forwarded.
        self._campaigns: deque[tuple[int, int]] = deque()
        with service.lock:
            store = service.store
            self._generation = store.generation
            self._delivery_id = store.value("SELECT coalesce(max(id), 0) FROM deliveries")
            self._campaign_ids = {row["id"] for row in store.rows("SELECT id FROM campaigns WHERE state = ?", [DONE])}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current mail."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            try:
                while not self._stopping.is_set() and (mails := self._due()):
                    for mail in mails:
                        self._forward(mail)
            except Exception:
                self._service.record_crash("forwarding mail")
        if self._smtp is not None:
            self._smtp.close()

    def _due(self) -> list[dict[str, Any]]:
        """Return the next mails that were delivered; none when all were returned."""
        store = self._service.store
        with self._service.lock:
            context = self._service.context()
            self._notice_new()
            mail_ids: list[str] = []
            while len(mail_ids) < _CHUNK and self._scheduled and self._scheduled[0][0] <= context.now:
                mail_ids.append(f"t{heapq.heappop(self._scheduled)[1]}")
            while not mail_ids and self._campaigns:
                campaign_id, rank = self._campaigns.popleft()
                recipients = store.rows(
                    f"SELECT rank FROM recipients WHERE campaign_id = ? AND rank >= ? ORDER BY rank LIMIT {_CHUNK}",
                    [campaign_id, rank],
                )
                if recipients:
                    mail_ids = [f"c{campaign_id}.{recipient['rank']}" for recipient in recipients]
                    self._campaigns.appendleft((campaign_id, recipients[-1]["rank"] + 1))
            return [read_mail(context, mail_id) for mail_id in mail_ids]

    def _notice_new(self) -> None:
        store = self._service.store
        if self._generation != store.generation:
            # The state was deleted: everything that exists now was added later.
            self._generation = store.generation
            self._delivery_id = 0
            for known in (self._scheduled, self._campaigns, self._campaign_ids):
                known.clear()
        for row in store.rows(
            "SELECT id, send_at FROM deliveries WHERE id > ? AND dropped IS NULL AND bounce IS NULL ORDER BY id",
            [self._delivery_id],
        ):
            self._delivery_id = row["id"]
            heapq.heappush(self._scheduled, (row["send_at"], row["id"]))
        for row in store.rows("SELECT id, hard + soft AS first FROM campaigns WHERE state = ?", [DONE]):
            if row["id"] not in self._campaign_ids:
                self._campaign_ids.add(row["id"])
                self._campaigns.append((row["id"], row["first"]))

    def _forward(self, fields: dict[str, Any]) -> None:
        message = compose(fields)
        while not self._stopping.is_set():
            try:
                if self._smtp is None:
                    self._smtp = smtplib.SMTP(*self._address, timeout=10)
            except OSError as error:
                log.warning("%s:%d cannot be reached, mail waits: %s", *self._address, error)
                self._stopping.wait(_RETRY_SECONDS)
                continue
            try:
                self._smtp.send_message(message, fields["from_email"], [fields["email"]])
                return
            except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, ValueError) as error:
                # The error's text may hold the recipient's address.
                log.warning("%s:%d has rejected mail %s: %s", *self._address, fields["id"], type(error).__name__)
                return
            except smtplib.SMTPNotSupportedError:
                log.warning("%s:%d cannot take the address of mail %s", *self._address, fields["id"])
                return
            except OSError:
                self._smtp = None  # the connection has ended; try again over a new one
                self._stopping.wait(_RETRY_SECONDS)
