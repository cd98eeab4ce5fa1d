"""Steps of the machine in `tests/machines/test_loading.py`, as data: for the tests of real clients of warehouses."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from tests.machines.test_loading import COUNT, NUMBERS, PERMISSION, SHORT, WINDOW, Killed, Loading, Lost, Reading
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import MARKED, NOON

__all__ = ["CAMPAIGN_TABLE", "STEPS", "Service", "run"]

CAMPAIGN_TABLE = MARKED
NUMBER = st.integers(0, COUNT - 1)
DETAILS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "change": {"numbers": NUMBERS},
    "disappear": {"numbers": NUMBERS},
    "load": {"window": WINDOW, "short": SHORT, "permission": PERMISSION, "times": st.integers(1, 2)},
    "load one": {"window": WINDOW, "only": NUMBER},
    "hold": {"window": WINDOW, "short": SHORT, "only": st.none() | NUMBER},
    "load late": {"number": NUMBER, "permission": PERMISSION},
    "fail": {"window": WINDOW, "end": st.sampled_from([Lost, Killed]), "after": NUMBER},
    "two at once": {
        "windows": st.tuples(WINDOW, WINDOW), "short": SHORT, "permission": PERMISSION, "is_older": st.booleans()
    },
}  # fmt: skip
STEPS = st.lists(
    st.one_of(*(st.tuples(st.just(step), st.fixed_dictionaries(details)) for step, details in DETAILS.items())),
    min_size=2,
    max_size=12,
)


class Service:
    """Where `run` begins."""

    def read(self, first: int, last: int) -> Reading:
        return Reading(NOON, range(first, last + 1), {})


def run(warehouse: Warehouse, steps: list[Any], _: random.Random) -> None:
    """Do the steps on a table without rows, and compare it with the model after each."""
    machine = Loading(warehouse)
    for step, details in steps:
        getattr(machine, step.replace(" ", "_"))(**details)
        machine.is_as_read()
    machine.teardown()
