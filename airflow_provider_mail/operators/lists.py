"""Contact lists: create and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.operators._base import BaseCreateOperator, BaseDeleteOperator

if TYPE_CHECKING:
    from airflow_provider_mail._task.airflow_arguments import TaskArguments

__all__ = ["MailCreateListOperator", "MailDeleteListOperator"]


class MailCreateListOperator(BaseCreateOperator):
    """Create a static contact list, unless it exists.

    A dynamic list of that name fails the task. An import creates its list itself.

    Returns ``list_name``, ``created`` and ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailCreateListOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param list_name: the name of the list. (templated)
    :param list_description: the description with which the list is created. The service does not return it, so the
        description of an existing list is not compared. Default: none. (templated)
    :param sandbox_mode: let the service check the request and change nothing. Default: false.
    """

    operation = "AddList"
    thing = "list"
    identified_by = ("list_name",)

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        list_name: Templated[str],
        list_description: Templated[str] | None = None,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())


class MailDeleteListOperator(BaseDeleteOperator):
    """Delete a contact list; its contacts stay.

    Returns ``list_name``, ``deleted`` and ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailDeleteListOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param list_name: the name of the list. (templated)
    :param ignore_if_missing: succeed when there is no such list, as in a second try after a success. If false, the task
        fails. Default: true.
    :param sandbox_mode: let the service check the request and change nothing. Default: false.
    """

    operation = "DeleteList"
    thing = "list"
    identified_by = ("list_name",)

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        list_name: Templated[str],
        ignore_if_missing: bool = True,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())
