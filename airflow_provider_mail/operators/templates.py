"""Email templates: create and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.operators._base import BaseCreateOperator, BaseDeleteOperator

if TYPE_CHECKING:
    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.api._core.requests import Client

__all__ = ["MailCreateTemplateOperator", "MailDeleteTemplateOperator"]


class MailCreateTemplateOperator(BaseCreateOperator):
    """Store an email template, unless an equal one of that name exists.

    Templates have no sandbox mode: on a connection in sandbox mode nothing is stored, and the task fails.

    Returns ``template_name``, ``created`` and ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailCreateTemplateOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param template_name: the name of the template, 250 characters at most. (templated)
    :param template_content: HTML, or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's folder or in
        ``template_searchpath``. Airflow renders both, so write the service's tags as
        ``{% raw %}{{tag}}{% endraw %}``. (templated)
    :param template_subject: the subject, with tags in the same form. (templated)
    :param editor_type: the service's editor: ``DRAG`` or ``CLASSIC``. The service does not return it, so it is not
        compared with an existing template's. Default: the service's, ``DRAG``. (templated)
    :param allow_blank: store it although subject or content is blank, or a template rendered it to nothing or to the
        text ``None``. Default: false, the task fails before anything is stored.
    :param replace: when a different template of that name exists, delete it and store this one; between the two
        requests, there is none. Default: false, the task fails.
    :param sandbox_mode: true fails the task before anything is sent, since templates have no sandbox mode. Default:
        false.
    """

    template_fields_renderers = {"template_content": "html"}  # noqa: RUF012 - Airflow's own attribute
    operation = "AddTemplate"
    thing = "template"
    identified_by = ("template_name",)
    required_texts = ("template_subject", "template_content")
    replace: bool

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        template_name: Templated[str],
        template_content: Templated[str],
        template_subject: Templated[str],
        allow_blank: bool = False,
        editor_type: Templated[Literal["CLASSIC", "DRAG"]] | None = None,
        replace: bool = False,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def change(self, client: Client) -> bool:
        from airflow_provider_mail.api.flows.create_once import create
        from airflow_provider_mail.api.templates import DeleteTemplate

        return create(
            client,
            self.operation_request(),
            replace=self.build_request(DeleteTemplate) if self.replace else None,
            advice="set replace=True to store this one in its place, or choose another template_name",
        )


class MailDeleteTemplateOperator(BaseDeleteOperator):
    """Delete an email template permanently; campaigns that were created from it are not affected.

    Templates have no sandbox mode: on a connection in sandbox mode nothing is deleted, and the task fails.

    Returns ``template_name``, ``deleted`` and ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailDeleteTemplateOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param template_name: the name of the template. (templated)
    :param ignore_if_missing: succeed when there is no such template, as in a second try after a success. If false, the
        task fails. Default: true.
    :param sandbox_mode: true fails the task before anything is sent, since templates have no sandbox mode. Default:
        false.
    """

    operation = "DeleteTemplate"
    thing = "template"
    identified_by = ("template_name",)

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        template_name: Templated[str],
        ignore_if_missing: bool = True,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())
