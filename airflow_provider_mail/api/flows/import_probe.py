"""Is it the rows that an import's refusals are about, or the account? Whether a surely good contact is refused as well.

A limit of the account (contacts, credits) is reported like a bad row: the document shows no codes for imports. So the
service is asked, in sandbox mode, which changes nothing, whether it would take a good contact that is new to it.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

from airflow_provider_mail.api.contacts import UpdateMode
from airflow_provider_mail.api.errors import MailRejectedError
from airflow_provider_mail.api.flows.validate_rows import Row

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.import_contacts import ImportPlan


def surely_good(plan: ImportPlan, like: Row | None) -> Row | None:
    """A contact that the service takes as long as it takes any; ``None`` where none is known.

    An import that only updates takes those that exist, others those that do not exist: these count against a limit.

    :param like: a row that the service has accepted. A new contact has its values but for what identifies it.
    """
    if plan.update_mode is UpdateMode.UPDATE_ONLY:
        return like
    missing = plan.null_value
    values = dict(zip(plan.properties, like or [missing] * len(plan.properties), strict=True))
    if "email" in values:
        email = values["email"] or ""
        values["email"] = f"{token_hex(8)}@{email.rpartition('@')[2] if '@' in email else 'example.com'}"
    if "phoneNumber" in values:
        values["phoneNumber"] = missing if "email" in values else f"+1555{int(token_hex(4), 16):010}"
    return list(values.values())


def about_the_account(refusal: MailRejectedError, accepted: int) -> MailRejectedError:
    """The error for a refusal that any contact would get.

    :param accepted: rows of the chunk that the service took before.
    """
    return MailRejectedError(
        f"{refusal}. The service would refuse any contact now, a good one as well, so the rows are not the reason: "
        f"is the account at a limit? No row is set aside for it; {accepted} rows of this chunk were accepted before",
        operation=refusal.operation,
        status=refusal.status,
        code=refusal.code,
        service_message=refusal.service_message,
    )
