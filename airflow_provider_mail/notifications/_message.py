"""Build the request that sends one message (specification, "Transactional email"), and send it within a deadline.

A message to one recipient uses the single-message form. Several recipients share one message, as with SMTP, in the
batch form, the only one with ``cc`` and ``bcc``; every further 20 recipients are another version in the same request.

An alert must arrive: parts of it that cannot be used are left out, and the message and the log report them.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from string import ascii_letters, digits
from typing import Any
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from airflow_provider_mail.api._core.fields import (
    MAX_DISPLAY_NAME_BYTES,
    MAX_SENDER_NAME_BYTES,
    Address,
    Html,
    Label,
    address_key,
    is_blank,
    is_nothing,
    mailbox,
    one_line,
    split_mailboxes,
    without_addresses,
)
from airflow_provider_mail.api._core.requests import describe
from airflow_provider_mail.api.config import ClientConfig, RetrySettings
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailConfigError,
    MailError,
    MailServiceError,
    MailValidationError,
)
from airflow_provider_mail.api.transactional import (
    MAX_RECIPIENTS,
    MessageVersion,
    Recipient,
    SendBatch,
    SendMail,
    unique_msg_id,
)
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import conf
from airflow_provider_mail.warehouse.time_limit import read_within

log = logging.getLogger(__name__)

Addresses = str | Iterable[str] | None

AIRFLOW_DEFAULT_SENDER = "airflow@airflow"
"""Airflow's default for ``[email] from_email``; not a sender of any account."""

MAX_SUBJECT_CHARACTERS = 150

MAX_CHARACTERS_READ = 10_000
"""Number of characters of a subject or an error that are read: a subject of a megabyte must not block an event loop."""

MAX_ERROR_CHARACTERS = 500
"""Maximum length of an error in the log."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A request, and for the log the parts that were left out, with position and reason, never addresses."""

    request: SendMail | SendBatch = field(repr=False)
    recipient_count: int
    skipped: Sequence[str]


def build_message(
    *,
    to: Addresses,
    subject: str | None,
    content: str | None,
    sender_mail: str | None,
    sender_name: str | None = None,
    cc: Addresses = None,
    bcc: Addresses = None,
    reply_to: str | None = None,
    category: str | None = None,
    files: str | Sequence[str] | None = None,
    event_key: str | None = None,
    default_subject: str = "(no subject)",
    default_content: str = "&nbsp;",
    skipped: Iterable[str] = (),
) -> OutgoingMessage:
    """Build a message. A repeated address receives it once.

    :param event_key: identifier of the reported event. Messages with the same key that are equal have the same
        ``uniqueMsgID``. Default: a random key.
    :param default_subject: sent if there is no ``subject``, or a template rendered it to nothing.
    :param default_content: sent if there is no ``content``, or a template rendered it to nothing.
    :raises MailConfigError: when there is no sender.
    :raises MailValidationError: when there is no valid recipient in ``to``.
    """
    skipped = list(skipped)
    known: set[str] = set()
    recipients = {
        field: _recipients(field, addresses, known, skipped)
        for field, addresses in (("to", to), ("cc", cc), ("bcc", bcc))
    }
    if not recipients["to"]:
        raise MailValidationError(f"to: {'; '.join(skipped) or 'is empty'}")
    for name in ("cc", "bcc"):
        if (count := len(recipients[name])) > MAX_RECIPIENTS:
            skipped.append(f"{name}: {count} recipients, at most {MAX_RECIPIENTS} are allowed")
            del recipients[name][MAX_RECIPIENTS:]
    sender, name = _sender(_given("sender_mail", sender_mail, skipped), skipped)
    subject = one_line_subject(_required("subject", subject, skipped) or "") or one_line_subject(default_subject)
    content = _usable("content", Html, _required("content", content, skipped), skipped) or default_content
    sender_name = one_line(_given("sender_name", sender_name, skipped) or name)
    shared: dict[str, Any] = {
        "sender_mail": sender,
        "sender_name": _cut(sender_name, MAX_SENDER_NAME_BYTES) or None,
        "subject": escape_tags(subject, "{ {"),
        "reply_to": _reply_to(_given("reply_to", reply_to, skipped), skipped),
        "category": _usable("category", Label, _given("category", category, skipped), skipped),
        "attachment": _attachment(files, skipped),
    }
    # Built last, because the content lists the parts that are left out.
    shared["content"] = with_note(escape_tags(content, "&#123;&#123;"), skipped)
    people = {
        name: sorted((address_key(recipient.email), recipient.name) for recipient in recipients[name])
        for name in recipients
    }
    key = json.dumps([str(uuid4()) if event_key is None else event_key, shared, people], default=str)
    shared["unique_msg_id"] = unique_msg_id(key, 0)
    if len(recipients["to"]) == 1 and not recipients["cc"] and not recipients["bcc"]:
        request: SendMail | SendBatch = SendMail(**shared, to=recipients["to"][0])
    else:
        request = SendBatch(**shared, message_versions=_versions(**recipients))
    return OutgoingMessage(request, sum(map(len, recipients.values())), skipped)


def _given(path: str, value: Any, skipped: list[str]) -> str | None:
    if is_nothing(value):
        if value and not is_blank(value):
            skipped.append(f"{path}: is {value.strip()}")
        return None
    # Half a surrogate pair cannot be encoded.
    return str(value).encode(errors="replace").decode()


def _required(path: str, value: Any, skipped: list[str]) -> str | None:
    if isinstance(value, str) and not value.strip():
        skipped.append(f"{path}: is blank")
    return _given(path, value, skipped)


def _usable(path: str, field_type: Any, value: Any, skipped: list[str]) -> Any:
    try:
        return value and TypeAdapter(field_type).validate_python(value)
    except ValidationError as error:
        skipped.append(f"{path}: {describe(error)}")
        return None


def with_note(content: str, skipped: Sequence[str]) -> str:
    if not skipped:
        return content
    note = f"<p>Left out of this message: {escape('; '.join(skipped))}.</p>"
    before, end, after = content.rpartition("</body>")
    return f"{before}{note}{end}{after}" if end else f"{content}{note}"


def escape_tags(text: str, replacement: str) -> str:
    """Replace text that the service could read as the start of a tag."""
    return text.replace("{{", replacement)


def _recipients(path: str, addresses: Any, known: set[str], skipped: list[str]) -> list[Recipient]:
    """Parse the recipients of one field. An invalid address is skipped; the others receive the message."""
    if addresses is None:
        addresses = ()
    elif isinstance(addresses, str) or not isinstance(addresses, Iterable):
        addresses = (addresses,)
    parts: list[Any] = []
    for text in addresses:
        if isinstance(text, str):
            parts += split_mailboxes(text)
        else:
            parts.append(text)  # Skipped below, with a reason.
    recipients = []
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            skipped.append(f"{path}[{number}]: addresses must be text")
            continue
        address, name = mailbox(f"{path}[{number}]", part, skipped)
        if (key := address_key(address)) in known:
            continue
        try:
            recipients.append(Recipient(email=address, name=_cut(name, MAX_DISPLAY_NAME_BYTES) or None))
        except ValidationError as error:
            skipped.append(f"{path}[{number}].{describe(error)}")
        else:
            known.add(key)
    return recipients


def _cut(name: str, max_bytes: int) -> str:
    return name.encode()[:max_bytes].decode(errors="ignore")


def _reply_to(value: str | None, skipped: list[str]) -> str | None:
    people = _recipients("reply_to", value, set(), skipped)
    if len(people) > 1:
        skipped.append("reply_to: the service accepts one address; the first one is used")
    return people[0].email if people else None


def _versions(to: list[Recipient], cc: list[Recipient], bcc: list[Recipient]) -> list[MessageVersion]:
    """Create a version per 20 recipients; only the first one has ``cc`` and ``bcc``, so that each gets one copy."""
    return [
        MessageVersion(to=to[start : start + MAX_RECIPIENTS], cc=[] if start else cc, bcc=[] if start else bcc)
        for start in range(0, len(to), MAX_RECIPIENTS)
    ]


def _sender(sender: str | None, skipped: list[str]) -> tuple[str, str]:
    problems: list[str] = []
    for text in (sender, conf.get("email", "from_email", fallback=None)):
        address, name = mailbox("sender_mail", text or "", skipped)
        if not address or address == AIRFLOW_DEFAULT_SENDER:
            continue
        if _usable("sender_mail", Address, address, problems):
            skipped.extend(problems)
            return address, name
    raise MailConfigError(
        f"{'; '.join(problems) or 'no sender'}: set [email] from_email (AIRFLOW__EMAIL__FROM_EMAIL) to a sender of the "
        "account, for example 'Airflow <airflow@example.com>', or pass sender_mail to the notifier"
    )


def one_line_subject(subject: str) -> str:
    subject = one_line(subject[:MAX_CHARACTERS_READ])
    if len(subject) <= MAX_SUBJECT_CHARACTERS:
        return subject
    return _task_subject(subject) or subject[: MAX_SUBJECT_CHARACTERS - 2].rstrip() + " …"


def _task_subject(subject: str) -> str | None:
    """Shorten Airflow's own ``Airflow alert: {{ti}}`` to the names of the DAG and the task, and the try."""
    matches = {name: re.search(rf"\b{name}='?([^',)\s]+)", subject) for name in ("dag_id", "task_id", "try_number")}
    id_at = re.search(r"\bid=", subject)
    if not (id_at and matches["dag_id"] and matches["task_id"]):
        return None
    start = subject[: id_at.start()]
    if start.endswith("("):  # The parenthesis after the name of the class.
        start = start[:-1].rstrip(f"{ascii_letters}{digits}_")
    tries = f", try {matches['try_number'][1]}" if matches["try_number"] else ""
    return f"{start}{matches['dag_id'][1]}.{matches['task_id'][1]}{tries}"[:MAX_SUBJECT_CHARACTERS]


def _attachment(files: Any, skipped: list[str]) -> dict[str, str] | None:
    """Return the files as one attachment. A file that cannot be read is skipped."""
    contents: dict[str, bytes] = {}
    paths = files if isinstance(files, Iterable) and not isinstance(files, str | Path) else [files]
    for number, path in enumerate([] if is_nothing(files) else paths):
        try:
            data = Path(path).read_bytes()
            name = one_line(Path(path).name)
        except (OSError, TypeError, ValueError) as error:
            skipped.append(f"files[{number}]: {getattr(error, 'strerror', None) or 'is not a path'}")
            continue
        if data:
            contents[name if name not in contents else f"{number}-{name}"] = data
        else:
            skipped.append(f"files[{number}]: is empty")
    if not contents:
        return None
    ((name, data),) = contents.items() if len(contents) == 1 else [("attachments.zip", _archive(contents))]
    return {"file_name": name, "file_data": base64.b64encode(data).decode()}


def _archive(contents: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            # Without the time of day, so that the bytes are always the same: the id of the message depends on them.
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


class DeadlineMailHook(MailHook):
    """A hook whose client gives up after a deadline."""

    def __init__(self, mail_conn_id: str, seconds: float) -> None:
        super().__init__(mail_conn_id)
        self.seconds = seconds

    @cached_property
    def config(self) -> ClientConfig:
        """A request that did not reach the service has 3 attempts."""
        config = super().config
        half = self.seconds / 2
        rule = RetrySettings(attempts=3, total_seconds=half, cap_seconds=half / 4, retry_after_cap_seconds=half / 2)
        return config.model_copy(update={"timeout": min(config.timeout, half), "retry": rule})


def send(hook: DeadlineMailHook, message: OutgoingMessage) -> str:
    """Send a message and return a line for the log."""
    # Look up the connection here: not every process of Airflow permits that in other threads.
    client = hook.get_conn()

    def work() -> None:
        with closing(hook):
            client.send(message.request)

    try:
        # In a thread that is abandoned on a timeout: nothing else limits a host name lookup, or a response that arrives
        # byte by byte.
        read_within(work, hook.seconds)
    except TimeoutError:
        sent = message.request
        raise MailAmbiguousSendError(
            f"{sent.path}: no response within {hook.seconds:g} s, uniqueMsgID {sent.unique_msg_id}",
            operation=sent.path,
        ) from None
    return _accepted(hook, message)


@contextmanager
def log_errors(mail_conn_id: str | None) -> Iterator[None]:
    """Log any error of the block as one line instead of raising it."""
    try:
        yield
    except MailAmbiguousSendError as error:
        log.error("Mail: possibly sent (connection %r): %s", mail_conn_id, summarize(error))
    except Exception as error:
        log.error("Mail: not sent (connection %r): %s", mail_conn_id, summarize(error))


def log_skipped(message: OutgoingMessage) -> None:
    if message.skipped:
        log.warning("Mail: skipped: %s", "; ".join(message.skipped))


def summarize(error: Exception) -> str:
    if isinstance(error, MailServiceError | MailAmbiguousSendError):
        # Of the request, their messages contain only the sender.
        return " ".join(str(error).split())[:MAX_ERROR_CHARACTERS]
    text = str(error) if isinstance(error, MailError) else f"{type(error).__name__}: {error}"
    return without_addresses(" ".join(text[:MAX_CHARACTERS_READ].split()))[:MAX_ERROR_CHARACTERS]


def _accepted(hook: MailHook, message: OutgoingMessage) -> str:
    recipients = "1 recipient" if message.recipient_count == 1 else f"{message.recipient_count} recipients"
    if hook.config.sandbox:
        return f"Mail: sandbox: the service validated a message to {recipients}; nothing was sent."
    return f"Mail: accepted for {recipients}, uniqueMsgID {message.request.unique_msg_id}."
