"""Email templates (specification, "Templates"). None of these operations has a sandbox mode."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from airflow_provider_mail.api._core.fields import Html, Line, ServiceTime, TemplateName
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
)

__all__ = ["AddTemplate", "DeleteTemplate", "GetTemplates", "Template", "find_template"]

EditorType = Literal["DRAG", "CLASSIC"]


class Template(OpenResource):
    """A stored template; ``create_date`` has no zone in the response and is read as UTC."""

    template_name: str
    template_content: str | None = None
    template_subject: str | None = None
    create_date: ServiceTime = None


class AddTemplate(MailRequest[MailResponse]):
    """Store a template.

    :param template_name: its unique name, at most 250 characters.
    :param template_content: HTML; may contain ``{{tags}}``.
    :param template_subject: default subject, one line; may contain tags.
    :param editor_type: ``DRAG`` (the service's default) or ``CLASSIC``.
    """

    path = "/v5/campaign/mail/template/add"
    effect = Effect.CREATE

    template_name: TemplateName
    template_content: Annotated[Html, Field(min_length=1)]
    template_subject: Annotated[Line, Field(min_length=1)]
    editor_type: EditorType | None = None

    def find(self, client: Client) -> Template | None:
        return find_template(client, self.template_name)

    def differences(self, existing: Template) -> list[str]:
        """Return the fields in which an existing template differs; the service does not return the editor."""
        pairs = {
            "template_content": (self.template_content, existing.template_content),
            "template_subject": (self.template_subject, existing.template_subject),
        }
        return [
            name
            for name, (value, existing_value) in pairs.items()
            if existing_value is not None and value != existing_value
        ]


class TemplatesPage(PageResponse[Template]):
    """One page of templates."""

    records_field = "template_list"

    template_list: Records[Template] | None = None

    @staticmethod
    def identity(record: Template) -> object:
        return record.template_name


class GetTemplates(PagedRequest[TemplatesPage]):
    """Read templates, 10 per page by default.

    :param template_name: only templates whose name contains this text.
    """

    path = "/v5/campaign/mail/template/get"
    effect = Effect.READ

    template_name: str | None = None


class DeleteTemplate(MailRequest[MailResponse]):
    """Delete a template permanently; campaigns that were created from it are not affected.

    :param template_name: its name, at most 250 characters.
    """

    path = "/v5/campaign/mail/template/delete"
    effect = Effect.DELETE
    lookup_is_authoritative = True

    template_name: TemplateName

    def find(self, client: Client) -> Template | None:
        return find_template(client, self.template_name)


def find_template(client: Client, template_name: str) -> Template | None:
    """Return the template with exactly this name, or ``None``.

    :param template_name: its name.
    """
    return find(
        client,
        GetTemplates(template_name=template_name, page_size=100),
        lambda record: record.template_name == template_name,
    )
