"""Verified senders (document, "Verified senders")."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from pydantic import Field

from airflow_provider_mail.api._core.fields import SenderEntry, Text
from airflow_provider_mail.api._core.requests import (
    Effect,
    Flow,
    MailRequest,
    MailResponse,
    Records,
    Resource,
    Sandboxed,
)


class Sender(Resource):
    """A sender entry and its four DNS checks (1 normal, 0 abnormal)."""

    from_domain: str
    mx_status: int | None = None
    spf_status: int | None = None
    dkim_status: int | None = None
    dmarc_status: int | None = None
    is_validate: int | None = None
    is_service_domain: int | None = None
    sender_type: int | None = None


class GetSendersResponse(MailResponse):
    mail_from_domains: Records[Sender] | None = None


class GetSenders(MailRequest[GetSendersResponse]):
    """Read all senders, or one."""

    path = "/v5/verified_senders/get"
    effect = Effect.READ

    sender_email: Text | None = None


class AddSender(MailRequest[MailResponse], Sandboxed):
    """Register a sender: an address or a domain; ``sender_type`` ``"1"`` marketing, ``"2"`` transactional."""

    path = "/v5/verified_senders/add"
    effect = Effect.CREATE

    sender_email: SenderEntry
    sender_type: Literal["1", "2"]

    def find(self) -> Flow[Sender | None]:
        """The sender of this entry and type: one that may send the other kind of mail is another entry."""
        return find_sender(self.sender_email, int(self.sender_type))

    def differences(self, found: Sender) -> list[str]:
        """There is nothing else to it."""
        return []


class VerifySenderResponse(MailResponse):
    valid: bool = False
    good_mx: bool = Field(default=False, alias="goodMX")
    good_spf: bool = Field(default=False, alias="goodSPF")
    good_dkim: bool = Field(default=False, alias="goodDKIM")
    good_dmarc: bool = Field(default=False, alias="goodDMARC")


class VerifySender(MailRequest[VerifySenderResponse]):
    """Check a sender's DNS entries now; ``selector`` is the one of the DKIM entry."""

    path = "/v5/verified_senders/verify"
    effect = Effect.READ

    from_domain: Text
    selector: Text


class DeleteSender(MailRequest[MailResponse], Sandboxed):
    """Remove a sender."""

    path = "/v5/verified_senders/delete"
    effect = Effect.DELETE
    lookup_is_authoritative: ClassVar[bool] = True

    sender_email: Text

    def exists(self) -> Flow[bool]:
        """Ask the service whether the sender is (still) there."""
        return (yield from find_sender(self.sender_email)) is not None


def find_sender(sender_email: str, sender_type: int | None = None) -> Flow[Sender | None]:
    """The sender of exactly that entry, upper and lower case being the same; of that type, if one is given.

    All senders are read: what ``senderEmail`` finds besides itself, and the answer when there is none, are not shown.
    """
    return sender_in((yield GetSenders()), sender_email, sender_type)


def sender_in(answer: GetSendersResponse, sender_email: str, sender_type: int | None = None) -> Sender | None:
    """The sender of that entry in an answer that holds all of them."""
    for sender in answer.mail_from_domains or []:
        if sender.from_domain.casefold() != sender_email.casefold():
            continue
        if sender_type is None or sender.sender_type in (None, sender_type):
            return sender
    return None


Checks: TypeAlias = dict[str, bool]
"""The outcome of a sender's four checks, ``mx``, ``spf``, ``dkim`` and ``dmarc``, and ``valid`` for all together."""


def checks_of(sender: Sender | None) -> Checks | None:
    """What the service has found at its last check; ``None`` when there is no such sender."""
    if sender is None:
        return None
    names = ("mx", "spf", "dkim", "dmarc")
    return {**{name: getattr(sender, f"{name}_status") == 1 for name in names}, "valid": sender.is_validate == 1}


def verify_sender(from_domain: str, selector: str) -> Flow[Checks]:
    """Have the service check now."""
    answer: VerifySenderResponse = yield VerifySender(from_domain=from_domain, selector=selector)
    names = ("mx", "spf", "dkim", "dmarc")
    return {**{name: getattr(answer, f"good_{name}") for name in names}, "valid": answer.valid}
