"""From what Airflow hands over to a request of the service (document, "Transactional email").

One person is written to with the single-message form. Several get one message with all of them in ``to``, as with SMTP,
in the batch form, which alone has ``cc`` and ``bcc``; more than 20 get several messages in one request.
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

People = str | Iterable[str] | None

AIRFLOW_DEFAULT_SENDER = "airflow@airflow"
"""What Airflow takes for a sender when none is configured."""

MOST_PER_VERSION = 20
MOST_SUBJECT_CHARACTERS = 150
MOST_NAME_BYTES = 100

MOST_READ = 10_000
"""Characters of a subject that are read at all: whoever writes one of a megabyte must not hold an event loop up."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A request and what may be logged of it.

    :param people: how many are written to.
    :param left_out: what could not be used: fields, numbers and reasons, never addresses.
    """

    request: Delivery = field(repr=False)
    people: int
    left_out: Sequence[str]


def write(
    *,
    to: People,
    subject: str,
    content: str,
    sender: str | None,
    sender_name: str | None = None,
    cc: People = None,
    bcc: People = None,
    reply_to: str | None = None,
    category: str | None = None,
    files: str | Sequence[str] | None = None,
    occasion: str | None = None,
) -> OutgoingMessage:
    """The letter that says this; everybody gets it once, also who is named twice.

    :param to: addresses, plain or ``Name <address>``: a list, or text with commas or semicolons in between.
    :param subject: made one line of, and cut where it is too long for anybody to read.
    :param content: HTML. What looks like a tag of the service's is shown as it is: nothing fills it in.
    :param sender: of the same forms as ``to``. Default: ``[email] from_email``.
    :param files: paths; the service takes one file, so several are put into one archive.
    :param occasion: the same for a letter that is written twice by mistake: its ``uniqueMsgID`` is then the same, as
        far as subject and recipients are. Default: an id that no other letter has.
    :raises MailConfigError: when there is no sender.
    :raises MailValidationError: when there is nobody to write to, or a field is wrong.
    """
    left_out: list[str] = []
    known: set[str] = set()
    people = {name: _people(name, given, known, left_out) for name, given in (("to", to), ("cc", cc), ("bcc", bcc))}
    if not people["to"]:
        raise MailValidationError(f"to: {'; '.join(left_out) or 'is empty'}")
    sender_mail, name = _sender(sender)
    subject = _without_tags(_one_line(str(subject)), "{ {") or "(no subject)"
    key = str(uuid4()) if occasion is None else "\n".join([occasion, subject, *sorted(known)])
    shared: dict[str, Any] = {
        "sender_mail": sender_mail,
        "sender_name": sender_name or name,
        "subject": subject,
        "content": _without_tags(str(content), "&#123;&#123;") or "&nbsp;",
        "reply_to": reply_to or None,
        "category": category or None,
        "attachment": _attachment(files, left_out),
        "unique_msg_id": unique_msg_id(key, 0),
    }
    if len(people["to"]) == 1 and not people["cc"] and not people["bcc"]:
        request: Delivery = SendMail(**shared, to=people["to"][0])
    else:
        request = SendBatch(**shared, message_versions=_versions(**people))
    return OutgoingMessage(request, sum(map(len, people.values())), left_out)


def _without_tags(text: str, instead: str) -> str:
    """The text without anything that the service could take for the beginning of a tag."""
    return text.replace("{{", instead)


def _people(where: str, given: People, known: set[str], left_out: list[str]) -> list[Recipient]:
    """The recipients of one field; one address that is none must not keep the others from hearing."""
    texts = [given] if isinstance(given, str) else list(given or ())
    if not all(isinstance(text, str) for text in texts):
        raise MailValidationError(f"{where}: addresses must be text")
    people = []
    given_one_by_one = (part for text in texts for part in _separated(text) if part.strip())
    for number, part in enumerate(given_one_by_one):
        address, name = _parts(part)
        if address.lower() in known:
            continue
        try:
            people.append(Recipient(email=address, name=name and _cut(name)))
        except ValidationError as error:
            left_out.append(f"{where}[{number}].{describe(error)}")
        else:
            known.add(address.lower())
    return people


def _separated(text: str) -> Iterator[str]:
    """The parts between commas and semicolons; those inside quotation marks separate nothing."""
    start, marks_left = 0, text.count('"')
    for place, character in enumerate(text):
        if character == '"':
            marks_left -= 1
        elif character in ",;" and marks_left % 2 == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _parts(text: str) -> tuple[str, str | None]:
    """Address and name."""
    text = text.strip()
    before, opening, address = text.removesuffix(">").partition("<")
    name = before.strip().removeprefix('"').removesuffix('"').strip()
    is_named = opening and text.endswith(">") and '"' not in name and not {"<", ">"} & {*name, *address}
    return (address.strip(), name or None) if is_named else (text, None)


def _cut(name: str) -> str:
    return name.encode()[:MOST_NAME_BYTES].decode(errors="ignore")


def _versions(to: list[Recipient], cc: list[Recipient], bcc: list[Recipient]) -> list[MessageVersion]:
    """Everybody in ``to``, 20 a version; who gets a copy gets one, so only of the first."""
    for where, people in (("cc", cc), ("bcc", bcc)):
        if len(people) > MOST_PER_VERSION:
            raise MailValidationError(f"{where}: {len(people)} recipients, at most {MOST_PER_VERSION} are allowed")
    return [
        MessageVersion(to=to[start : start + MOST_PER_VERSION], cc=[] if start else cc, bcc=[] if start else bcc)
        for start in range(0, len(to), MOST_PER_VERSION)
    ]


def _sender(given: str | None) -> tuple[str, str | None]:
    from airflow_provider_mail.version_compat import conf

    for text in (given, conf.get("email", "from_email", fallback=None)):
        address, name = _parts(text or "")
        if address and address != AIRFLOW_DEFAULT_SENDER:
            return address, name
    raise MailConfigError(
        "there is no sender: set [email] from_email (AIRFLOW__EMAIL__FROM_EMAIL) to a sender of the account, for "
        "instance 'Airflow <airflow@example.com>', or give the notifier a sender_mail"
    )


def _one_line(subject: str) -> str:
    subject = " ".join(subject[:MOST_READ].split())
    if len(subject) <= MOST_SUBJECT_CHARACTERS:
        return subject
    return _named_task(subject) or subject[: MOST_SUBJECT_CHARACTERS - 2].rstrip() + " …"


def _named_task(subject: str) -> str | None:
    """For Airflow's own ``Airflow alert: {{ti}}``, which shows hundreds of characters, what one wants to know of it."""
    found = {name: re.search(rf"\b{name}='?([^',)\s]+)", subject) for name in ("dag_id", "task_id", "try_number")}
    id_at = re.search(r"\bid=", subject)
    if not (id_at and found["dag_id"] and found["task_id"]):
        return None
    start = subject[: id_at.start()]
    if start.endswith("("):  # of the class's name
        start = start[:-1].rstrip(f"{ascii_letters}{digits}_")
    tries = f", try {found['try_number'][1]}" if found["try_number"] else ""
    return f"{start}{found['dag_id'][1]}.{found['task_id'][1]}{tries}"[:MOST_SUBJECT_CHARACTERS]


def _attachment(files: str | Sequence[str] | None, left_out: list[str]) -> dict[str, str] | None:
    """The files as one; one that cannot be read must not keep the rest from being told."""
    contents: dict[str, bytes] = {}
    for number, path in enumerate(map(Path, [files] if isinstance(files, str) else files or ())):
        try:
            contents[path.name if path.name not in contents else f"{number}-{path.name}"] = path.read_bytes()
        except OSError as error:
            left_out.append(f"files[{number}]: {error.strerror}")
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
