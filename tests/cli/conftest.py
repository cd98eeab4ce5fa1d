"""The commands, at the emulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_provider_mail.__main__ import main
from mail_emulator import Emulator


class Said(NamedTuple):
    """What a command printed, and how it ended."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Of JSON output."""
        return json.loads(self.out)


Command = Callable[..., Said]


@pytest.fixture
def command(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], airflow_home: Path,
    request: pytest.FixtureRequest,
) -> Command:  # fmt: skip
    """Runs ``python -m airflow_provider_mail`` with these arguments; time passes at once unless a test moves it."""
    if "still_clock" not in request.fixturenames:
        request.getfixturevalue("clock")

    def connect(conn_id: str = "mail_default", **changed: Any) -> None:
        connection = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key, **changed}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))

    connect()
    connect("mail_bad", password="not-the-key")

    def command(*arguments: str) -> Said:
        capfd.readouterr()
        status = 0
        try:
            main(arguments)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        return Said(status, *capfd.readouterr())

    return command
