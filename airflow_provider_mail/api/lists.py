"""Contact lists (specification, "Contact lists")."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, AliasGenerator, ConfigDict
from pydantic.alias_generators import to_camel, to_pascal

from airflow_provider_mail.api._core.fields import ServiceTime, Text
from airflow_provider_mail.api._core.pagination import find
from airflow_provider_mail.api._core.requests import (
    Client,
    Effect,
    MailRequest,
    MailResponse,
    OpenResource,
    PagedRequest,
    PageResponse,
    Records,
    Sandboxed,
)

__all__ = ["AddList", "ContactList", "DeleteList", "GetLists", "find_list"]

ListType = Literal[0, 1]
"""``0`` dynamic, ``1`` static."""


DYNAMIC = 0
"""The type of a list whose contacts a filter determines."""


class ContactList(OpenResource):
    """A contact list. The specification shows its keys in Pascal case and in camel case: both are accepted."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(
            validation_alias=lambda name: AliasChoices(to_pascal(name), to_camel(name)), serialization_alias=to_pascal
        )
    )

    id: int | None = None
    team_id: int | None = None
    list_name: str
    list_status: int | None = None
    list_type: int | None = None
    list_filters: str | None = None
    create_user_id: int | None = None
    create_date: ServiceTime = None
    modify_date: ServiceTime = None


class AddList(MailRequest[MailResponse], Sandboxed):
    """Create a static list.

    :param list_name: its name.
    :param list_description: its description.
    """

    path = "/v5/lists/add"
    effect = Effect.CREATE

    list_name: Text
    list_description: str | None = None

    def find(self, client: Client) -> ContactList | None:
        return find_list(client, self.list_name)

    def differences(self, existing: ContactList) -> list[str]:
        """Return how an existing list differs; the service does not return descriptions."""
        return ["list_type: it is a dynamic list"] if existing.list_type == DYNAMIC else []


class ListsPage(PageResponse[ContactList]):
    """One page of lists."""

    records_field = "lists"

    lists: Records[ContactList] | None = None

    @staticmethod
    def identity(record: ContactList) -> object:
        return record.id if record.id is not None else record.list_name


class GetLists(PagedRequest[ListsPage]):
    """Read lists, 10 per page by default.

    :param search: only lists whose name contains this text.
    :param list_type: only dynamic (0) or static (1) lists.
    :param sort: field that the lists are sorted by.
    """

    path = "/v5/lists/get"
    effect = Effect.READ

    search: str | None = None
    list_type: ListType | None = None
    sort: Literal["CreateDate", "ModifyDate"] | None = None


class DeleteList(MailRequest[MailResponse], Sandboxed):
    """Delete a list.

    :param list_name: its name.
    """

    path = "/v5/lists/delete"
    effect = Effect.DELETE
    lookup_is_authoritative = True

    list_name: Text

    def find(self, client: Client) -> ContactList | None:
        return find_list(client, self.list_name)


def find_list(client: Client, list_name: str) -> ContactList | None:
    """Return the list with exactly this name, or ``None``.

    :param list_name: its name.
    """
    return find(client, GetLists(search=list_name, page_size=100), lambda record: record.list_name == list_name)
