"""Cutting a mailing into batch requests (document, "Transactional email", batch form).

Each request holds up to 100 versions and carries an id that depends only on the mailing and its place in it, so that
the same request of a later try is known to be the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.transactional import Delivery, SendBatch

MAX_VERSIONS = 100


@dataclass(frozen=True, slots=True)
class Chunk:
    """One request of a mailing.

    :param index: its place, from 0.
    :param recipients: people in ``to``, ``cc`` and ``bcc``.
    :param digest: of what is sent, to tell whether a later try would send the same.
    """

    index: int
    request: Delivery
    recipients: int
    digest: str

    @classmethod
    def of(cls, index: int, request: Delivery, recipients: int) -> Chunk:
        """The chunk that sends this request."""
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
    """The requests of a mailing, in order.

    :param common: fields of :class:`~airflow_provider_mail.api.transactional.SendBatch` that all of them share.
    :param messages: one dictionary a version: ``to`` (an address, ``{"email": ..., "name": ...}``, or a list of
        these), and if wanted ``cc``, ``bcc``, ``subject``, ``content``, ``template_name``, ``params``.
    :param key: the mailing's own name; the same in every try.
    :param versions: versions in one request.
    :param keep: what is sent of a message, given its number and its fields; ``None``: it is left out.
    :raises MailValidationError: naming the message, by its number from 0, and the field.
    """
    if not 1 <= versions <= MAX_VERSIONS:
        raise MailValidationError(f"versions in one request: {versions}, must be from 1 to {MAX_VERSIONS}")
    made = ((number, keep(number, _version(number, message))) for number, message in enumerate(messages))
    iterator = ((number, version) for number, version in made if version is not None)
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
        people = sum(len(version.to) + len(version.cc) + len(version.bcc) for version in request.message_versions)
        yield Chunk.of(index, request, people)
        index += 1


def unique_msg_id(key: str, index: int) -> str:
    """The id of a mailing's request: at most 50 bytes, whatever the key."""
    return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}-{index}"


def _version(number: int, message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise MailValidationError(f"messages[{number}]: a dictionary is needed, not {type(message).__name__}")
    given = {name: value for name, value in message.items() if value is not None}
    return given | {
        name: _people(f"messages[{number}].{name}", given[name]) for name in ("to", "cc", "bcc") if name in given
    }


def _people(where: str, value: Any) -> list[Any]:
    people: Sequence[Any] = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(people, Sequence):
        raise MailValidationError(f"{where}: an address or a list of them is needed, not {type(value).__name__}")
    return [{"email": person} if isinstance(person, str) else person for person in people]


def _by_message(complaint: str, numbers: Sequence[int]) -> str:
    """The complaint about a request in numbers of the whole mailing."""
    return re.sub(r"\bmessage_versions\[(\d+)\]", lambda place: f"messages[{numbers[int(place[1])]}]", complaint)
