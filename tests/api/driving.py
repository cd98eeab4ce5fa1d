"""Operations without a network and without waiting: responses come from a script, pauses move the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from airflow_provider_mail.api.config import ClientConfig, RetrySettings
from airflow_provider_mail.api.errors import MailError
from tests.api.parts import Call, MailClient, MailRequest, RequestAttempt, ServiceClock

ONCE = RetrySettings(attempts=1)
QUICK = RetrySettings(attempts=3, total_seconds=20.0, base_seconds=0.001, cap_seconds=0.002)
"""Repeats at once, three times in all."""


class Time:
    """A clock that only a pause moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rehearsal:
    """A client without a network and without waiting.

    ``answers`` maps each request (or call) to a response to return or an error to raise. Concurrent requests are
    performed in the order in which ``shuffle`` leaves their numbers.
    """

    config = ClientConfig(base_url="http://service.example", api_key="key")

    late = 0.0
    """Seconds by which each pause is too long."""

    def __init__(
        self, answers: Any, time: Time | None = None, shuffle: Callable[[list[int]], object] = lambda numbers: None
    ) -> None:
        self.time = time or Time()
        self.service_clock = ServiceClock()
        self._answers = answers
        self._shuffle = shuffle
        self.steps = 0
        self.asked: list[Any] = []
        self.pauses: list[float] = []
        self.at: list[float] = []

    def send(self, request: Any) -> Any:
        self.steps += 1
        result = self._result(request)
        if isinstance(result, MailError):
            raise result
        return result

    def send_all(self, requests: Sequence[Any]) -> list[Any]:
        self.steps += 1
        order = list(range(len(requests)))
        self._shuffle(order)
        results = {number: self._result(requests[number]) for number in order}
        return [results[number] for number in sorted(order)]

    def open_ahead(self) -> None: ...

    def pause(self, seconds: float) -> None:
        self.steps += 1
        self.pauses.append(seconds)
        self.time.now += seconds + self.late

    def _result(self, request: Any) -> Any:
        self.asked.append(request)
        self.at.append(self.time.now)
        return self._answers(request)


class Turns:
    """The script of several requests at once, each in a thread: one at a time goes on to its next step."""

    def __init__(self) -> None:
        self.time = Time()
        self._threads = threading.local()

    def start(self, core: MailClient, request: MailRequest[Any]) -> Generator[Any, Any, None]:
        """Yield the steps of a request: calls and pauses. Send in what a call returns or raises."""
        asked: SimpleQueue[Any] = SimpleQueue()
        answers: SimpleQueue[Any] = SimpleQueue()

        def run() -> None:
            self._threads.queues = asked, answers
            core.send(request)

        threading.Thread(target=run, daemon=True).start()
        while True:
            answers.put((yield asked.get(timeout=60)))

    def send(self, step: Any) -> Any:
        asked, answers = self._threads.queues
        asked.put(step)
        return answers.get()

    def pause(self, seconds: float) -> None:
        self.send(Paused(seconds))


@dataclass
class Paused:
    seconds: float


@dataclass
class Reserve:
    """A slot of the rate of all processes is reserved."""


@dataclass
class PauseAll:
    """The requests of all processes are paused."""

    seconds: float


class RehearsedRate:
    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal

    def reserve(self) -> Any:
        return self._rehearsal.send(Reserve())

    def pause_all(self, seconds: float) -> None:
        self._rehearsal.send(PauseAll(seconds))


class RehearsedClient(MailClient):
    """Sends one request after the script of a rehearsal, and what that request looks up."""

    def __init__(self, rehearsal: Any, draw: float, config: ClientConfig, **options: Any) -> None:
        self._clock, self._draw = rehearsal.time, lambda: draw
        super().__init__(config, **options)
        self._rehearsal = rehearsal
        self.shared_rate = RehearsedRate(rehearsal)  # type: ignore[assignment]
        self._threads = threading.local()

    def send(self, request: MailRequest[Any]) -> Any:
        if getattr(self._threads, "is_sending", False):
            return self._rehearsal.send(request)
        self._threads.is_sending = True
        try:
            return super().send(request)
        finally:
            self._threads.is_sending = False

    def enter_process(self) -> None: ...

    def open_ahead(self) -> None: ...

    def fetch(self, call: Call) -> Any:
        return self._rehearsal.send(call)

    def pause(self, seconds: float) -> None:
        self._rehearsal.pause(seconds)

    def send_all(self, requests: Sequence[MailRequest[Any]]) -> list[Any]:
        return self._rehearsal.send_all(requests)


def exchange(
    rehearsal: Any,
    *,
    draw: float = 1.0,
    on_request: Callable[[RequestAttempt], None] | None = None,
    renew: Callable[[], ClientConfig | None] | None = None,
    **settings: Any,
) -> RehearsedClient:
    """A client with the clock of a rehearsal, and the same random number each time."""
    config = ClientConfig(base_url="http://service.example", api_key="key", **settings)
    return RehearsedClient(rehearsal, draw, config, on_request=on_request, renew=renew)
