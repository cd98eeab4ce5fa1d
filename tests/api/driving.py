"""Both clients behind one interface, and flows without any client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from airflow_provider_mail.api.client import AsyncMailClient, MailClient
from airflow_provider_mail.api.config import ClientConfig, RetryRule
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.lists import GetLists
from tests.api.parts import (
    Concurrent,
    Exchange,
    Flow,
    FlowRunner,
    MailRequest,
    MailResponse,
    PagedRequest,
    Pause,
    RequestAttempt,
)

R = TypeVar("R", bound=MailResponse)
T = TypeVar("T")

KINDS = ("sync", "async")
ONCE = RetryRule(attempts=1)
QUICK = RetryRule(attempts=3, total_seconds=20.0, base_seconds=0.001, cap_seconds=0.002)
"""Repeats at once, three times in all."""


class SyncDriver:
    def __init__(self, config: ClientConfig, **options: Any) -> None:
        self.client = MailClient(config, **options)
        self.send, self.run, self.close = self.client.send, self.client.run, self.client.close

    def pages(self, request: PagedRequest[Any]) -> list[list[Any]]:
        return list(self.client.pages(request))


class AsyncDriver:
    def __init__(self, config: ClientConfig, **options: Any) -> None:
        self.client = AsyncMailClient(config, **options)
        self._runner = asyncio.Runner()

    def send(self, request: MailRequest[R]) -> R:
        return self._runner.run(self.client.send(request))

    def run(self, flow: Flow[T]) -> T:
        return self._runner.run(self.client.run(flow))

    def pages(self, request: PagedRequest[Any]) -> list[list[Any]]:
        async def collect() -> list[list[Any]]:
            return [page async for page in self.client.pages(request)]

        return self._runner.run(collect())

    def close(self) -> None:
        self._runner.run(self.client.close())
        self._runner.close()


Driver: TypeAlias = SyncDriver | AsyncDriver
"""A client of either kind."""


def driver(kind: str, config: ClientConfig, **options: Any) -> Driver:
    return SyncDriver(config, **options) if kind == "sync" else AsyncDriver(config, **options)


class Time:
    """A clock that only a pause moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rehearsal:
    """Runs a flow without a network and without waiting: responses come from a script, pauses move the clock.

    ``answers`` maps each request (or call) to a response to return or an error to raise. Concurrent requests are
    performed in the order in which ``shuffle`` leaves their numbers.
    """

    late = 0.0
    """Seconds by which each pause is too long."""

    def __init__(
        self, answers: Any, time: Time | None = None, shuffle: Callable[[list[int]], object] = lambda numbers: None
    ) -> None:
        self.time = time or Time()
        self._answers = answers
        self._shuffle = shuffle
        self.steps = 0
        self.asked: list[Any] = []
        self.pauses: list[float] = []
        self.at: list[float] = []

    def run(self, steps: Any) -> Any:
        runner = FlowRunner(steps)
        while runner.step is not None:
            self.steps += 1
            if isinstance(runner.step, Pause):
                self.pauses.append(runner.step.seconds)
                self.time.now += runner.step.seconds + self.late
                runner.send(None)
            elif isinstance(runner.step, Concurrent):
                order = list(range(len(runner.step.requests)))
                self._shuffle(order)
                results = {number: self._perform(runner.step.requests[number]) for number in order}
                runner.send([results[number] for number in sorted(order)])
            elif isinstance(result := self._perform(runner.step), MailError):
                runner.fail(result)
            else:
                runner.send(result)
        return runner.result

    def _perform(self, step: Any) -> Any:
        self.asked.append(step)
        self.at.append(self.time.now)
        return self._answers(step)


def exchange(
    time: Time, *, draw: float = 1.0, on_request: Callable[[RequestAttempt], None] | None = None, **settings: Any
) -> Exchange:
    """An exchange with a clock that only pauses move, and the same random number each time."""
    config = ClientConfig(base_url="http://service.example", api_key="key", **settings)
    return Exchange(config, GetLists(page_size=1), clock=time, draw=lambda: draw, on_request=on_request)
