"""Both clients behind one face, so that every promise is tested for both with one body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from airflow_provider_mail.api._core.exchange import Exchange, FlowRunner, RequestAttempt
from airflow_provider_mail.api._core.requests import Concurrent, Flow, MailRequest, MailResponse, PagedRequest, Pause
from airflow_provider_mail.api.client import AsyncMailClient, MailClient
from airflow_provider_mail.api.config import ClientConfig, RetryRule
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.lists import GetLists

R = TypeVar("R", bound=MailResponse)
T = TypeVar("T")

KINDS = ("sync", "async")

QUICK = RetryRule(attempts=3, total_seconds=20.0, base_seconds=0.001, cap_seconds=0.002)
"""Repeats at once, three times in all."""

ONCE = RetryRule(attempts=1)


class Driver(Protocol):
    """A client without its colour."""

    client: MailClient | AsyncMailClient

    def send(self, request: MailRequest[R]) -> R: ...

    def run(self, flow: Flow[T]) -> T: ...

    def pages(self, request: PagedRequest[Any]) -> list[list[Any]]: ...

    def close(self) -> None: ...


class SyncDriver:
    def __init__(self, config: ClientConfig) -> None:
        self.client = MailClient(config)

    def send(self, request: MailRequest[R]) -> R:
        return self.client.send(request)

    def run(self, flow: Flow[T]) -> T:
        return self.client.run(flow)

    def pages(self, request: PagedRequest[Any]) -> list[list[Any]]:
        return list(self.client.pages(request))

    def close(self) -> None:
        self.client.close()


class AsyncDriver:
    def __init__(self, config: ClientConfig) -> None:
        self.client = AsyncMailClient(config)
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


def driver(kind: str, config: ClientConfig) -> Driver:
    return SyncDriver(config) if kind == "sync" else AsyncDriver(config)


class Time:
    """A clock that only a pause moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rehearsal:
    """Carries steps out without a network and without waiting: answers come from a script, pauses move the clock.

    ``answers`` maps each request (or call) to what comes back: a value to hand in, or an error to throw. Concurrent
    requests are answered in the order in which ``shuffle`` leaves their numbers.
    """

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
        walk = FlowRunner(steps)
        while walk.step is not None:
            self.steps += 1
            if isinstance(walk.step, Pause):
                self.pauses.append(walk.step.seconds)
                self.time.now += walk.step.seconds
                walk.send(None)
                continue
            if isinstance(walk.step, Concurrent):
                order = list(range(len(walk.step.requests)))
                self._shuffle(order)
                answers = {number: self._answer(walk.step.requests[number]) for number in order}
                walk.send([answers[number] for number in sorted(order)])
                continue
            answer = self._answer(walk.step)
            if isinstance(answer, MailError):
                walk.fail(answer)
            else:
                walk.send(answer)
        return walk.result

    def _answer(self, step: Any) -> Any:
        self.asked.append(step)
        self.at.append(self.time.now)
        return self._answers(step)


def exchange(
    time: Time, *, draw: float = 1.0, on_request: Callable[[RequestAttempt], None] | None = None, **settings: Any
) -> Exchange:
    """An exchange with a clock that stands and dice that always fall the same way."""
    config = ClientConfig(base_url="http://service.example", api_key="key", **settings)
    return Exchange(config, GetLists(page_size=1), clock=time, draw=lambda: draw, on_request=on_request)
