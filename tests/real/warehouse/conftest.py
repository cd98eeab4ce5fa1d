"""The databases of `tests/warehouse`."""

from __future__ import annotations

from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    make_warehouse,
    native,
    postgres,
    sqlite,
    warehouse,
    warehouse_database,
    warehouse_maria,
)
