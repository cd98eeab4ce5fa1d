"""`make mutants`: change the core in small ways, and see whether a test notices.

mutmut makes the changes, finds the tests that call the changed function, and runs them until the first failure. This
script draws a sample for each group of modules. It runs the cheap tests of the group on all of the sample, and the
expensive ones on what survives. It prints each survivor as a diff; `build/mutants.json` holds all results.

Environment variables: `GROUP` chooses groups by name, `MUTANTS` is the size of a sample (30), `ALL=1` tests every
mutant, `SEED` draws another sample (1), and `JOBS` is the number of processes (that of the processors).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).resolve().parents[1]
WORKSPACE = ROOT / "build" / "mutants"
REPORT = ROOT / "build" / "mutants.json"
MUTMUT = Path(sys.executable).with_name("mutmut")


class Group(NamedTuple):
    """Modules and test files, as globs relative to `airflow_provider_mail` and `tests`."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    expensive_tests: tuple[str, ...] = ()


GROUPS = {
    "exchange": Group(
        ("api/client.py", "api/_core/responses.py"),
        ("api/test_exchange.py", "api/test_judgement.py"),
        (
            "api/test_sandbox.py",
            "api/test_ending.py",
            "api/test_connections.py",
            "api/test_secrets.py",
            "api/test_stats.py",
        ),
    ),
    "retry": Group(("api/config.py",), ("api/test_exchange.py",), ("hooks/test_c*.py",)),
    "creation": Group(
        ("api/flows/create_*.py", "api/flows/campaign_checks.py"),
        ("api/test_creation.py", "api/test_kept_campaigns.py", "api/test_named.py"),
        (
            "api/test_preflight.py",
            "machines/test_creating.py",
            "tasks/test_create_campaign.py",
        ),
    ),
    "paging": Group(
        ("api/_core/pagination.py",),
        ("api/test_paging.py",),
        ("api/test_stats.py", "faults/test_any_faults.py"),
    ),
    "import": Group(
        ("api/flows/import_*.py", "api/flows/validate_rows.py"),
        ("api/test_contact_*.py",),
        ("machines/test_importing.py", "tasks/test_imports.py"),
    ),
    "statistics": Group(
        ("api/_core/responses.py", "api/flows/statistics.py"),
        ("api/test_stats.py",),
        ("api/test_waiting.py", "faults/test_any_faults.py"),
    ),
    "waiting": Group(
        ("api/flows/waits.py", "_polling/*.py"),
        ("api/test_waiting.py",),
        (
            "machines/test_waiting.py",
            "tasks/test_triggers.py",
            "tasks/test_event_trigger.py",
            "tasks/test_inbox_waits.py",
            "tasks/test_sensors.py",
        ),
    ),
    "ledger": Group(
        (
            "_task/state.py",
            "_task/imports.py",
            "_task/at_most_once.py",
            "api/transactional.py",
        ),
        (
            "tasks/test_create_campaign.py",
            "tasks/test_import_checkpoint.py",
            "tasks/test_transactional.py",
        ),
        ("machines/test_*ing.py", "tasks/test_imports.py", "tasks/test_metrics.py"),
    ),
    "loads": Group(
        (
            "warehouse/database.py",
            "warehouse/request.py",
            "warehouse/dialects/base.py",
            "warehouse/dialects/staged*.py",
        ),
        ("warehouse/test_load.py", "warehouse/test_removal.py"),
        (
            "machines/test_loading.py",
            "warehouse/test_dialects.py",
            "warehouse/test_existing.py",
            "warehouse/test_privacy.py",
            "cli/test_commands.py",
        ),
    ),
    "webhook": Group(
        ("webhook/*.py", "cli/receive.py"),
        (
            "webhook/test_commits.py",
            "webhook/test_events.py",
            "webhook/test_inbox.py",
        ),
        (
            "webhook/test_drain.py",
            "webhook/test_receiver.py",
            "webhook/test_rotation.py",
            "webhook/test_starting.py",
        ),
    ),
    "plugin": Group(
        ("plugin/*.py",),
        ("plugin/test_*.py",),
    ),
    "rows": Group(
        ("warehouse/rows.py", "warehouse/tables/*.py"),
        ("warehouse/test_rows.py", "warehouse/test_tables.py"),
        (
            "tasks/test_other_fields.py",
            "tasks/test_reconcile.py",
            "warehouse/test_load.py",
            "warehouse/test_removal.py",
            "tasks/test_lists_to_sql.py",
        ),
    ),
}

CONFIGURATION = """
[tool.mutmut]
debug = true  # what the tests print, for the log
source_paths = ["airflow_provider_mail"]
only_mutate = {only_mutate}
also_copy = ["conftest.py", "docs", "emulator", "example_dags"]
# Lines with the words of a message or the keywords of an SQL statement.
do_not_mutate_patterns = ['"[^"]* [^"]* [^"]*"']
# A worker must inherit neither threads of the tests that ran before, nor an Airflow whose database is another worker's.
process_isolation = "forkserver"
forkserver_warmup = "import"
preload_modules_file = "preload.txt"
timeout_multiplier = 4.0
timeout_constant = 30.0
pytest_add_cli_args_test_selection = {tests}
# Without the tests that measure memory: wrappers and other workers change it.
pytest_add_cli_args = ["-k", "not memory_does"]
"""

# Slow to import, and without state that workers could share.
PRELOADED = ("httpx", "hypothesis", "pydantic", "sqlalchemy.orm", "airflow_provider_mail.api")


def files(folder: str, patterns: tuple[str, ...]) -> list[str]:
    """The files that the patterns name; each pattern must name some."""
    found: dict[str, None] = {}
    for pattern in patterns:
        paths = sorted(ROOT.glob(f"{folder}/{pattern}"))
        assert paths, f"no file is named {folder}/{pattern}"
        found |= dict.fromkeys(str(path.relative_to(ROOT)) for path in paths)
    return list(found)


def prepare(workspace: Path) -> None:
    """Copy the project into a workspace, which mutmut may fill, and enter it."""
    shutil.rmtree(workspace, ignore_errors=True)
    for name in ("airflow_provider_mail", "docs", "emulator", "example_dags", "tests"):
        shutil.copytree(ROOT / name, workspace / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "conftest.py", workspace)
    (workspace / "preload.txt").write_text("\n".join(PRELOADED))
    os.chdir(workspace)


def configure(modules: list[str], tests: list[str]) -> None:
    """Write the configuration of mutmut for a run of these tests."""
    configuration = CONFIGURATION.format(only_mutate=json.dumps(modules), tests=json.dumps(tests))
    Path("pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + configuration)


def sample(modules: list[str], size: int | None, seed: str) -> list[str]:
    """The names of the mutants to test. A mutant keeps its place in the order when other functions change."""
    names = [
        get_mutant_name(Path(module), name)
        for module in modules
        for name in mutate_file_contents(module, Path(module).read_text()).mutant_names
    ]
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:size]


def run(names: list[str], jobs: str) -> dict[str, str]:
    """What became of the mutants: "killed", "timeout", "survived" or "no tests"."""
    command = [MUTMUT, "run", "--max-children", jobs, *names]
    # The processes of mutmut end without their exit handlers, so what the tests put there stays.
    with Path("mutmut.log").open("w") as log, tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        Path(folder).chmod(0o755)  # Postgres runs as another user
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(command, stdout=log, stderr=log, env=environment, check=False)
    if done.returncode:
        sys.exit(f"mutmut failed: see {Path(log.name).resolve()}")
    codes: dict[str, int | None] = {}
    for meta in Path("mutants").rglob("*.py.meta"):
        codes |= json.loads(meta.read_text())["exit_code_by_key"]
    return {name: status_by_exit_code[codes[name]] for name in names}


def survivors(statuses: dict[str, str]) -> list[str]:
    return [name for name, status in statuses.items() if status not in ("killed", "timeout")]


def difference(name: str) -> str:
    """The change that a mutant makes."""
    shown = subprocess.run([MUTMUT, "show", name], capture_output=True, text=True, check=False).stdout
    return shown.partition("\n")[2]  # the first line has the status of the last run alone


def test(group: Group, workspace: Path) -> dict[str, str]:
    """Run the cheap tests on all mutants of the sample, and the expensive tests on what survives."""
    size = None if os.environ.get("ALL") else int(os.environ.get("MUTANTS", "30"))
    jobs = os.environ.get("JOBS", str(os.cpu_count()))
    prepare(workspace)
    modules = files("airflow_provider_mail", group.modules)
    configure(modules, files("tests", group.tests))
    statuses = run(sample(modules, size, os.environ.get("SEED", "1")), jobs)
    left = survivors(statuses)
    if left and group.expensive_tests:
        configure(modules, files("tests", group.expensive_tests))
        statuses |= {name: status for name, status in run(left, jobs).items() if status != "no tests"}
    return statuses


def main() -> None:
    report = {}
    for title in os.environ.get("GROUP", "").split() or GROUPS:
        statuses = test(GROUPS[title], WORKSPACE / title)
        left = survivors(statuses)
        for name in left:
            print(f"# {name}: {statuses[name]}\n{difference(name)}")
        killed = len(statuses) - len(left)
        print(f"{title}: {killed} of {len(statuses)} killed, {killed / len(statuses):.0%}\n", flush=True)
        report[title] = statuses
        REPORT.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
