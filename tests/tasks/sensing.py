"""The three ways in which a sensor waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dags import AIRFLOW_VERSION

WAYS: dict[str, dict[str, Any]] = {
    "poke": {"mode": "poke", "deferrable": False},
    "reschedule": {"mode": "reschedule", "deferrable": False},
    "deferrable": {"deferrable": True},
}
# The supervisor that Airflow 3.0 has for one process, also in `dag.test()`, cannot go on after a reschedule; what a
# real one does is in the end-to-end test.
REPEATING = [*WAYS] if AIRFLOW_VERSION >= (3, 1) else ["poke", "deferrable"]
repeating = pytest.mark.parametrize("way", REPEATING)
retrying = pytest.mark.parametrize("way", ["poke", "deferrable"])
