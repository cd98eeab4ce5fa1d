"""`airflow ...` in a process that has imported what tasks need: its forks run DAG files and tasks at once."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from airflow.__main__ import main

OTHERS = (
    "airflow.providers.common.sql.hooks.sql",
    "airflow.providers.postgres.hooks.postgres",
    "airflow.providers.standard.operators.python",
    "airflow.sdk.execution_time.task_runner",
)
OURS = (
    "_polling",
    "_task",
    "api",
    "hooks",
    "notifications",
    "operators",
    "sensors",
    "transfers",
    "triggers",
    "utils",
    "warehouse",
)
"""Packages of ours, with all modules below them: models and dialects are imported by each task when it needs them."""

if __name__ == "__main__":
    for name in OTHERS:
        importlib.import_module(name)
    for name in OURS:
        package = importlib.import_module(f"airflow_provider_mail.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    sys.argv[0] = "airflow"
    main()
