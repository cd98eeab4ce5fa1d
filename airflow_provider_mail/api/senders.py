"""Verified senders (specification, "Verified senders")."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from airflow_provider_mail.api._core.fields import SenderEntry, Text, address_key
from airflow_provider_mail.api._core.requests import (
    Client,
    Effect,
    MailRequest,
    MailResponse,
    OpenResource,
    Records,
    Sandboxed,
)

__all__ = ["AddSender", "DeleteSender", "GetSenders", "Sender", "VerifySender", "find_sender"]


class Sender(OpenResource):
    """A sender entry with the results of its four DNS checks (1 normal, 0 abnormal)."""

    from_domain: str
    mx_status: int | None = None
    spf_status: int | None = None
    dkim_status: int | None = None
    dmarc_status: int | None = None
    is_validate: int | None = None
    is_service_domain: int | None = None
    sender_type: int | None = None


class GetSendersResponse(MailResponse):
    """The sender entries."""

    mail_from_domains: Records[Sender] | None = None


class GetSenders(MailRequest[GetSendersResponse]):
    """Read all senders, or one.

    :param sender_email: only this entry. Default: all.
    """

    path = "/v5/verified_senders/get"
    effect = Effect.READ

    sender_email: Text | None = None


class AddSender(MailRequest[MailResponse], Sandboxed):
    """Register a sender.

    :param sender_email: an address or a domain, not a top-level domain.
    :param sender_type: ``"1"`` marketing, ``"2"`` transactional.
    """

    path = "/v5/verified_senders/add"
    effect = Effect.CREATE

    sender_email: SenderEntry
    sender_type: Literal["1", "2"]

    def find(self, client: Client) -> Sender | None:
        """Look up the sender of this entry and type; the other type is a different entry."""
        return find_sender(client, self.sender_email, int(self.sender_type))


class VerifySenderResponse(MailResponse):
    """The results of the four DNS checks, and ``valid`` for all of them."""

    valid: bool = False
    good_mx: bool = Field(default=False, alias="goodMX")
    good_spf: bool = Field(default=False, alias="goodSPF")
    good_dkim: bool = Field(default=False, alias="goodDKIM")
    good_dmarc: bool = Field(default=False, alias="goodDMARC")


class VerifySender(MailRequest[VerifySenderResponse]):
    """Check a sender's DNS entries now.

    :param from_domain: the sender entry.
    :param selector: selector of the DKIM entry.
    """

    path = "/v5/verified_senders/verify"
    effect = Effect.READ

    from_domain: Text
    selector: Text


class DeleteSender(MailRequest[MailResponse], Sandboxed):
    """Delete a sender.

    :param sender_email: the sender entry.
    """

    path = "/v5/verified_senders/delete"
    effect = Effect.DELETE
    lookup_is_authoritative = True

    sender_email: Text

    def find(self, client: Client) -> Sender | None:
        return find_sender(client, self.sender_email)


def find_sender(client: Client, sender_email: str, sender_type: int | None = None) -> Sender | None:
    """Return the sender with this entry, compared by `address_key`, or ``None``.

    Reads all senders: the specification does not show what else ``senderEmail`` finds.

    :param sender_email: the sender entry.
    :param sender_type: only this type: 1 marketing, 2 transactional. Default: any.
    """
    return sender_in(client.send(GetSenders()), sender_email, sender_type)


def sender_in(response: GetSendersResponse, sender_email: str, sender_type: int | None = None) -> Sender | None:
    """Return the sender with this entry, compared by `address_key`, or ``None``.

    :param sender_type: only this type. Default: any.
    """
    for sender in response.mail_from_domains or []:
        if address_key(sender.from_domain) != address_key(sender_email):
            continue
        if sender_type is None or sender.sender_type in (None, sender_type):
            return sender
    return None


_CHECKS = ("mx", "spf", "dkim", "dmarc")

Checks: TypeAlias = dict[str, bool]
"""The results of a sender's checks ``good_mx``, ``good_spf``, ``good_dkim`` and ``good_dmarc``, and ``valid``."""


def checks_of(sender: Sender | None) -> Checks | None:
    """Return the results of the service's last checks; ``None`` without a sender."""
    if sender is None:
        return None
    checks = {f"good_{name}": getattr(sender, f"{name}_status") == 1 for name in _CHECKS}
    return {"valid": sender.is_validate == 1, **checks}


def failed_checks(checks: Checks) -> str:
    """Name the checks that are not good, such as ``MX, SPF``."""
    return ", ".join(name.removeprefix("good_").upper() for name in checks if not checks[name] and name != "valid")


def verify_sender(client: Client, from_domain: str, selector: str) -> Checks:
    """Check a sender now and return the results.

    :param from_domain: the sender entry.
    :param selector: selector of the DKIM entry.
    """
    response: VerifySenderResponse = client.send(VerifySender(from_domain=from_domain, selector=selector))
    checks: Checks = response.model_dump(exclude={"code", "message"})
    return checks
