"""A secrets backend of Airflow: connections and variables in a file, which tests change while Airflow runs."""

from __future__ import annotations

import json
from pathlib import Path

from airflow.secrets import BaseSecretsBackend


class SecretsFile(BaseSecretsBackend):
    """Reads `{"connections": {...}, "variables": {...}}`, values as those of `AIRFLOW_CONN_...` and `AIRFLOW_VAR_...`.

    :param path: the file.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def get_conn_value(self, conn_id: str, team_name: str | None = None) -> str | None:
        return self._get("connections", conn_id)

    def get_variable(self, key: str, team_name: str | None = None) -> str | None:
        return self._get("variables", key)

    def _get(self, kind: str, name: str) -> str | None:
        value: str | None = json.loads(self._path.read_text())[kind].get(name)
        return value
