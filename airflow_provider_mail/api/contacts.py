"""Contacts (document, "Contacts"): upsert, import, read, delete."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import BeforeValidator, Field, model_validator

from airflow_provider_mail.api._core.fields import Address, PhoneNumber, ServiceTime, Text
from airflow_provider_mail.api._core.requests import (
    Effect,
    Flow,
    MailRequest,
    MailResponse,
    PagedRequest,
    PageResponse,
    Part,
    Records,
    Resource,
    Sandboxed,
)
from airflow_provider_mail.api.errors import MailRejectedError


class UpdateMode(IntEnum):
    """What an import does with contacts that exist and with contacts that do not."""

    CREATE_AND_UPDATE = 1
    CREATE_ONLY = 2
    UPDATE_ONLY = 3


_TEXTS = frozenset({str, type(None)})


def _text_values(value: Any) -> Any:
    if not isinstance(value, dict):
        return {} if value is None else value  # what is no object at all is refused
    if _TEXTS.issuperset(map(type, value.values())):
        return value
    return {key: item if type(item) in _TEXTS else _as_json(item) for key, item in value.items()}


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Contact(Resource):
    """A contact as the service returns it; ``properties`` holds system and user-defined ones as text."""

    id: Annotated[str | None, BeforeValidator(lambda value: value if value is None else str(value))] = None
    name: str | None = None
    email: str | None = None
    phone_number: str | None = None
    properties: Annotated[dict[str, str | None], BeforeValidator(_text_values)] = Field(default_factory=dict)
    create_date: ServiceTime = None
    modify_time: ServiceTime = None
    create_user_id: int | None = None


class UpsertContact(MailRequest[MailResponse], Sandboxed):
    """Create or update one contact; ``email`` or ``phone_number`` is needed."""

    path = "/v5/contacts/upsert"
    effect = Effect.REPEATABLE

    name: str | None = None
    email: Address | None = None
    phone_number: PhoneNumber | None = None
    list_name: Text | None = None

    @model_validator(mode="after")
    def _reachable(self) -> UpsertContact:
        if self.email is None and self.phone_number is None:
            raise ValueError("email or phone_number must be given")
        return self


class ColumnMapping(Part):
    """Which property the values at a position (from 0) belong to."""

    column_num: int = Field(ge=0)
    property_name: Text


class ImportContacts(MailRequest[MailResponse], Sandboxed):
    """Import many contacts: one inner list a contact, its values in the order of the mapping."""

    path = "/v5/contacts/imports"
    effect = Effect.REPEATABLE

    contact_data: list[list[str | None]] = Field(min_length=1)
    contact_data_mapping: list[ColumnMapping] = Field(min_length=1)
    update_mode: UpdateMode
    list_name: Text | None = None
    list_description: str | None = None

    def payload(self) -> bytes:
        """The JSON body, by msgspec: this is the hot path, and ``contact_data`` may be encoded already."""
        body = self.model_dump(by_alias=True, exclude_none=True, exclude={"contact_data"})
        return msgspec.json.encode({**body, "contactData": self.contact_data})

    @model_validator(mode="after")
    def _consistent(self) -> ImportContacts:
        check_mapping([column.property_name for column in self.contact_data_mapping])
        positions = [column.column_num for column in self.contact_data_mapping]
        if len(set(positions)) < len(positions):
            raise ValueError("contact_data_mapping: a column_num is given twice")
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
    """Refuse a mapping by which no contact could be reached, or that fills a property twice.

    :raises ValueError: naming the properties.
    """
    if not {"email", "phoneNumber"} & set(properties):
        raise ValueError("contact_data_mapping: neither email nor phoneNumber is among the properties")
    twice = sorted({name for name in properties if properties.count(name) > 1})
    if twice:
        raise ValueError(f"contact_data_mapping: given twice: {', '.join(twice)}")


class GetContactResponse(MailResponse):
    """``contact`` is ``None`` where the service answers success without one."""

    contact: Contact | None = None


class GetContact(MailRequest[GetContactResponse]):
    """Read one contact by its address."""

    path = "/v5/contacts/get"
    effect = Effect.READ

    email: Text


class ContactsPage(PageResponse[Contact]):
    request_id: str | None = None
    contact_list: Records[Contact] | None = None

    @property
    def records(self) -> list[Contact]:
        return self.contact_list or []

    @staticmethod
    def identity(record: Contact) -> object:
        return record.id or (record.email, record.phone_number)


class GetListContacts(PagedRequest[ContactsPage]):
    """Read the contacts of a list, 200 a page unless told otherwise, 1,000 at most."""

    path = "/v5/contacts/list/get"
    effect = Effect.READ

    list_name: Text
    page_size: int | None = Field(default=None, ge=1, le=1000)
    team_name: Text | None = None


class DeleteContact(MailRequest[MailResponse], Sandboxed):
    """Delete a contact for good."""

    path = "/v5/contacts/delete"
    effect = Effect.DELETE

    # Contacts are not listed but asked for one by one, and what is answered for an unknown address is not shown.
    lookup_is_authoritative: ClassVar[bool] = False

    email: Text

    def exists(self) -> Flow[bool]:
        """Ask the service whether the contact is (still) there."""
        try:
            answer = yield GetContact(email=self.email)
        except MailRejectedError as refusal:
            if refusal.code is None:
                raise  # Somebody else's words, such as a proxy's: they say nothing about the contact.
            return False
        return answer.contact is not None
