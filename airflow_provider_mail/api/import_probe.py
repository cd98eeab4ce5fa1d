"""Is it the rows that an import's refusals are about, or the account? Whether a surely good contact is refused as well.

A limit of the account (contacts, credits) is reported like a bad row: the document shows no codes for imports. So the
service is asked, in sandbox mode, which changes nothing, whether it would take a contact that is new and good.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex

from airflow_provider_mail.api.contact_rows import Row
from airflow_provider_mail.api.errors import MailRejectedError


def new_contact(properties: Sequence[str], like: Row | None, missing: str | None) -> Row:
    """A contact that does not exist.

    :param properties: what its values are, by position.
    :param like: one that the service has accepted: the values are its own but for what identifies it.
    :param missing: what is sent for a missing value.
    """
    values = dict(zip(properties, like or [missing] * len(properties), strict=True))
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
        f"{refusal}. The service would refuse any new contact now, a good one as well, so the rows are not the reason: "
        f"is the account at a limit? No row is set aside for it; {accepted} rows of this chunk were accepted before",
        operation=refusal.operation,
        status=refusal.status,
        code=refusal.code,
        service_message=refusal.service_message,
    )
