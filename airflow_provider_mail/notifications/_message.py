"""Build the request that sends one message (document, "Transactional email").

One recipient uses the single-message form. Several recipients share one message, as with SMTP, in the batch form, which
alone has ``cc`` and ``bcc``; each further 20 recipients are another version in the same request.
"""

from __future__ import annotations

import base64
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_letters, digits
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from airflow_provider_mail.api._core.requests import describe
from airflow_provider_mail.api.errors import MailConfigError, MailValidationError
from airflow_provider_mail.api.flows.batches import unique_msg_id
from airflow_provider_mail.api.transactional import Delivery, MessageVersion, Recipient, SendBatch, SendMail
from airflow_provider_mail.version_compat import conf

Addresses = str | Iterable[str] | None

AIRFLOW_DEFAULT_SENDER = "airflow@airflow"
"""Airflow's default for ``[email] from_email``; not a sender of any account."""

MAX_RECIPIENTS_PER_VERSION = 20
MAX_SUBJECT_CHARACTERS = 150
MAX_NAME_BYTES = 100

MAX_CHARACTERS_READ = 10_000
"""Characters of a subject that are read: a subject of a megabyte must not block an event loop."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A request, and what may be logged about it.

    :param request: the request to send.
    :param recipient_count: number of recipients.
    :param skipped: recipients and files that cannot be used: field, position and reason, never addresses.
    """

    request: Delivery = field(repr=False)
    recipient_count: int
    skipped: Sequence[str]


def build_message(
    *,
    to: Addresses,
    subject: str,
    content: str,
    sender: str | None,
    sender_name: str | None = None,
    cc: Addresses = None,
    bcc: Addresses = None,
    reply_to: str | None = None,
    category: str | None = None,
    files: str | Sequence[str] | None = None,
    event_key: str | None = None,
) -> OutgoingMessage:
    """Build a message. A repeated address receives it once.

    :param to: addresses, plain or ``Name <address>``: a list, or a string separated by commas or semicolons.
    :param subject: subject; line breaks are removed, and it is cut after 150 characters.
    :param content: HTML. Text that looks like a tag of the service is escaped.
    :param sender: sender, plain or ``Name <address>``. Default: ``[email] from_email``.
    :param sender_name: display name of the sender. Default: the name in ``sender``.
    :param cc: recipients of a copy, like ``to``; at most 20.
    :param bcc: recipients of a blind copy, like ``to``; at most 20.
    :param reply_to: address for replies.
    :param category: label for reports: letters and digits, at most 100 bytes.
    :param files: paths of files to attach. The service takes one file; several are sent as one ZIP archive.
    :param event_key: identifier of the reported event. Messages with the same key, subject and recipients have the same
        ``uniqueMsgID``. Default: a random key.
    :raises MailConfigError: when there is no sender.
    :raises MailValidationError: when there is no valid recipient in ``to``, or a field is invalid.
    """
    skipped: list[str] = []
    known: set[str] = set()
    recipients = {
        field: _recipients(field, addresses, known, skipped)
        for field, addresses in (("to", to), ("cc", cc), ("bcc", bcc))
    }
    if not recipients["to"]:
        raise MailValidationError(f"to: {'; '.join(skipped) or 'is empty'}")
    sender_mail, name = _sender(sender)
    subject = _escape_tags(_one_line(str(subject)), "{ {") or "(no subject)"
    key = str(uuid4()) if event_key is None else "\n".join([event_key, subject, *sorted(known)])
    shared: dict[str, Any] = {
        "sender_mail": sender_mail,
        "sender_name": sender_name or name,
        "subject": subject,
        "content": _escape_tags(str(content), "&#123;&#123;") or "&nbsp;",
        "reply_to": reply_to or None,
        "category": category or None,
        "attachment": _attachment(files, skipped),
        "unique_msg_id": unique_msg_id(key, 0),
    }
    if len(recipients["to"]) == 1 and not recipients["cc"] and not recipients["bcc"]:
        request: Delivery = SendMail(**shared, to=recipients["to"][0])
    else:
        request = SendBatch(**shared, message_versions=_versions(**recipients))
    return OutgoingMessage(request, sum(map(len, recipients.values())), skipped)


def _escape_tags(text: str, replacement: str) -> str:
    """Replace what the service could read as the start of a tag."""
    return text.replace("{{", replacement)


def _recipients(where: str, addresses: Addresses, known: set[str], skipped: list[str]) -> list[Recipient]:
    """Parse the recipients of one field. An invalid address is skipped; the others receive the message."""
    texts = [addresses] if isinstance(addresses, str) else list(addresses or ())
    if not all(isinstance(text, str) for text in texts):
        raise MailValidationError(f"{where}: addresses must be text")
    recipients = []
    for number, part in enumerate(part for text in texts for part in _split(text) if part.strip()):
        address, name = _parse_address(part)
        if address.lower() in known:
            continue
        try:
            recipients.append(Recipient(email=address, name=name and _cut(name)))
        except ValidationError as error:
            skipped.append(f"{where}[{number}].{describe(error)}")
        else:
            known.add(address.lower())
    return recipients


def _split(text: str) -> Iterator[str]:
    """Split at commas and semicolons outside quotation marks."""
    start, marks_left = 0, text.count('"')
    for place, character in enumerate(text):
        if character == '"':
            marks_left -= 1
        elif character in ",;" and marks_left % 2 == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _parse_address(text: str) -> tuple[str, str | None]:
    """Return address and display name."""
    text = text.strip()
    before, opening, address = text.removesuffix(">").partition("<")
    name = before.strip().removeprefix('"').removesuffix('"').strip()
    is_named = opening and text.endswith(">") and '"' not in name and not {"<", ">"} & {*name, *address}
    return (address.strip(), name or None) if is_named else (text, None)


def _cut(name: str) -> str:
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")


def _versions(to: list[Recipient], cc: list[Recipient], bcc: list[Recipient]) -> list[MessageVersion]:
    """Make a version for each 20 recipients; only the first has ``cc`` and ``bcc``, so that each gets one copy."""
    for where, copies in (("cc", cc), ("bcc", bcc)):
        if len(copies) > MAX_RECIPIENTS_PER_VERSION:
            raise MailValidationError(
                f"{where}: {len(copies)} recipients, at most {MAX_RECIPIENTS_PER_VERSION} are allowed"
            )
    return [
        MessageVersion(
            to=to[start : start + MAX_RECIPIENTS_PER_VERSION], cc=[] if start else cc, bcc=[] if start else bcc
        )
        for start in range(0, len(to), MAX_RECIPIENTS_PER_VERSION)
    ]


def _sender(sender: str | None) -> tuple[str, str | None]:
    for text in (sender, conf.get("email", "from_email", fallback=None)):
        address, name = _parse_address(text or "")
        if address and address != AIRFLOW_DEFAULT_SENDER:
            return address, name
    raise MailConfigError(
        "no sender: set [email] from_email (AIRFLOW__EMAIL__FROM_EMAIL) to a sender of the account, for "
        "example 'Airflow <airflow@example.com>', or pass sender_mail to the notifier"
    )


def _one_line(subject: str) -> str:
    subject = " ".join(subject[:MAX_CHARACTERS_READ].split())
    if len(subject) <= MAX_SUBJECT_CHARACTERS:
        return subject
    return _task_subject(subject) or subject[: MAX_SUBJECT_CHARACTERS - 2].rstrip() + " …"


def _task_subject(subject: str) -> str | None:
    """Shorten Airflow's own ``Airflow alert: {{ti}}`` to the names of the DAG and the task, and the try."""
    found = {name: re.search(rf"\b{name}='?([^',)\s]+)", subject) for name in ("dag_id", "task_id", "try_number")}
    id_at = re.search(r"\bid=", subject)
    if not (id_at and found["dag_id"] and found["task_id"]):
        return None
    start = subject[: id_at.start()]
    if start.endswith("("):  # of the class's name
        start = start[:-1].rstrip(f"{ascii_letters}{digits}_")
    tries = f", try {found['try_number'][1]}" if found["try_number"] else ""
    return f"{start}{found['dag_id'][1]}.{found['task_id'][1]}{tries}"[:MAX_SUBJECT_CHARACTERS]


def _attachment(files: str | Sequence[str] | None, skipped: list[str]) -> dict[str, str] | None:
    """Attach the files as one. A file that cannot be read is skipped."""
    contents: dict[str, bytes] = {}
    for number, path in enumerate(map(Path, [files] if isinstance(files, str) else files or ())):
        try:
            contents[path.name if path.name not in contents else f"{number}-{path.name}"] = path.read_bytes()
        except OSError as error:
            skipped.append(f"files[{number}]: {error.strerror}")
    if not contents:
        return None
    ((name, data),) = contents.items() if len(contents) == 1 else [("attachments.zip", _archive(contents))]
    return {"file_name": name, "file_data": base64.b64encode(data).decode()}


def _archive(contents: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return packed.getvalue()
