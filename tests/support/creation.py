"""What a task keeps of its attempts to create a campaign, without Airflow; and tries that die."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from airflow_provider_mail._task.state import TASK_STATE_KEY as RECORD_KEY  # noqa: F401
from airflow_provider_mail._task.state import creation_state
from airflow_provider_mail.api._core.requests import Client, MailRequest
from tests.support.tries import Killed, StateStore


def creation_record(store: StateStore | None, *, try_number: int, max_tries: int = 0, **options: Any) -> Any:
    """Return what a try knows of the earlier ones, as `MailCreateCampaignOperator` reads it.

    :param store: without one (Airflow below 3.3) it knows nothing.
    :param max_tries: of the task instance, which clearing changes.
    """
    context: Any = {"ti": SimpleNamespace(try_number=try_number, max_tries=max_tries)}
    if store is not None:
        context["task_state_store"] = store
    return creation_state(context, **options)


class DyingClient:
    """A client of a process that dies once it has done so many steps: requests and pauses.

    :param last_heard: whether the process still learns what came of the last step.
    """

    def __init__(self, client: Client, steps: int, *, last_heard: bool = True) -> None:
        self.config, self.service_clock = client.config, client.service_clock
        self._client = client
        self._left = steps
        self._last_heard = last_heard

    def send(self, request: MailRequest[Any]) -> Any:
        with self._step():
            return self._client.send(request)

    def send_all(self, requests: Sequence[MailRequest[Any]]) -> list[Any]:
        with self._step():
            return self._client.send_all(requests)

    def open_ahead(self) -> None: ...

    def pause(self, seconds: float) -> None:
        with self._step():
            self._client.pause(seconds)

    @contextmanager
    def _step(self) -> Iterator[None]:
        if self._left == 0:
            raise Killed
        self._left -= 1
        try:
            yield
        finally:
            if self._left == 0 and not self._last_heard:
                raise Killed
