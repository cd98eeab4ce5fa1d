"""Airflow's API server alone: the part that a person sees."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import env
from tests.support.processes import Component, free_port, wait_until
from tests.support.rest import AirflowApi


class ApiServer:
    """Serves the user interface and the REST API, from `with` to the end of it; everybody is an administrator.

    :param home: a folder with Airflow's database, `airflow.db`, migrated.
    :param settings: further environment.
    """

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        port = free_port()
        self.base_url = f"http://127.0.0.1:{port}"
        environment = (
            env.clean_environment()
            | env.settings(home, f"sqlite:///{home / 'airflow.db'}", home / "dags")
            | {
                "AIRFLOW__API__HOST": "127.0.0.1",
                "AIRFLOW__API__PORT": str(port),
                "AIRFLOW__API__WORKERS": "1",
                "AIRFLOW__API__BASE_URL": f"{self.base_url}/",
            }
            | settings
        )
        self._process = Component(
            "api-server",
            [sys.executable, "-m", "airflow", "api-server"],
            env=environment,
            log=home / "api-server.out",
        )
        self.api = AirflowApi(self.base_url)

    def __enter__(self) -> Self:
        self._process.start()
        try:
            wait_until(self._answers, what="the API server answers", timeout=120)
        except BaseException as error:
            error.add_note(self._process.tail())
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self._process.tail())
        self.api.close()
        self._process.stop()

    def _answers(self) -> bool:
        if self._process.exit_code() is not None:
            raise RuntimeError(f"the API server ended with {self._process.exit_code()}")
        return bool(self.api.health())
