"""Verified senders: add, verify, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_flags
from airflow_provider_mail.operators._named import BaseCreateOperator, BaseDeleteOperator
from airflow_provider_mail.version_compat import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.senders import AddSender, DeleteSender


class MailAddSenderOperator(BaseCreateOperator):
    """Registers a sender, unless it is registered for that type of mail.

    Returns ``sender_email``, ``sender_type``, ``created`` and ``sandbox``.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/resources.md``.

    :param sender_email: an address or a domain, not a top-level domain.
    :param sender_type: ``1`` marketing, ``2`` transactional.
    """

    template_fields: Sequence[str] = (*BaseCreateOperator.template_fields, "sender_email", "sender_type")
    thing = "sender"

    def __init__(self, *, sender_email: str, sender_type: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sender_email = sender_email
        self.sender_type = sender_type

    @property
    def identity(self) -> dict[str, str]:
        return {"sender_email": self.sender_email, "sender_type": str(self.sender_type)}

    def creation(self, context: Context) -> AddSender:
        from airflow_provider_mail.api.senders import AddSender

        fields: dict[str, Any] = {
            "sender_email": self.sender_email,
            "sender_type": str(self.sender_type),
            "sandbox_mode": self.sandbox_mode or None,
        }
        return AddSender(**fields)


class MailVerifySenderOperator(MailTaskMixin, BaseOperator):
    """Has the service check a sender's DNS entries now.

    Returns ``valid``, ``good_mx``, ``good_spf``, ``good_dkim`` and ``good_dmarc``. Fails, to be retried, when a check
    is not good: DNS takes its time. ``MailSenderSensor`` waits for it.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/resources.md``.

    :param mail_conn_id: the connection.
    :param from_domain: the sender entry.
    :param selector: of its DKIM entry in DNS.
    :param fail_if_invalid: set to false to go on whatever the checks say, and have a look at what is returned.
    """

    template_fields: Sequence[str] = ("mail_conn_id", "from_domain", "selector")
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        from_domain: str,
        selector: str,
        fail_if_invalid: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(fail_if_invalid=fail_if_invalid)
        self.mail_conn_id = mail_conn_id
        self.from_domain = from_domain
        self.selector = selector
        self.fail_if_invalid = fail_if_invalid

    def execute(self, context: Context) -> dict[str, bool]:
        """Ask for the checks."""
        from airflow_provider_mail.api.senders import VerifySender

        with self.mail_errors():
            answer = self.hook.send(VerifySender(from_domain=self.from_domain, selector=self.selector))
        checks: dict[str, bool] = answer.model_dump(exclude={"code", "message"})
        bad = [name.removeprefix("good_").upper() for name, good in checks.items() if name != "valid" and not good]
        if answer.valid and not bad:
            self.log.info("All four checks of sender %r are good.", self.from_domain)
        elif self.fail_if_invalid:
            raise AirflowException(f"from_domain: sender {self.from_domain!r} is not valid: {self._told(bad)}")
        else:
            self.log.warning("Sender %r is not valid: %s.", self.from_domain, self._told(bad))
        return checks

    @staticmethod
    def _told(bad: Sequence[str]) -> str:
        return f"check its DNS entries for {', '.join(bad)}" if bad else "the service does not say why"


class MailDeleteSenderOperator(BaseDeleteOperator):
    """Removes a sender.

    Returns ``sender_email``, ``deleted`` and ``sandbox``.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/resources.md``.

    :param sender_email: the sender entry.
    """

    template_fields: Sequence[str] = (*BaseDeleteOperator.template_fields, "sender_email")
    thing = "sender"

    def __init__(self, *, sender_email: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sender_email = sender_email

    @property
    def identity(self) -> dict[str, str]:
        return {"sender_email": self.sender_email}

    def deletion(self, context: Context) -> DeleteSender:
        from airflow_provider_mail.api.senders import DeleteSender

        return DeleteSender(sender_email=self.sender_email, sandbox_mode=self.sandbox_mode or None)
