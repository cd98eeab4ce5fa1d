"""Verified senders (document, "Verified senders")."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from airflow_provider_mail.api.base import Effect, Flow, MailRequest, MailResponse, Records, Resource, Sandboxed
from airflow_provider_mail.api.types import SenderEntry, Text


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

    sender_email: Text

    def exists(self) -> Flow[bool]:
        """Ask the service whether the sender is (still) there."""
        answer = yield GetSenders()
        entry = self.sender_email.casefold()
        return any(sender.from_domain.casefold() == entry for sender in answer.mail_from_domains or [])
