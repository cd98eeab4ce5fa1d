"""The recipients of a message, and the batch requests of a mailing (specification, "Transactional email", batch form).

Each request holds up to 100 versions. Its id depends only on the mailing and the request's index, so that a later try
recognizes its own requests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from airflow_provider_mail.api._core.addresses import address_key, mailbox, split_mailboxes
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.transactional import MAX_RECIPIENTS, MAX_VERSIONS, Delivery, SendBatch


@dataclass(frozen=True, slots=True)
class Chunk:
    """One request of a mailing.

    :param recipients: the number of addresses in ``to``, ``cc`` and ``bcc``.
    :param digest: a hash of the content, to verify that a later try sends the same content.
    """

    index: int
    request: Delivery
    recipients: int
    digest: str

    @classmethod
    def of(cls, index: int, request: Delivery, recipients: int) -> Chunk:
        return cls(index, request, recipients, hashlib.sha256(request.payload()).hexdigest()[:32])


Keep: TypeAlias = Callable[[int, dict[str, Any]], dict[str, Any] | None]


def cut(
    common: Mapping[str, Any],
    messages: Iterable[Mapping[str, Any]],
    *,
    key: str,
    versions: int = MAX_VERSIONS,
    keep: Keep = lambda number, version: version,
) -> Iterator[Chunk]:
    """Yield the requests of a mailing, in order.

    :param common: the fields of :class:`~airflow_provider_mail.api.transactional.SendBatch` that all requests share.
    :param messages: one dictionary per version: ``to`` (an address, ``{"email": ..., "name": ...}``, or a list of
        these), and optionally ``cc``, ``bcc``, ``subject``, ``content``, ``template_name``, ``params``.
    :param key: identifies the mailing; the same in every try.
    :param versions: versions per request, from 1 to 100.
    :param keep: maps the number and the fields of a message to the fields to send, or to ``None`` to skip it. Default:
        send all messages unchanged.
    :raises MailValidationError: naming the message, by its number from 0, and the field.
    """
    if not 1 <= versions <= MAX_VERSIONS:
        raise MailValidationError(f"versions in one request: {versions}, must be from 1 to {MAX_VERSIONS}")
    numbered = ((number, keep(number, _version(number, message))) for number, message in enumerate(messages))
    iterator = ((number, version) for number, version in numbered if version is not None)
    index = 0
    while group := list(islice(iterator, versions)):
        fields: dict[str, Any] = {
            **common,
            "unique_msg_id": unique_msg_id(key, index),
            "message_versions": [version for _, version in group],
        }
        try:
            request = SendBatch(**fields)
        except MailValidationError as error:
            raise MailValidationError(
                _by_message(str(error), [number for number, _ in group]), operation=error.operation
            ) from None
        recipients = sum(len(version.to) + len(version.cc) + len(version.bcc) for version in request.message_versions)
        yield Chunk.of(index, request, recipients)
        index += 1


def unique_msg_id(key: str, index: int) -> str:
    """Return the id of a request, at most 50 bytes."""
    return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}-{index}"


def _version(number: int, message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise MailValidationError(f"messages[{number}]: a dictionary is needed, not {type(message).__name__}")
    fields = {name: value for name, value in message.items() if value is not None}
    return fields | {
        name: _listed(f"messages[{number}].{name}", fields[name]) for name in ("to", "cc", "bcc") if name in fields
    }


def _listed(field: str, value: Any) -> list[Any]:
    people: Sequence[Any] = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(people, Sequence):
        raise MailValidationError(f"{field}: an address or a list of them is needed, not {type(value).__name__}")
    return [{"email": person} if isinstance(person, str) else person for person in people]


def _by_message(message: str, numbers: Sequence[int]) -> str:
    """Return a validation message with the numbers of the whole mailing."""
    return re.sub(r"\bmessage_versions\[(\d+)\]", lambda match: f"messages[{numbers[int(match[1])]}]", message)


def recipients_of(argument: str, value: Any) -> list[dict[str, Any]]:
    """Return the recipients of one message, each once.

    :param argument: the name of the argument, for errors.
    :param value: an address, ``Name <address>``, several separated by commas, a dictionary, or a list of these.
    :raises MailValidationError: there is none, there are more than 20, or the value has another type.
    """
    if not isinstance(value, str | Mapping | list | tuple):
        raise MailValidationError(
            f"{argument}: an address or a list of addresses is needed, not {type(value).__name__}"
        )
    items = list(value) if isinstance(value, list | tuple) else [value]
    people: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        people += _people(f"{argument}[{number}]", item)
    # The first recipient with an address wins: the last one in reverse order.
    by_address = {address_key(str(person.get("email"))): person for person in reversed(people)}
    recipients = list(by_address.values())[::-1]
    if not recipients:
        raise MailValidationError(f"{argument}: is empty; give at least one address")
    if len(recipients) > MAX_RECIPIENTS:
        raise MailValidationError(
            f"{argument}: {len(recipients)} recipients, one message can have {MAX_RECIPIENTS}. MailSendBatchOperator "
            "sends a message to each"
        )
    return recipients


def _people(path: str, value: Any) -> list[dict[str, Any]]:
    if isinstance(value, Mapping):
        return [dict(value)]
    if not isinstance(value, str):
        raise MailValidationError(f"{path}: an address must be text, not {type(value).__name__}")
    undecoded: list[str] = []
    parts = [mailbox(path, part, undecoded) for part in split_mailboxes(value)]
    if undecoded:
        raise MailValidationError(undecoded[0])
    return [{"email": address, "name": name or None} for address, name in parts]
