"""Waiting for the DNS checks of a sender. No I/O."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.polling import (
    PollDecision,
    PollErrorBudget,
    WaitStatus,
)
from airflow_provider_mail.api.senders import Checks, failed_checks


class SenderWait:
    """Decides after each poll whether all four checks of a sender are good.

    :param errors: limits how long polls may fail. Default: the limits of :class:`PollErrorBudget`.
    :param state: the :attr:`state` of another object, to continue from it; ignored if it is of another sender.
    """

    def __init__(
        self,
        sender_email: str,
        errors: PollErrorBudget | None = None,
        *,
        state: dict[str, Any] | None = None,
    ) -> None:
        own = state if state and state.get("sender_email") == sender_email else {}
        self._sender_email = sender_email
        self._errors = errors or PollErrorBudget()
        self._errors.restore(own.get("errors"))

    @property
    def state(self) -> dict[str, Any]:
        """The state that another process needs to continue the wait, as plain JSON."""
        return {"sender_email": self._sender_email, "errors": self._errors.state}

    def decide(self, result: Checks | MailError | None, at: float, offset: float = 0.0) -> PollDecision:
        """Decide what a poll means, given those before it.

        :param result: the checks, ``None`` when there is no such sender, or the error of the poll.
        :param at: Unix time of the poll.
        :param offset: not used here.
        """
        if isinstance(result, MailError):
            return self._errors.failed(result, at)
        self._errors.succeeded()
        sender = f"sender {self._sender_email!r}"
        if result is None:
            return PollDecision(WaitStatus.WAITING, f"there is no {sender} (yet)")
        if all(result.values()):
            return PollDecision(WaitStatus.COMPLETE, f"all four checks of {sender} are good", dict(result))
        failed = failed_checks(result)
        return PollDecision(WaitStatus.WAITING, f"{sender} is not valid yet{f': {failed}' if failed else ''}")
