"""Contact lists: create and delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.operators._named import BaseCreateOperator, BaseDeleteOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.lists import AddList, DeleteList


class MailCreateListOperator(BaseCreateOperator):
    """Creates a static contact list, unless it exists. (An import creates its list by itself.)

    Returns ``list_name``, ``created`` and ``sandbox``. A dynamic list of that name fails the task.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/resources.md``.

    :param list_name: its name.
    :param list_description: used when it is created; the service does not return it, so it is never compared.
    """

    template_fields: Sequence[str] = (*BaseCreateOperator.template_fields, "list_name", "list_description")
    thing = "list"

    def __init__(self, *, list_name: str, list_description: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.list_name = list_name
        self.list_description = list_description

    @property
    def identity(self) -> dict[str, str]:
        return {"list_name": self.list_name}

    def creation(self, context: Context) -> AddList:
        from airflow_provider_mail.api.lists import AddList

        return AddList(
            list_name=self.list_name,
            list_description=self.list_description,
            sandbox_mode=self.sandbox_mode or None,
        )


class MailDeleteListOperator(BaseDeleteOperator):
    """Deletes a contact list; its contacts stay.

    Returns ``list_name``, ``deleted`` and ``sandbox``.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/resources.md``.

    :param list_name: its name.
    """

    template_fields: Sequence[str] = (*BaseDeleteOperator.template_fields, "list_name")
    thing = "list"

    def __init__(self, *, list_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.list_name = list_name

    @property
    def identity(self) -> dict[str, str]:
        return {"list_name": self.list_name}

    def deletion(self, context: Context) -> DeleteList:
        from airflow_provider_mail.api.lists import DeleteList

        return DeleteList(list_name=self.list_name, sandbox_mode=self.sandbox_mode or None)
