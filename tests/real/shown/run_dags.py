"""Run the DAG files and scripts of a folder, one after the other, and print the state of each as JSON.

Runs in a process of its own that a reader's Airflow would be: no conftest, no fixture.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
import traceback
from pathlib import Path

from airflow.sdk import DAG

LIMIT_SECONDS = 150
"""A block that waits for longer hangs: nothing that a page shows has to wait here."""


def run(path: Path) -> str:
    signal.alarm(LIMIT_SECONDS)
    try:
        names = runpy.run_path(str(path))
        dags = [value for value in names.values() if isinstance(value, DAG)]
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
for file in sorted(Path(sys.argv[1]).glob("*.py")):
    print(f"--- {file.stem}", file=sys.stderr, flush=True)
    print(json.dumps({"file": file.stem, "error": run(file)}), flush=True)
