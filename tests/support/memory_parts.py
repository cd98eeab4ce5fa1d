"""The private parts of the memory that tests look into: only this module knows where they are."""

from __future__ import annotations

import pytest

from airflow_provider_mail._audience.alerts import Alerts
from airflow_provider_mail._audience.memory import Cap, Memory
from airflow_provider_mail._audience.sealing import AudienceKey

__all__ = ["Alerts", "AudienceKey", "Cap", "Memory", "new_memory"]


def new_memory(conn_id: str, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The memory in a database, empty and configured."""
    monkeypatch.setenv("AIRFLOW__MAIL__MEMORY_CONN_ID", conn_id)
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret of the tests")
    memory = Memory.configured()
    assert memory is not None
    memory.create()
    return memory
