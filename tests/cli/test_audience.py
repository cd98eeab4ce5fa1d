"""The states of audiences, shown and deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.tasks.test_audience import done
from tests.tasks.test_audience_changes import imported

NAME = "dag/load"


@pytest.fixture(params=["table", "folder"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Where the state is, as arguments of the task."""
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")
    monkeypatch.setenv(
        "AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "warehouse.db")})
    )
    return {"state_conn_id": "warehouse"} if request.param == "table" else {"state_path": f"file://{tmp_path}/state"}


def test_states_are_shown_and_deleted(command: Command, where: dict[str, str]) -> None:
    options = [text for name, value in where.items() for text in (f"--{name.replace('_', '-')}", value)]
    assert json.loads(command("audience", "status", *options, "-o", "json").out) == []
    done(imported("ada", "bob", **where))
    done(imported("bob", **where), "second")
    (shown,) = json.loads(command("audience", "status", *options, "-o", "json").out)
    assert [shown[name] for name in ("audience", "size", "excluded", "running")] == [NAME, 1, 1, False]
    assert command("audience", "reset", "other", *options).status == 1
    assert command("audience", "reset", NAME, *options).out.startswith(f"The state of {NAME} was deleted")
    assert json.loads(command("audience", "status", *options, "-o", "json").out) == []
    assert done(imported("bob", **where), "third")["joined"] == 1


def test_where_the_state_is_must_be_said(command: Command) -> None:
    assert "--state-conn-id or --state-path" in command("audience", "status").err
