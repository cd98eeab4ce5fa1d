"""`airflow ...` in a process that has imported what tasks need: its forks run DAG files and tasks at once."""

from __future__ import annotations

import importlib
import sys

from airflow.__main__ import main

from benchmarks.parse_time import modules_below

OTHERS = (
    "airflow.providers.common.sql.hooks.sql",
    "airflow.providers.postgres.hooks.postgres",
    "airflow.providers.standard.operators.python",
    "airflow.sdk.execution_time.task_runner",
)
OURS = (
    *("_polling", "_task", "api", "hooks", "notifications", "operators", "sensors", "transfers", "triggers", "utils"),
    "warehouse",
)
"""Packages of ours, with all modules below them: models and dialects are imported by each task when it needs them."""

if __name__ == "__main__":
    for name in (*OTHERS, *modules_below(*OURS)):
        importlib.import_module(name)
    sys.argv[0] = "airflow"
    main()
