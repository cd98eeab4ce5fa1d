"""What the polls of a sender's checks mean to a wait for them. No I/O."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.wait_campaign import (
    MAX_POLL_ERRORS,
    POLL_ERROR_TIMEOUT,
    PollDecision,
    PollErrorBudget,
    WaitStatus,
)
from airflow_provider_mail.api.senders import Checks


class SenderWait:
    """Judges poll after poll of a sender's checks.

    :param sender_email: the sender entry.
    :param looked: see :class:`~airflow_provider_mail.api.flows.wait_campaign.PollErrorBudget`.
    :param poll_error_timeout: see :class:`~airflow_provider_mail.api.flows.wait_campaign.PollErrorBudget`.
    :param max_poll_errors: see :class:`~airflow_provider_mail.api.flows.wait_campaign.PollErrorBudget`.
    :param memory: of another object's :attr:`memory`, to continue it.
    """

    def __init__(
        self,
        sender_email: str,
        *,
        looked: bool = False,
        poll_error_timeout: float = POLL_ERROR_TIMEOUT,
        max_poll_errors: int = MAX_POLL_ERRORS,
        memory: dict[str, Any] | None = None,
    ) -> None:
        mine = memory if memory and memory.get("sender_email") == sender_email else {}
        self._sender_email = sender_email
        self._errors = PollErrorBudget(
            looked=looked, timeout=poll_error_timeout, max_errors=max_poll_errors, memory=mine.get("errors")
        )

    @property
    def memory(self) -> dict[str, Any]:
        """What must outlive the process, as plain JSON."""
        return {"sender_email": self._sender_email, "errors": self._errors.memory}

    def judge(self, look: Checks | MailError | None, at: float, offset: float = 0.0) -> PollDecision:
        """What this poll means, after those before it.

        :param look: ``None`` when there is no such sender.
        :param at: Unix time of the poll.
        :param offset: seconds by which the service's clock is ahead.
        """
        if isinstance(look, MailError):
            return self._errors.failed(look, at)
        self._errors.succeeded()
        named = f"sender {self._sender_email!r}"
        if look is None:
            return PollDecision(WaitStatus.WAITING, f"there is no {named} (yet)")
        if all(look.values()):
            return PollDecision(WaitStatus.COMPLETE, f"all four checks of {named} are good", dict(look))
        bad = ", ".join(name.upper() for name, good in look.items() if not good and name != "valid")
        return PollDecision(WaitStatus.WAITING, f"{named} is not valid yet{f': {bad}' if bad else ''}")
