"""Sixty days of a service with all that goes wrong with numbers, on each database: every number is right, or red."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.machines.test_sixty_days import run
from tests.support.clock import Clock
from tests.warehouse.conftest import Warehouse

DAYS = int(os.environ.get("MAIL_TEST_DAYS", "60"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "seed"), [("sqlite", 5), ("psycopg3", 3), ("duckdb", 4), ("mysql", 5)])
def test_every_number_is_right_or_red(
    make_warehouse: Callable[..., Warehouse], clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    kind: str, seed: int,
) -> None:  # fmt: skip
    world = run(make_warehouse(kind, stays_open=True), clock, monkeypatch, tmp_path, days=DAYS, seed=seed)
    assert world.loads >= 4 * DAYS
    print(f"{kind}: {world.loads} loads, {world.failed} failed as they should")
