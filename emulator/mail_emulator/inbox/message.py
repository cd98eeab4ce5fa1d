"""A mail as an internet message (RFC 5322)."""

from __future__ import annotations

from datetime import datetime
from email import policy
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

from mail_emulator.markup import to_text


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
