"""How many of very many cases are run: enough to meet every two values, or all of them with MAIL_ALL_CASES=1.

`make test-unit` draws fewer examples of Hypothesis than `make test`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from itertools import product
from typing import Any

import pytest
from allpairspy import AllPairs
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from airflow_provider_mail.api._core.requests import MailRequest

EVERYTHING = bool(os.environ.get("MAIL_ALL_CASES"))
ALL_FAULTS = bool(os.environ.get("MAIL_ALL_FAULTS"))
"""Whether `make test-faults` runs: more faults, kills and databases."""

BUSY = [HealthCheck.too_slow]  # no finding on a busy machine
SOME = 25
SCHEDULES = int(os.environ.get("MAIL_SCHEDULES", "0"))
"""How many schedules each state machine runs, all random, instead of the usual few."""

settings.register_profile("few", max_examples=10, derandomize=True, deadline=None, suppress_health_check=BUSY)
settings.register_profile("some", max_examples=SOME, derandomize=True, deadline=None, suppress_health_check=BUSY)
settings.register_profile("all", max_examples=5 * SOME, deadline=None, suppress_health_check=BUSY)
settings.load_profile("all" if EVERYTHING or SCHEDULES else "some")


def examples(count: int) -> int:
    """Return how many examples Hypothesis draws where "some" are `count`: as many times that as the profile draws."""
    return SCHEDULES or math.ceil(count * settings().max_examples / SOME)


def run_machine(make: Callable[[], Any], count: int, steps: int) -> None:
    """Run a state machine with so many `examples` of so many steps."""
    health = list(HealthCheck)
    limits = settings(max_examples=examples(count), stateful_step_count=steps, suppress_health_check=health)
    run_state_machine_as_test(make, settings=limits)  # type: ignore[arg-type]  # or a function


def pairwise(*, indirect: Collection[str] = (), **values: Collection[Any]) -> pytest.MarkDecorator:
    """Parametrize a test so that every two values of two arguments meet in one of its cases.

    :param indirect: the arguments that are fixtures.
    :param values: the values of each argument.
    """
    choices = [list(some) for some in values.values()]
    cases = [tuple(case) for case in (product(*choices) if EVERYTHING else AllPairs(choices))]
    return pytest.mark.parametrize(tuple(values), cases, indirect=list(indirect), ids=_name)


def _name(value: Any) -> str | None:
    """Return what to call a fault, an effect, a request and the like; pytest names other values."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return type(value).__name__ if isinstance(value, MailRequest) else getattr(value, "name", None)
