"""Email templates: create and delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.arguments import check_flags
from airflow_provider_mail._task.content_file import from_file
from airflow_provider_mail.operators._named import BaseCreateOperator, BaseDeleteOperator

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

    from airflow_provider_mail.api.flows.ensure import Deletable
    from airflow_provider_mail.api.templates import AddTemplate, DeleteTemplate


class MailCreateTemplateOperator(BaseCreateOperator):
    """Stores a template, unless one of that name exists and is equal.

    Templates have no sandbox mode: on a connection in sandbox mode nothing is stored, and the task fails and says so.

    Returns ``template_name``, ``created`` and ``sandbox``.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/resources.md``.

    :param template_name: its name: 250.
    :param template_content: HTML, or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's folder or in
        ``template_searchpath``. The service's tags are written ``{% raw %}{{tag}}{% endraw %}``, since Airflow renders
        the field, and so the file.
    :param template_subject: the subject, with tags likewise.
    :param editor_type: ``DRAG`` (the service's default) or ``CLASSIC``; never compared, since it is not returned.
    :param replace: delete one that exists and differs and store this one; for a moment there is none. Default: fail.
    """

    template_fields: Sequence[str] = (
        *BaseCreateOperator.template_fields,
        "template_name",
        "template_content",
        "template_subject",
        "editor_type",
    )
    template_fields_renderers = {"template_content": "html"}  # noqa: RUF012 - Airflow's own attribute
    thing = "template"

    def __init__(
        self,
        *,
        template_name: str,
        template_content: str | XComArg,
        template_subject: str | XComArg,
        editor_type: str | None = None,
        replace: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(replace=replace)
        self.template_name = template_name
        self.template_content = from_file(template_content)
        self.template_subject = template_subject
        self.editor_type = editor_type
        self.replace = replace

    @property
    def identity(self) -> dict[str, str]:
        return {"template_name": self.template_name}

    def creation(self, context: Context) -> AddTemplate:
        from airflow_provider_mail.api.templates import AddTemplate

        fields: dict[str, Any] = {
            "template_name": self.template_name,
            "template_content": self.template_content,
            "template_subject": self.template_subject,
            "editor_type": self.editor_type,
        }
        return AddTemplate(**fields)

    def replacement(self) -> Deletable | None:
        from airflow_provider_mail.api.templates import DeleteTemplate

        return DeleteTemplate(template_name=self.template_name) if self.replace else None


class MailDeleteTemplateOperator(BaseDeleteOperator):
    """Deletes a template for good; campaigns made from it are not affected.

    Templates have no sandbox mode: on a connection in sandbox mode nothing is deleted, and the task fails and says so.

    Returns ``template_name``, ``deleted`` and ``sandbox``.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/resources.md``.

    :param template_name: its name.
    """

    template_fields: Sequence[str] = (*BaseDeleteOperator.template_fields, "template_name")
    thing = "template"

    def __init__(self, *, template_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.template_name = template_name

    @property
    def identity(self) -> dict[str, str]:
        return {"template_name": self.template_name}

    def deletion(self, context: Context) -> DeleteTemplate:
        from airflow_provider_mail.api.templates import DeleteTemplate

        return DeleteTemplate(template_name=self.template_name)
