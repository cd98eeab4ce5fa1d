"""`make demo-ui`: everything that it promises can be seen, and however it ends, nothing stays behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pytest

from mail_emulator import EmulatorClient
from tests.support import env
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import PATIENCE, wait_until
from tests.support.rest import AirflowApi, Json

CONTACTS = 40_000
# On 3.0 nobody can be asked, and the first two say so by failing; the last waits four hours.
LEFT_OUT = {"mail_approval", "mail_staged", "mail_ab_test", "mail_ramp", "mail_local_time"}
DAGS = {path.stem for path in (env.ROOT / "example_dags").glob("mail_*.py")} - LEFT_OUT


class Demo:
    """The demo on a terminal of its own, with temporary files in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.output = folder / "output"
        self._arguments = arguments
        self._seen: set[psutil.Process] = set()

    def __enter__(self) -> Self:
        self._terminal, terminal = pty.openpty()

        def take_terminal() -> None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell may have let us ignore it

        command = [sys.executable, "-m", "example_dags.demo", f"--contacts={CONTACTS}", *self._arguments]
        options: dict[str, Any] = {"cwd": env.ROOT, "start_new_session": True, "preexec_fn": take_terminal}
        options["env"] = env.clean_environment() | {"TMPDIR": str(self.temporary)}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=terminal, stdout=output, stderr=output, **options)
        os.close(terminal)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self.printed())
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.close_terminal()

    def printed(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, pattern: str) -> str:
        """The first group of what matches what was printed, once it does."""

        def look() -> str | None:
            assert self.process.poll() is None, self.printed()
            found = re.search(pattern, self.printed())
            return found[1] if found else None

        return wait_until(look, what=pattern)

    def descendants(self) -> set[psutil.Process]:
        """All processes below the demo now."""
        return set(psutil.Process(self.process.pid).children(recursive=True))

    def close_terminal(self) -> None:
        """As closing the window does."""
        with suppress(OSError):
            os.close(self._terminal)

    def assert_nothing_is_left(self, processes: set[psutil.Process]) -> None:
        def left() -> list[psutil.Process]:
            return [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

        self.process.wait(PATIENCE)
        wait_until(lambda: not left(), what=f"end of {processes}")
        wait_until(lambda: not list(self.temporary.glob("mail-demo-*")), what="end of the folder")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """`make demo-ui`, until it has shown all."""
    with Demo(tmp_path_factory.mktemp("demo"), "--keep") as demo:
        demo.wait_for("(Press Ctrl-C to end it)")
        yield demo


@pytest.fixture(scope="module")
def api(demo: Demo) -> Iterator[AirflowApi]:
    api = AirflowApi(demo.wait_for(r"Airflow stays up at (\S+)"))
    yield api
    api.close()


@pytest.fixture(scope="module")
def emulator(demo: Demo) -> EmulatorClient:
    return EmulatorClient(demo.wait_for(r"The email service, emulated: (\S+)"))


def test_the_inbox_and_the_page_show_the_campaign(demo: Demo, api: AirflowApi, emulator: EmulatorClient) -> None:
    """`api` waits until the demo has shown all."""
    address = demo.wait_for(r"The mail that was sent is at (\S+)")
    assert address == emulator.base_url
    inbox = httpx.get(f"{address}/", trust_env=False, timeout=60).text
    assert f"{emulator.inbox.search(limit=1)['total']:,} mails" in inbox
    assert "mail_campaign/" in inbox
    address = demo.wait_for(r"Its page of campaigns and loads is at (\S+)")
    assert address.endswith("/mail/" if AIRFLOW_VERSION < (3, 1) else "/plugin/mail")
    request = api.request("GET", "/version").request
    token = {"authorization": request.headers["authorization"]}
    for path, shown in (("", "mail_campaign/"), ("loads", "mail_campaign_stats"), ("imports", "mail_campaign/")):
        page = httpx.get(request.url.join(f"/mail/{path}"), headers=token, trust_env=False, timeout=60)
        assert shown in page.text, path


@pytest.mark.timeout(1200)  # with the start of the demo; on a busy machine
def test_every_dag_ends_well(demo: Demo, api: AirflowApi, emulator: EmulatorClient) -> None:
    """All are triggered at once, after those that the demo itself has run: a second time for some."""
    assert {dag["dag_id"] for dag in api.request("GET", "/dags?limit=100").json()["dags"]} >= DAGS
    triggered = {(dag_id, api.trigger(dag_id)) for dag_id in DAGS}

    def ended() -> list[Json] | None:
        runs: list[Json] = api.request("GET", "/dags/~/dagRuns?limit=100").json()["dag_runs"]
        over = {(run["dag_id"], run["dag_run_id"]) for run in runs if run["state"] in ("success", "failed")}
        # One for the campaign that went out while nobody listened, one for the campaign from here.
        events = [run for run in runs if run["run_type"] == "asset_triggered" and run["state"] == "success"]
        return runs if triggered <= over and len(over) == len(runs) and len(events) >= 2 else None

    runs = wait_until(ended, what="the end of all runs", interval=1)

    assert not (failures := "\n".join(failed_tasks(api, runs))), failures
    for run in (run for run in runs if run["run_type"] == "asset_triggered"):
        tasks = {task["task_id"]: task["state"] for task in api.task_instances(run["dag_id"], run["dag_run_id"])}
        assert tasks["load"] == "success"
    assert emulator.crashes() == []
    mailed = {address["email"] for message in emulator.messages() for address in message["recipients"]}
    assert {"ada@example.com", "customer0@example.com", "sales@example.com"} <= mailed


def failed_tasks(api: AirflowApi, runs: list[Json]) -> Iterator[str]:
    """The logs of the tasks because of which runs failed."""
    for dag_id, run_id in [(run["dag_id"], run["dag_run_id"]) for run in runs if run["state"] != "success"]:
        for task in api.task_instances(dag_id, run_id):
            if task["state"] == "failed":
                where = (task["task_id"], task["try_number"], task["map_index"])
                yield f"{dag_id} {run_id} {where}:\n{api.log(dag_id, run_id, *where)}"


def test_what_the_warehouse_holds(demo: Demo) -> None:
    home = Path(demo.wait_for(r"Databases and files: (\S+)"))
    assert home.parent == demo.temporary
    assert list((home / "lake").glob("campaigns/*/*.parquet"))
    with closing(sqlite3.connect(home / "warehouse.db")) as warehouse:
        rows: list[Any] = warehouse.execute(
            "SELECT open_count FROM mail_campaign_stats_snapshots WHERE mail_name LIKE 'mail_campaign/%' AND mail_name "
            "= (SELECT MIN(mail_name) FROM mail_campaign_stats WHERE mail_name LIKE 'mail_campaign/%') "
            "ORDER BY observed_day"
        ).fetchall()
    # An open curve: a point for each (emulated) day.
    assert len(rows) >= 2
    assert rows == sorted(set(rows))
    assert rows[0][0] > 0


def test_what_the_demo_says_of_the_stages(demo: Demo) -> None:
    if AIRFLOW_VERSION < (3, 1):
        assert "Airflow 3.0 cannot ask a person, so the campaign in stages (mail_staged) is left out." in demo.printed()
        return
    sent = re.findall(r"newsletter \S+ (canary|rest|\(test\)) +([\d,]+)", demo.printed())
    assert [name for name, _ in sent] == ["(test)", "canary", "rest"]
    test, canary, rest = (int(number.replace(",", "")) for _, number in sent)
    assert test == 1 < canary < 0.02 * CONTACTS < 0.9 * CONTACTS < rest


def test_a_closed_terminal_leaves_nothing(demo: Demo) -> None:
    processes = demo.descendants()
    assert len(processes) > 6
    demo.close_terminal()
    demo.assert_nothing_is_left(processes)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_any_end_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    """In the midst of the start: the components run, and nobody has waited for them yet."""
    with Demo(tmp_path) as demo:
        demo.wait_for("(The email service, emulated)")

        def started() -> set[psutil.Process] | None:
            # The emulator, the one that cleans up, and the four of Airflow.
            processes = demo.descendants()
            return processes if len(processes) >= 6 else None

        processes = wait_until(started, what="all components")
        assert len(list(demo.temporary.glob("mail-demo-*"))) == 1
        demo.process.send_signal(how)
        demo.assert_nothing_is_left(processes)
