"""Checks of a campaign before it is created."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from airflow_provider_mail._task.checks import unwrap
from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.operators._base import BaseCampaignOperator
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.api.flows.preflight import Report

__all__ = ["MailPreflightOperator"]

FailOn: TypeAlias = Literal["error", "warning", "never"]

FAIL_ON: dict[FailOn, tuple[str, ...]] = {"error": ("error",), "warning": ("error", "warning"), "never": ()}
"""The levels at which the task fails."""


class MailPreflightOperator(BaseCampaignOperator):
    """Check a campaign before it is created: with read-only requests and the service's own check. Nothing changes.

    Has the arguments with which :class:`~airflow_provider_mail.operators.campaigns.MailCreateCampaignOperator` will
    create it; give both the same ``mail_name``, or the name is not checked. Arguments that are invalid there also fail
    this task.

    Returns ``mail_name``, ``errors``, ``warnings``, ``recipients`` (contacts in the target lists; null if the service
    does not report it), ``findings`` (each with ``check``, ``level`` and ``text``) and ``table``, the findings as a
    Markdown table for a person who decides. Addresses are reduced to their domains.

    .. seealso:: the guide :ref:`howto/operator:MailPreflightOperator`
        (in the package: ``airflow_provider_mail/docs/preflight.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param mail_name: the name of the campaign, 200 bytes at most, unique within the team. Default: made of dag id, task
        id, run id and map index. (templated)
    :param sender_mail: a verified sender of the account. (templated)
    :param sender_name: the display name of the sender. Default: ``sender_mail``. (templated)
    :param subject: the subject. It may contain tags; since Airflow renders the field, write them as
        ``{% raw %}{{tag}}{% endraw %}``. Default: none. (templated)
    :param content: HTML, with tags in the same form; or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's
        folder or in ``template_searchpath``, which is rendered as well. Default: none. (templated)
    :param allow_blank: send it although an argument that recipients see, such as ``subject`` or ``content``, is missing
        or blank, or a template rendered it to nothing or to the text ``None``. A draft may be blank anyway. Default:
        false, the task fails before anything is sent.
    :param send_date: the send time: a datetime with a zone or ISO 8601 text with one. Default: now. A campaign that
        would be created more than five minutes after it fails the task, unless ``allow_past_send_date``. (templated)
    :param only_save: save a draft and send nothing. Default: false.
    :param audience: whom it is sent to: the result of a task that imports contacts, or of a mapped one, as in
        ``audience=task.output``. Lists that are named besides are added, unless only changes of an exact audience are
        imported. Default: none. (templated)
    :param send_list_names: the target lists; required unless ``only_save``. One name may be given as text, and a
        template such as ``"{{ params.lists }}"`` may render to a list. (templated)
    :param repel_list_names: the exclusion lists, in the same forms. Default: none. (templated)
    :param reply_to: the address for replies. Default: ``sender_mail``. (templated)
    :param attachment: one file: a path or URL as Airflow's ``ObjectStoragePath`` takes it, which is read when the task
        runs; or ``{"file_name": ..., "file_data": <Base64>}``. Default: none. (templated)
    :param language_code: the language of system modules such as the unsubscribe link. Default: the service's.
        (templated)
    :param market_name: the activity that the campaign belongs to; created when missing. Default: none. (templated)
    :param subscript_name: the subscription type, which must exist. Default: none. (templated)
    :param project_code: the project, created when missing. Default: none. (templated)
    :param editor_type: the service's editor: ``CLASSIC`` or ``DRAG``. Default: the service's. (templated)
    :param sandbox_mode: let the service check the request and create nothing. Default: false.
    :param ignore_differences: names of fields that are not compared when an existing campaign is adopted, such as
        ``["content"]`` where the service rewrites it. Default: none.
    :param adopt_older: adopt an equal campaign of that name even if another run or task created it, whether it is
        scheduled or sent. Default: false, the task fails; with a constant ``mail_name`` every run but the first would
        succeed and mail nobody.
    :param allow_past_send_date: create the campaign although its ``send_date`` lies in the past: the service sends it
        at once. Default: false.
    :param max_recipients: the maximum number of contacts in the target lists; more are an error. Default: not checked.
        (templated)
    :param max_growth: the maximum ratio of these contacts to the recipients of the last campaign, such as ``1.5``; a
        larger one is an error. Needs ``compare_with``. Default: not checked. (templated)
    :param compare_with: part of the names of earlier campaigns; ``max_growth`` compares with the last of these.
        Default: none. (templated)
    :param known_tags: the tags that the service can fill in, or a mapping with these as keys, in addition to those that
        the connection names; others are an error. Default: tags that are not known to be properties of contacts are a
        warning. (templated)
    :param template_name: a stored template whose content and tags are checked as well. Default: none. (templated)
    :param unsubscribe_pattern: a regular expression; content that does not match it is an error. ``auto``: the
        usual words for unsubscribing, in the service's languages. ``None``: not checked. Default: ``auto``. (templated)
    :param max_content_bytes: content of more bytes is a warning. Default: 100,000.
    :param max_attachment_bytes: an attachment of more bytes is a warning. Default: 10,000,000.
    :param fail_on: fail the task when there is an ``error`` (default), also when there is a ``warning``, or ``never``,
        so that a later task decides.
    """

    fail_on: FailOn

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        mail_name: Templated[str] | None = None,
        sender_mail: Templated[str],
        sender_name: Templated[str] | None = None,
        subject: Templated[str] | None = None,
        content: Templated[str] | None = None,
        allow_blank: bool = False,
        send_date: Templated[datetime] | None = None,
        only_save: bool = False,
        audience: Templated[Mapping[str, Any] | Sequence[Templated[Mapping[str, Any]]]] | None = None,
        send_list_names: Templated[Sequence[Templated[str]]] | None = None,
        repel_list_names: Templated[Sequence[Templated[str]]] | None = None,
        reply_to: Templated[str] | None = None,
        attachment: Templated[Mapping[str, Templated[str]] | ObjectStoragePath] | None = None,
        language_code: Templated[str] | None = None,
        market_name: Templated[str] | None = None,
        subscript_name: Templated[str] | None = None,
        project_code: Templated[str] | None = None,
        editor_type: Templated[Literal["CLASSIC", "DRAG"]] | None = None,
        sandbox_mode: bool = False,
        ignore_differences: Collection[str] = (),
        adopt_older: bool = False,
        allow_past_send_date: bool = False,
        max_recipients: Templated[int] | None = None,
        max_growth: Templated[float] | None = None,
        compare_with: Templated[str] | None = None,
        known_tags: Templated[Collection[Templated[str]]] | None = None,
        template_name: Templated[str] | None = None,
        unsubscribe_pattern: Templated[str] | None = "auto",
        max_content_bytes: int = 100_000,
        max_attachment_bytes: int = 10_000_000,
        fail_on: FailOn = "error",
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def execute(self, context: Context) -> dict[str, Any]:
        """Run all checks; fail the task according to ``fail_on``."""
        from airflow_provider_mail.api._core.fields import without_addresses
        from airflow_provider_mail.api.flows.preflight import PreflightRules, preflight

        with self.mail_errors():
            request = self.request(context)
            rules = {field.name: unwrap(getattr(self, field.name)) for field in fields(PreflightRules)}
            report: Report = preflight(
                self.hook.get_conn(),
                request,
                PreflightRules(**rules),
                ignore=self.ignore_differences,
                allow_past_send_date=self.allow_past_send_date,
                not_older_than=self.not_older_than(context),
                caps=self.hook.caps,
                list_problem=self.list_problem,
            )
        sender = [request.sender_mail]
        findings = [asdict(finding) | {"text": without_addresses(finding.text, sender)} for finding in report.findings]
        table = without_addresses(report.table(), sender)
        errors, warnings = report.count("error"), report.count("warning")
        self.log.info(
            "Campaign %r: %d errors, %d warnings; nothing was changed.\n%s", request.mail_name, errors, warnings, table
        )
        blocking = [finding for finding in findings if finding["level"] in FAIL_ON[self.fail_on]]
        if blocking:
            raise AirflowFailException(
                f"campaign {request.mail_name!r} should not go out: "
                + "; ".join(f"{finding['check']}: {finding['text']}" for finding in blocking)
            )
        return {
            "mail_name": request.mail_name,
            "errors": errors,
            "warnings": warnings,
            "recipients": report.recipients,
            "findings": findings,
            "table": table,
        }

    @property
    def service_tags(self) -> frozenset[str]:
        """The tags that the service fills, according to the connection."""
        return self.hook.service_tags
