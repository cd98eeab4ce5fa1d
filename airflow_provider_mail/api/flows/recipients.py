"""Read the recipients of a message in the forms in which people write them."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import getaddresses
from typing import Any

from airflow_provider_mail.api.errors import MailValidationError

MAX_RECIPIENTS = 20


def recipients_of(argument: str, value: Any) -> list[dict[str, Any]]:
    """Return the recipients, each once.

    :param argument: the name of the argument, for errors.
    :param value: an address, ``Name <address>``, several separated by commas, a dictionary, or a list of these.
    :raises MailValidationError: there is none, there are more than 20, or the value has another type.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in [value] if isinstance(value, str | Mapping) else _items(argument, value):
        for person in _people(argument, each):
            found.setdefault(str(person.get("email")).lower(), person)
    if not found:
        raise MailValidationError(f"{argument}: is empty; give at least one address")
    if len(found) > MAX_RECIPIENTS:
        raise MailValidationError(
            f"{argument}: {len(found)} recipients, one message can have {MAX_RECIPIENTS}. MailSendBatchOperator sends "
            "a message to each"
        )
    return list(found.values())


def _items(argument: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise MailValidationError(
            f"{argument}: an address or a list of addresses is needed, not {type(value).__name__}"
        )
    return list(value)


def _people(argument: str, value: Any) -> list[dict[str, Any]]:
    if isinstance(value, Mapping):
        return [dict(value)]
    if not isinstance(value, str):
        raise MailValidationError(f"{argument}: every address must be text, but one is {type(value).__name__}")
    if not any(mark in value for mark in ",;<"):
        return [{"email": value.strip()}] if value.strip() else []
    if '"' not in value:
        value = value.replace(";", ",")
    return [{"email": address, "name": name or None} for name, address in getaddresses([value]) if name or address]
