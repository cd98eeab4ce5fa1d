"""Read the contacts of a list quickly: a page is decoded in one step, without building a model of each contact."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from airflow_provider_mail.api._core.fields import service_time
from airflow_provider_mail.api._core.other_fields import declare_other_fields, decode_open
from airflow_provider_mail.api.contacts import ContactsPage, GetListContacts

_SafeInteger = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


def _unexpected(name: str) -> Any:
    """Declare a name that only the model accepts, so that a page with it is left to the model."""
    return msgspec.field(name=name, default=None)


class CompactContact(msgspec.Struct, rename="camel", gc=False):
    """A contact with the attributes of :class:`~airflow_provider_mail.api.contacts.Contact`.

    Its fields are narrower than those of the model: a page with other values is left to the model.
    """

    id: str | None = None
    name: str | None = None
    email: str | None = None
    phone_number: str | None = None
    properties: dict[str, str | None] = {}
    create_date: Any = None
    modify_time: Any = None
    create_user_id: _SafeInteger | None = None
    other_fields: dict[str, Any] | None = declare_other_fields()
    _phone_number: None = _unexpected("phone_number")
    _create_date: None = _unexpected("create_date")
    _modify_time: None = _unexpected("modify_time")
    _create_user_id: None = _unexpected("create_user_id")


class _DocumentedContact(CompactContact, gc=False, forbid_unknown_fields=True):
    """A contact without unknown fields, which is decoded in one step."""


class _Page(msgspec.Struct, rename="camel"):
    code: int
    request_id: str | None = None
    total_records: int | None = None
    contact_list: list[_DocumentedContact] | None = None
    _request_id: None = _unexpected("request_id")
    _total_records: None = _unexpected("total_records")
    _contact_list: None = _unexpected("contact_list")


class _OpenPage(_Page, rename="camel"):
    contact_list: list[msgspec.Raw] | None = None  # type: ignore[assignment]


_decode = msgspec.json.Decoder(_Page).decode
_decode_open = msgspec.json.Decoder(_OpenPage).decode


class GetCompactContacts(GetListContacts):
    """The same operation. Contacts of the documented form are decoded as :class:`CompactContact`."""

    def decode(self, body: bytes | bytearray) -> ContactsPage | None:
        """Decode a successful response; ``None`` leaves it to the model, which reports what is wrong."""
        try:
            page = _decoded(body)
            for contact in page.contact_list or ():
                contact.create_date = service_time(contact.create_date)
                contact.modify_time = service_time(contact.modify_time)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
            return None
        if page.code != 200:
            return None
        return ContactsPage.model_construct(contact_list=page.contact_list, total_records=page.total_records)


def _decoded(body: bytes | bytearray) -> Any:
    try:
        return _decode(body)
    except msgspec.ValidationError:  # The contacts have undocumented fields, or are invalid.
        page: Any = _decode_open(body)
        page.contact_list = decode_open(page.contact_list or (), CompactContact)
        return page
