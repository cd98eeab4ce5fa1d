"""What importing the provider adds to the parsing of a DAG file over `airflow.sdk`, beside smtp's and http's.

    python benchmarks/parse_time.py [--runs 5]

Every measurement is a fresh interpreter that has imported `airflow.sdk`, as the dag-processor has before it forks;
it takes CPU time, and subjects take turns, so that a busy machine disturbs little. The limit on modules is a test
(tests/real/test_import_cost.py); times are only shown. The last two lines are a DAG file of four tasks, made with and
without the checks of its arguments, once everything that it imports is there.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "airflow_provider_mail"
# What a DAG file imports; everything else stays behind the hook.
PARSED = ("operators", "sensors", "transfers")

CHILD = """
import importlib, json, sys, time
importlib.import_module(sys.argv[1])
before = set(sys.modules)
start = time.process_time()
for name in sys.argv[2:]:
    importlib.import_module(name)
seconds = time.process_time() - start
print(json.dumps({"ms": 1000 * seconds, "modules": sorted(set(sys.modules) - before)}))
"""


# The second argument says whether arguments are checked.
CHILD_TASKS = """
import sys, time
from airflow.sdk import DAG
from airflow_provider_mail._task.mixin import MailTaskMixin
from airflow_provider_mail.operators._base import BaseCampaignOperator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator

if sys.argv[1] == "without":
    for kind in (MailTaskMixin, BaseCampaignOperator):
        kind.check_arguments = classmethod(lambda cls, arguments, *, mapped=False: None)
start = time.process_time()
with DAG("newsletter", schedule=None):
    MailImportContactsOperator(task_id="contacts", contacts=[{"email": "ada@example.com"}], list_name="news")
    MailCreateCampaignOperator(
        task_id="campaign",
        mail_name="news {{ ds }}",
        sender_mail="news@example.com",
        subject="News",
        content="<p>News</p>",
        send_list_names=["news"],
    )
    MailCampaignSensor(task_id="sent", mail_name="news {{ ds }}")
    MailCampaignStatsToSqlOperator(task_id="statistics", sql_conn_id="warehouse", mail_name="news {{ ds }}")
print(1000 * (time.process_time() - start))
"""


@dataclass(frozen=True)
class Import:
    """One import in a fresh interpreter: milliseconds of CPU time, and the modules that were not there before."""

    ms: float
    modules: tuple[str, ...]


def modules_below(*packages: str) -> list[str]:
    """Return the full names of packages of the provider and of every module in them, without importing any.

    :param packages: their names in the provider.
    """
    names = []
    for package in packages:
        names.append(f"{PACKAGE}.{package}")
        folder = ROOT / PACKAGE / package
        names += [module.name for module in pkgutil.walk_packages([str(folder)], prefix=f"{PACKAGE}.{package}.")]
    return names


def measure(modules: Sequence[str], *, after: str, env: Mapping[str, str]) -> Import:
    """Import modules in a fresh interpreter.

    :param after: a module that is imported before.
    """
    command = [sys.executable, "-c", CHILD, after, *modules]
    process = subprocess.run(command, env=dict(env), cwd=ROOT, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"importing {', '.join(modules)} failed:\n{process.stderr}")
    # Airflow 3.0 logs to standard output while it is imported; ours is the last line.
    answer = json.loads(process.stdout.splitlines()[-1])
    return Import(answer["ms"], tuple(answer["modules"]))


def measure_tasks(checks: str, env: Mapping[str, str]) -> float:
    """Return the milliseconds of CPU time that making four tasks takes.

    :param checks: ``with`` or ``without`` the checks of their arguments.
    """
    command = [sys.executable, "-c", CHILD_TASKS, checks]
    process = subprocess.run(command, env=dict(env), cwd=ROOT, capture_output=True, text=True, check=True)
    return float(process.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="fresh interpreters for each line of the table")
    runs = parser.parse_args().runs

    subjects = {
        "all of ours": modules_below(*PARSED),
        **{f"  {package}": modules_below(package) for package in PARSED},
        "  triggers": modules_below("triggers"),
        "  notifier": [f"{PACKAGE}.notifications.mail"],
        "first request": [f"{PACKAGE}.{module}" for module in ("hooks.mail", "api.campaigns", "api.client")],
        "smtp operator": ["airflow.providers.smtp.operators.smtp"],
        "http operator": ["airflow.providers.http.operators.http"],
    }
    with tempfile.TemporaryDirectory() as home:
        # Without byte code the compiler would be measured.
        without = ("AIRFLOW", "PYTHONDONTWRITEBYTECODE")
        env = {name: value for name, value in os.environ.items() if not name.startswith(without)}
        env |= {"AIRFLOW_HOME": home, "PYTHONPATH": str(ROOT)}
        results: dict[str, list[Import]] = {name: [] for name in subjects}
        tasks: dict[str, list[float]] = {"with": [], "without": []}
        for turn in range(runs + 1):
            for name, modules in subjects.items():
                result = measure(modules, after="airflow.sdk", env=env)
                if turn:  # the first turn writes the byte code
                    results[name].append(result)
            for checks in tasks:
                ms = measure_tasks(checks, env)
                if turn:
                    tasks[checks].append(ms)

    python = ".".join(map(str, sys.version_info[:3]))
    airflow = version("apache-airflow-core")
    print(f"Over airflow.sdk {airflow} on Python {python}; median of {runs} fresh interpreters\n")
    print(f"{'':16}{'CPU ms':>8}{'from':>8}{'to':>8}{'new modules':>14}{'of ours':>9}")
    for name, measured in results.items():
        times = [result.ms for result in measured]
        modules = measured[0].modules
        ours = sum(module.startswith(PACKAGE) for module in modules)
        spread = f"{statistics.median(times):8.1f}{min(times):8.1f}{max(times):8.1f}"
        print(f"{name:16}{spread}{len(modules):14}{ours:9}")
    print()
    for checks, milliseconds in tasks.items():
        spread = f"{statistics.median(milliseconds):6.1f}{min(milliseconds):8.1f}{max(milliseconds):8.1f}"
        print(f"four tasks {checks:8} checks {spread}")


if __name__ == "__main__":
    main()
