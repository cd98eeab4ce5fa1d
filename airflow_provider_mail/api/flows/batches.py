"""Split a mailing into batch requests (specification, "Transactional email", batch form).

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

from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.transactional import MAX_VERSIONS, Delivery, SendBatch


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
        name: _people(f"messages[{number}].{name}", fields[name]) for name in ("to", "cc", "bcc") if name in fields
    }


def _people(field: str, value: Any) -> list[Any]:
    people: Sequence[Any] = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(people, Sequence):
        raise MailValidationError(f"{field}: an address or a list of them is needed, not {type(value).__name__}")
    return [{"email": person} if isinstance(person, str) else person for person in people]


def _by_message(message: str, numbers: Sequence[int]) -> str:
    """Return a validation message with the numbers of the whole mailing."""
    return re.sub(r"\bmessage_versions\[(\d+)\]", lambda match: f"messages[{numbers[int(match[1])]}]", message)
