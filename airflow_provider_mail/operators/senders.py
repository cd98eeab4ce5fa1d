"""Verified senders: add, verify, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.operators._base import BaseCreateOperator, BaseDeleteOperator, BaseMailOperator
from airflow_provider_mail.version_compat import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.api.senders import AddSender

__all__ = ["MailAddSenderOperator", "MailDeleteSenderOperator", "MailVerifySenderOperator"]


class MailAddSenderOperator(BaseCreateOperator):
    """Register a sender, unless it is registered for that type of mail.

    Returns ``sender_email``, ``sender_type``, ``created`` and ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailAddSenderOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sender_email: an address or a domain, not a top-level domain. (templated)
    :param sender_type: the type of mail: ``1`` marketing, ``2`` transactional. (templated)
    :param sandbox_mode: let the service check the request and change nothing. Default: false.
    """

    thing = "sender"
    identified_by = ("sender_email", "sender_type")
    sender_type: object

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sender_email: Templated[str],
        sender_type: Templated[int],
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def operation_request(self) -> AddSender:
        from airflow_provider_mail.api.senders import AddSender

        return self.build_request(AddSender, sender_type=str(self.sender_type))


class MailVerifySenderOperator(BaseMailOperator):
    """Let the service check a sender's DNS entries now.

    Fails when a check is not good, and can be retried: DNS changes take time. ``MailSenderSensor`` waits for them.

    Returns ``valid``, ``good_mx``, ``good_spf``, ``good_dkim`` and ``good_dmarc``.

    .. seealso:: the guide :ref:`howto/operator:MailVerifySenderOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param from_domain: the sender, as it is registered. (templated)
    :param selector: the selector of its DKIM entry in DNS. (templated)
    :param fail_if_invalid: fail the task when a check is not good. If false, the task succeeds and returns the checks.
        Default: true.
    """

    from_domain: str
    selector: str
    fail_if_invalid: bool

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        from_domain: Templated[str],
        selector: Templated[str],
        fail_if_invalid: bool = True,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def execute(self, context: Context) -> dict[str, bool]:
        from airflow_provider_mail.api.senders import VerifySender, failed_checks

        with self.mail_errors():
            response = self.hook.send(self.build_request(VerifySender))
        checks: dict[str, bool] = response.model_dump(exclude={"code", "message"})
        failed = failed_checks(checks)
        if response.valid and not failed:
            self.log.info("All four checks of sender %r are good.", self.from_domain)
        elif self.fail_if_invalid:
            raise AirflowException(f"from_domain: sender {self.from_domain!r} is not valid: {self._advice(failed)}")
        else:
            self.log.warning("Sender %r is not valid: %s.", self.from_domain, self._advice(failed))
        return checks

    @staticmethod
    def _advice(failed: str) -> str:
        return f"check its DNS entries for {failed}" if failed else "the service does not say why"


class MailDeleteSenderOperator(BaseDeleteOperator):
    """Remove a sender.

    Returns ``sender_email``, ``deleted`` and ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailDeleteSenderOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sender_email: the sender, as it is registered. (templated)
    :param ignore_if_missing: succeed when there is no such sender, as in a second try after a success. If false, the
        task fails. Default: true.
    :param sandbox_mode: let the service check the request and change nothing. Default: false.
    """

    operation = "DeleteSender"
    thing = "sender"
    identified_by = ("sender_email",)

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sender_email: Templated[str],
        ignore_if_missing: bool = True,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())
