"""A look at a campaign before it is sent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_mail._task.arguments import check_number
from airflow_provider_mail._task.redacted_field import unwrap
from airflow_provider_mail.operators._campaign import BaseCampaignOperator
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.preflight import PreflightRules, Report

FAIL_ON = {"error": ("error",), "warning": ("error", "warning"), "never": ()}
"""At which levels the task fails."""


class MailPreflightOperator(BaseCampaignOperator):
    """Finds out what is wrong with a campaign before anybody is mailed: reads, and lets the service check.

    Takes the arguments with which
    :class:`~airflow_provider_mail.operators.campaigns.MailCreateCampaignOperator` will create it; give both the same
    ``mail_name``, or that one's name is not checked. What cannot be a campaign at all fails the task as it would there.

    Returns ``mail_name``, ``errors``, ``warnings``, ``recipients`` (contacts in the target lists; null where the
    service does not say), ``findings`` (each with ``check``, ``level`` and ``text``) and ``table``, the findings as a
    Markdown table for a person who decides. Addresses are cut down to their domains.

    The campaign's own arguments are those of
    :class:`~airflow_provider_mail.operators._campaign.BaseCampaignOperator`.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/preflight.md``.

    :param max_recipients: more contacts in the target lists than this are an error.
    :param max_growth: more than so many times what the last campaign was sent to are an error, for instance ``1.5``.
    :param compare_with: part of the names of the campaigns of which the last one counts, for ``max_growth``.
    :param known_tags: the tags that the service can fill in, or a mapping with these as keys; others are an error.
        Default: tags are not checked.
    :param unsubscribe_pattern: regular expression that the content must match, else it is an error. ``None``: not
        checked.
    :param max_content_bytes: a larger content is a warning.
    :param max_attachment_bytes: a larger file is a warning.
    :param fail_on: fail the task when there is an ``error`` (default), already when there is a ``warning``, or
        ``never``: then whoever comes next decides.
    """

    template_fields: Sequence[str] = (
        *BaseCampaignOperator.template_fields,
        "max_recipients",
        "max_growth",
        "compare_with",
        "known_tags",
        "unsubscribe_pattern",
    )

    def __init__(
        self,
        *,
        max_recipients: int | str | None = None,
        max_growth: float | str | None = None,
        compare_with: str | None = None,
        known_tags: Collection[str] | None = None,
        unsubscribe_pattern: str | None = "(?i)unsubscri",
        max_content_bytes: int = 100_000,
        max_attachment_bytes: int = 10_000_000,
        fail_on: Literal["error", "warning", "never"] = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_number("max_content_bytes", max_content_bytes, least=1, whole=True)
        check_number("max_attachment_bytes", max_attachment_bytes, least=1, whole=True)
        if fail_on not in FAIL_ON:
            raise ValueError(f"fail_on: {fail_on!r} is none of {', '.join(FAIL_ON)}")
        self.max_recipients = max_recipients
        self.max_growth = max_growth
        self.compare_with = compare_with
        self.known_tags = known_tags
        self.unsubscribe_pattern = unsubscribe_pattern
        self.max_content_bytes = max_content_bytes
        self.max_attachment_bytes = max_attachment_bytes
        self.fail_on = fail_on

    def execute(self, context: Context) -> dict[str, Any]:
        """Look at everything; then judge."""
        from airflow_provider_mail._task.exceptions import without_addresses
        from airflow_provider_mail.api.flows.preflight import preflight

        with self.mail_errors():
            request = self.request(context)
            rules = self._rules(context)
            looking = preflight(
                request,
                rules,
                ignore=self.ignore_differences,
                allow_past_send_date=self.allow_past_send_date,
                not_older_than=self.not_older_than(context),
                clock=self.hook.get_conn().service_clock,
            )
            report: Report = self.hook.run(looking)
        sender = [request.sender_mail]
        findings = [asdict(each) | {"text": without_addresses(each.text, sender)} for each in report.findings]
        table = without_addresses(report.table(), sender)
        errors, warnings = report.count("error"), report.count("warning")
        self.log.info(
            "Campaign %r: %d errors, %d warnings; nothing was changed.\n%s", request.mail_name, errors, warnings, table
        )
        bad = [each for each in findings if each["level"] in FAIL_ON[self.fail_on]]
        if bad:
            raise AirflowFailException(
                f"campaign {request.mail_name!r} should not go out: "
                + "; ".join(f"{each['check']}: {each['text']}" for each in bad)
            )
        return {
            "mail_name": request.mail_name,
            "errors": errors,
            "warnings": warnings,
            "recipients": report.recipients,
            "findings": findings,
            "table": table,
        }

    def _rules(self, context: Context) -> PreflightRules:
        from airflow_provider_mail.api.flows.preflight import PreflightRules

        return PreflightRules(
            max_recipients=_number("max_recipients", unwrap(self, self.max_recipients, context), int),
            max_growth=_number("max_growth", unwrap(self, self.max_growth, context), float),
            compare_with=unwrap(self, self.compare_with, context),
            known_tags=unwrap(self, self.known_tags, context),
            unsubscribe_pattern=unwrap(self, self.unsubscribe_pattern, context),
            max_content_bytes=self.max_content_bytes,
            max_attachment_bytes=self.max_attachment_bytes,
        )


def _number(name: str, value: Any, kind: type[int] | type[float]) -> Any:
    """The number that a template has become text of.

    :raises MailValidationError: naming the argument.
    """
    from airflow_provider_mail.api.errors import MailValidationError

    if value is None:
        return None
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, bool) or (not isinstance(value, str) and number != value):
        raise MailValidationError(f"{name}: a {'whole ' if kind is int else ''}number is needed, not {value!r}")
    return number
