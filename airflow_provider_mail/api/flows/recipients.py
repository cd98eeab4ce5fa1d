"""Parse the recipients of a message in the forms in which people write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_mail.api._core.addresses import address_key, mailbox, split_mailboxes
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.transactional import MAX_RECIPIENTS


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
