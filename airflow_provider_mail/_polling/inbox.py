"""One query per interval for all triggers that wait for pushes in the same inbox."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from airflow_provider_mail._config import InboxName
from airflow_provider_mail._polling.inbox_reader import InboxReader
from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitSubscription
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget, WaitStatus
from airflow_provider_mail.webhook.inbox import Inbox


class InboxPoller(SharedPoller[WaitSubscription]):
    """Queries whether a push waits to be drained."""

    def __init__(self, inbox: InboxName, interval: float) -> None:
        super().__init__(inbox, interval)
        self._reader = InboxReader(inbox)

    async def poll_for(self, due: Collection[WaitSubscription]) -> None:
        at = time.time()
        try:
            result: bool | MailError = await self._reader.aquery(Inbox.waiting)
        except MailError as error:
            result = error
        for subscription in due:
            subscription.deliver(result, at, 0.0)

    async def close(self) -> None:
        """No connection is kept open between queries."""


class InboxWait:
    """Decides after each query whether a push waits to be drained.

    :param state: the :attr:`state` of another object, to continue from it; ignored if it is of another inbox.
    """

    def __init__(self, inbox: InboxName, errors: PollErrorBudget, *, state: dict[str, Any] | None = None) -> None:
        own = state if state and state.get("inbox") == list(inbox) else {}
        self._inbox = inbox
        self._errors = errors
        self._errors.restore(own.get("errors"))

    @property
    def state(self) -> dict[str, Any]:
        return {"inbox": list(self._inbox), "errors": self._errors.state}

    def decide(self, result: bool | MailError, at: float, offset: float = 0.0) -> PollDecision:
        if isinstance(result, MailError):
            return self._errors.failed(result, at)
        self._errors.succeeded()
        if result:
            return PollDecision(WaitStatus.COMPLETE, f"pushes wait in the {self._inbox}", self._inbox._asdict())
        return PollDecision(WaitStatus.WAITING, f"no push waits in the {self._inbox}")
