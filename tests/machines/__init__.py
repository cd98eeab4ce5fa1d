"""State machines of Hypothesis: a flow against a service that changes and fails, beside a model of it."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock

Fault = tuple[str, dict[str, Any]]
UNCLEAR: list[Fault] = [
    ("close_before", {}),
    ("reset_after", {}),
    ("http_error_before", {"status": 503}),
    ("http_error_after", {}),
    ("code_after", {"code": 500}),
    ("html_after", {}),
    ("cut_json", {}),
    ("empty_body", {}),
]
"""Faults after which it is not known whether the service has carried out the request."""
REJECTED_KEY: Fault = ("code_before", {"code": 401, "http_status": 401})

HOLD = "AIRFLOW_VAR_MAIL_HOLD"
HOURS = 9
EVENTS = ["hold", "renewal", "worker ahead", "worker behind", "service ahead"]
"""What happens beside a task: a hold is set, its credentials are exchanged, or a clock is set by hours."""
AT_ANY_REQUEST = st.none() | st.tuples(st.sampled_from(EVENTS), st.integers(1, 8))


def happen(event: str, emulator: Emulator, clock: Clock) -> None:
    """Let one of `EVENTS` happen."""
    if event == "hold":
        os.environ[HOLD] = "x"
    elif event == "renewal":
        emulator.settings.api_key += "+"
        connect(emulator)
    elif event == "service ahead":
        emulator.clock.advance(hours=HOURS)
    else:
        hours = HOURS if event == "worker ahead" else -HOURS
        # First behind, then right again: the service is never seen ahead of what it shows later.
        moves = [lambda: clock.set_wall_clock(hours * 3600), lambda: emulator.clock.advance(hours=-hours)]
        for move in moves if hours < 0 else moves[::-1]:
            move()


@contextmanager
def happening(event: tuple[str, int] | None, emulator: Emulator, clock: Clock) -> Iterator[list[float]]:
    """Let something happen at a request, and release the hold at the end; give the time at which it has happened."""
    what, number = event or ("", 0)
    times: list[float] = []

    def change() -> None:
        happen(what, emulator, clock)
        times.append(time.time())

    try:
        with at_request(emulator, "*", number, change):
            yield times
    finally:
        os.environ.pop(HOLD, None)


def start(emulator: Emulator) -> None:
    """Begin with an account that has a sender and nothing else."""
    emulator.reset()
    connect(emulator)
    emulator.add_sender("news@example.com")


def connect(emulator: Emulator) -> None:
    """Let the connection ``mail_default`` have the present key."""
    settings = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    os.environ["AIRFLOW_CONN_MAIL_DEFAULT"] = json.dumps(settings)
