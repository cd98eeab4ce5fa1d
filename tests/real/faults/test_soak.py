"""A soak: workloads, settings of the service and several faults at once, all drawn at random from a seed.

Three seconds unless MAIL_SOAK_SECONDS says otherwise. MAIL_SOAK_SEED is the seed; a run that failed names its number,
and with MAIL_SOAK_FIRST it is the first.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from airflow_provider_mail.api._core.requests import Effect
from tests.faults.cases import FOREVER, Case, Strike
from tests.faults.conftest import SOAK_SEED as SEED
from tests.faults.tasks import TaskWorkload
from tests.faults.test_matrix import FLOWS, TASKS
from tests.faults.variants import VARIANTS
from tests.faults.workload import Trial

SECONDS = float(os.environ.get("MAIL_SOAK_SECONDS", "3"))
START = int(os.environ.get("MAIL_SOAK_FIRST", "1"))

# What the document does not show, and what may change nothing of what is promised.
SETTINGS: dict[str, tuple[Any, ...]] = {
    "errors_as_http_status": (False, True),
    "not_found_code": (400, 403, 404),
    "duplicate_code": (400, 403, 409),
    "contact_not_found": ("error", "null", "absent"),
    "list_name_key": ("ListName", "listName"),
    "success_message": ("", None, "ok"),
    "newest_first": (True, False),
    "list_sort_descending": (True, False),
    "contains_ignores_case": (True, False),
    "max_page_size": (2, 3, 10, 1000),
    "scheduled_status": (1, -1),
    "kept_task_state": ("draft", "scheduled"),
    "state_after_cancel": ("draft", "removed", "failed"),
    "visible_after_looks": (0, 1, 2),
    "wrong_state_code": (400, 403),
    "duplicate_unique_msg_id_code": (None, 400),
}


def drawn(dice: random.Random) -> Iterator[Strike]:
    """One to four faults, few of which take real time."""
    weights = [0.1 if variant.takes_time else 1.0 for variant in VARIANTS]
    times: tuple[int | None, ...] = (1, 1, 1, 2, 3, 4, 6, 12, FOREVER)
    for variant in dice.choices(VARIANTS, weights, k=dice.choice((1, 1, 2, 3, 4))):
        skip, count = int(dice.expovariate(0.4)), dice.choice(times[:4] if variant.takes_time else times)
        yield Strike(variant, skip=skip, count=count, path=dice.choice(variant.kind.operations or ("*",)))


@pytest.mark.timeout(SECONDS + 300)
def test_soak(soak_trial: Trial) -> None:
    end = time.monotonic() + SECONDS
    for number in count(START):
        dice = random.Random(f"{SEED} {number}")
        workload = dice.choice(dice.choice((FLOWS, TASKS)))
        changed = dice.sample(sorted(SETTINGS), k=dice.randint(0, 5))
        settings = {name: dice.choice(SETTINGS[name]) for name in changed}
        moment = (dice.randint(0, 8), dice.choice(("before", "after")))
        dies = isinstance(workload, TaskWorkload) and dice.random() < 0.3
        case = Case(tuple(drawn(dice)), 0, Effect.READ, kill=moment if dies else None, wild=True)
        soak_trial.prepare(workload, **settings)
        soak_trial.try_case(workload, case, plain_requests=10, number=number)
        problems = "\n".join(soak_trial.problems)
        assert not problems, f"MAIL_SOAK_SEED={SEED} MAIL_SOAK_FIRST={number} with {settings}:\n{problems}"
        if time.monotonic() > end:
            break
