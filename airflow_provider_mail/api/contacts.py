"""Contacts (specification, "Contacts"): upsert, import, read, delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Annotated, Any

import msgspec
from pydantic import BeforeValidator, Field, model_validator

from airflow_provider_mail.api._core.fields import Address, PhoneNumber, ServiceTime, Text
from airflow_provider_mail.api._core.requests import (
    Client,
    Effect,
    MailRequest,
    MailResponse,
    OpenResource,
    PagedRequest,
    PageResponse,
    Records,
    RequestModel,
    Sandboxed,
)
from airflow_provider_mail.api.errors import MailRejectedError

__all__ = [
    "ColumnMapping",
    "Contact",
    "DeleteContact",
    "GetContact",
    "GetListContacts",
    "ImportContacts",
    "UpdateMode",
    "UpsertContact",
]


class UpdateMode(IntEnum):
    """Whether an import creates new contacts, updates existing ones, or both."""

    CREATE_AND_UPDATE = 1
    CREATE_ONLY = 2
    UPDATE_ONLY = 3


_TEXTS = frozenset({str, type(None)})


def _text_values(value: Any) -> Any:
    if not isinstance(value, dict):
        return {} if value is None else value  # A value that is not an object fails validation.
    if _TEXTS.issuperset(map(type, value.values())):
        return value
    return {key: item if type(item) in _TEXTS else _as_json(item) for key, item in value.items()}


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Contact(OpenResource):
    """A contact as the service returns it; the values of ``properties``, system and user-defined, are text."""

    id: Annotated[str | None, BeforeValidator(lambda value: value if value is None else str(value))] = None
    name: str | None = None
    email: str | None = None
    phone_number: str | None = None
    properties: Annotated[dict[str, str | None], BeforeValidator(_text_values)] = Field(default_factory=dict)
    create_date: ServiceTime = None
    modify_time: ServiceTime = None
    create_user_id: int | None = None


class UpsertContact(MailRequest[MailResponse], Sandboxed):
    """Create or update one contact; ``email`` or ``phone_number`` is required.

    :param name: its name. Default: ``email``.
    :param email: its address.
    :param phone_number: its phone number.
    :param list_name: list that the contact is added to.
    """

    path = "/v5/contacts/upsert"
    effect = Effect.REPEATABLE

    name: str | None = None
    email: Address | None = None
    phone_number: PhoneNumber | None = None
    list_name: Text | None = None

    @model_validator(mode="after")
    def _reachable(self) -> UpsertContact:
        if self.email is None and self.phone_number is None:
            raise ValueError("email or phone_number is required")
        return self


class ColumnMapping(RequestModel):
    """The property that a column of ``contact_data`` holds.

    :param column_num: index of the column, from 0.
    :param property_name: name of the property, such as ``email``.
    """

    column_num: int = Field(ge=0)
    property_name: Text


class ImportContacts(MailRequest[MailResponse], Sandboxed):
    """Import many contacts.

    :param contact_data: one list of values per contact.
    :param contact_data_mapping: which column holds which property; ``email`` or ``phoneNumber`` is required.
    :param update_mode: 1 creates and updates, 2 only creates, 3 only updates.
    :param list_name: list that the contacts are added to.
    :param list_description: description of the list; only with ``list_name``.
    """

    path = "/v5/contacts/imports"
    effect = Effect.REPEATABLE

    contact_data: list[list[str | None]] = Field(min_length=1)
    contact_data_mapping: list[ColumnMapping] = Field(min_length=1)
    update_mode: UpdateMode
    list_name: Text | None = None
    list_description: str | None = None

    def payload(self) -> bytes:
        """Return the JSON body. Uses msgspec for speed; ``contact_data`` may be encoded already."""
        body = self.model_dump(by_alias=True, exclude_none=True, exclude={"contact_data"})
        return msgspec.json.encode({**body, "contactData": self.contact_data})

    def pii_values(self) -> Iterator[str]:
        for row in msgspec.json.decode(msgspec.json.encode(self.contact_data)):
            yield from filter(None, row)

    @model_validator(mode="after")
    def _consistent(self) -> ImportContacts:
        check_mapping([column.property_name for column in self.contact_data_mapping])
        positions = [column.column_num for column in self.contact_data_mapping]
        if len(set(positions)) < len(positions):
            raise ValueError("contact_data_mapping: duplicate column_num")
        width = max(positions) + 1
        short = next((number for number, row in enumerate(self.contact_data) if len(row) < width), None)
        if short is not None:
            raise ValueError(
                f"contact_data[{short}]: {len(self.contact_data[short])} values, the mapping needs {width}"
            )
        if self.list_description is not None and self.list_name is None:
            raise ValueError("list_description is used only when list_name is given")
        return self


def check_mapping(properties: list[str]) -> None:
    """Check that the properties of a mapping identify a contact, and that none is repeated.

    :raises ValueError: the check fails; the message names the properties.
    """
    if not {"email", "phoneNumber"} & set(properties):
        raise ValueError("contact_data_mapping: neither email nor phoneNumber is among the properties")
    twice = sorted({name for name in properties if properties.count(name) > 1})
    if twice:
        raise ValueError(f"contact_data_mapping: duplicate properties: {', '.join(twice)}")


class GetContactResponse(MailResponse):
    """``contact`` is ``None`` when the service reports success without a contact."""

    contact: Contact | None = None


class GetContact(MailRequest[GetContactResponse]):
    """Read one contact.

    :param email: its address.
    """

    path = "/v5/contacts/get"
    effect = Effect.READ

    email: Text


def existing_contacts(client: Client, contacts: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return the identifiers of those contacts that the service has under their address.

    :param contacts: identifiers and addresses; a contact without an address is left out.
    """
    existing = []
    for identifier, email in contacts:
        try:
            contact = client.send(GetContact(email=email)).contact if email else None
        except MailRejectedError:
            continue  # so the service responds for an unknown address
        if contact is not None and contact.id == identifier:
            existing.append(identifier)
    return existing


class ContactsPage(PageResponse[Contact]):
    """One page of contacts."""

    records_field = "contact_list"

    request_id: str | None = None
    contact_list: Records[Contact] | None = None

    @staticmethod
    def identity(record: Contact) -> object:
        return record.id or (record.email, record.phone_number)


class GetListContacts(PagedRequest[ContactsPage]):
    """Read the contacts of a list, 200 per page by default.

    :param list_name: the list.
    :param page_size: maximum number of contacts per page, at most 1,000.
    :param team_name: team of the list; another team than the own needs a permission.
    """

    path = "/v5/contacts/list/get"
    effect = Effect.READ

    list_name: Text
    page_size: int | None = Field(default=None, ge=1, le=1000)
    team_name: Text | None = None


class DeleteContact(MailRequest[MailResponse], Sandboxed):
    """Delete a contact permanently.

    :param email: its address.
    """

    path = "/v5/contacts/delete"
    effect = Effect.DELETE

    email: Text

    def exists(self, client: Client) -> bool:
        """Look up whether the contact exists; the specification does not show the response for an unknown address."""
        try:
            response = client.send(GetContact(email=self.email))
        except MailRejectedError as rejection:
            if rejection.code is None:
                raise  # A proxy's response does not show whether the contact exists.
            return False
        return response.contact is not None
