"""A soak: settings of the service and several faults at once strike what `tests/faults` tries, all drawn from a seed.

Three seconds unless MAIL_SOAK_SECONDS says otherwise. MAIL_SOAK_SEED is the seed; a run that failed names its number,
and with MAIL_SOAK_FIRST it is the first.
"""

from __future__ import annotations

import os
import random
import time
from itertools import count

import pytest

from mail_emulator import Emulator
from tests.faults.conftest import _mail_default, _quiet  # noqa: F401 - fixtures
from tests.faults.test_any_faults import WORKLOADS, Trial
from tests.support.clock import Clock

SECONDS = float(os.environ.get("MAIL_SOAK_SECONDS", "3"))
START = int(os.environ.get("MAIL_SOAK_FIRST", "1"))
SEED = os.environ.get("MAIL_SOAK_SEED", "1")


@pytest.mark.timeout(SECONDS + 300)
def test_soak(emulator: Emulator, clock: Clock) -> None:
    trial = Trial(emulator, clock)
    end = time.perf_counter() + SECONDS
    for number in count(START):
        workload = random.Random(f"{SEED} {number}").choice(WORKLOADS)
        print(f"MAIL_SOAK_SEED={SEED} MAIL_SOAK_FIRST={number}: {workload}")
        trial.check(workload, 5, f"{SEED} {number}")
        if time.perf_counter() > end:
            break
