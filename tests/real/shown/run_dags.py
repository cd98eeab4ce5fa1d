"""Run the DAG files of a folder, one after the other, and print the error of each as JSON.

Runs in a process of its own, as a reader's Airflow would, without conftest. Each file is alone in the folder of DAGs,
since `dag.test()` parses all files there.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

from airflow.sdk import DAG

LIMIT_SECONDS = 300
"""A block that waits for longer hangs: nothing that a page shows has to wait here."""

INTERVALS = {"poke_interval", "min_interval", "max_age"}
"""What a reader in a hurry would shorten to a second."""


def run(path: Path) -> str:
    signal.alarm(LIMIT_SECONDS)
    try:
        names = runpy.run_path(str(path))
        dags = [value for value in names.values() if isinstance(value, DAG)]
        for task in (task for dag in dags for task in dag.tasks):
            for name in INTERVALS & set(vars(task)):
                setattr(task, name, 1.0)
        runs = [dag.test() for dag in dags if dag.tasks]
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    tasks = [task for run in runs for task in run.get_task_instances()]
    return "; ".join(f"{task.task_id} is {task.state}" for task in tasks if task.state not in ("success", "skipped"))


def too_long(*_: object) -> None:
    raise TimeoutError(f"not done after {LIMIT_SECONDS} s")


signal.signal(signal.SIGALRM, too_long)
dags_folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
for file in sorted(Path(sys.argv[1]).glob("*.py")):
    print(f"--- {file.stem}", flush=True)
    shown = dags_folder / file.name
    file.replace(shown)
    print(json.dumps({"file": file.stem, "error": run(shown)}), flush=True)
    shown.unlink()
