"""Eight of the days of `sixty_days` on SQLite; all sixty on every database are in `tests/real/warehouse`."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from airflow_provider_mail.warehouse import database
from mail_emulator import Emulator
from tests.machines.sixty_days import Account, World, live
from tests.support.clock import Clock
from tests.warehouse.conftest import Warehouse, make_warehouse, warehouse_database, warehouse_maria  # noqa: F401


def run(
    warehouse: Warehouse,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    days: int,
    seed: int,
    halfway: Callable[[World], object] = lambda world: None,
) -> World:
    """Two accounts, one of which has two teams; dlt reads one of them, too.

    :param halfway: called after half of the days.
    """

    def connect(conn_id: str, service: Emulator, team: str) -> None:
        fields = {"conn_type": "mail", "host": service.base_url, "password": service.api_key}
        value = json.dumps({**fields, "extra": {"team_name": team}})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value)

    with Emulator() as first, Emulator() as second, Emulator() as third:
        accounts = [Account("mail_default", "", first), Account("mail_default", "Shop", second),
                    Account("mail_shop", "Shop", third)]  # fmt: skip
        world = World(warehouse, accounts, clock, connect, seed, folder)
        monkeypatch.setattr(database, "database_time", lambda hook: world.now())
        if find_spec("dlt") is None:
            live(world, days, halfway=halfway)
        else:
            from tests.machines.sixty_dlt import Lake

            monkeypatch.setenv("DLT_DATA_DIR", f"{folder / 'dlt'}")
            monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
            monkeypatch.setenv("PROVIDERS__ENABLE_AIRFLOW_SECRETS", "false")  # no look-ups in Airflow's database
            lake = Lake(world, accounts[-1], folder / "lake")

            def beside(account: Account) -> None:
                if account is lake.account and world.chance.random() < 0.5:
                    lake.load()

            with lake.client:
                live(world, days, beside, halfway)
    return world


@pytest.mark.timeout(1800)
def test_every_number_is_right_or_red(
    make_warehouse: Callable[..., Warehouse],  # noqa: F811
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    run(make_warehouse("sqlite"), clock, monkeypatch, tmp_path, days=8, seed=1)
