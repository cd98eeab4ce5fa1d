"""docs/quickstart.md, from an empty folder to its result, typed as it is printed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.env import ROOT, clean_environment
from tests.support.processes import free_port

PAGE = (ROOT / "docs" / "quickstart.md").read_text()
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"(<!-- not run[^\n]*-->\n)?```console\n(.*?)```", PAGE, re.DOTALL)
INSTALL, *TYPED = (block for marked, block in BLOCKS if not marked)


@dataclass(frozen=True)
class Typed:
    """What the terminal showed, and the folder that it was typed in."""

    status: int
    out: str
    folder: Path


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Typed:
    """All blocks but the installation, in one shell, with what is installed here; the port alone is another one."""
    folder = tmp_path_factory.mktemp("quickstart")
    script = "\n".join(TYPED).replace("8025", str(free_port()))
    environment = clean_environment()
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    with subprocess.Popen(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            out, _ = shell.communicate()
        finally:
            # The emulator too, where the shell did not reach its last line.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    return Typed(shell.returncode, out, folder)


def test_every_line_works(typed: Typed) -> None:
    assert typed.status == 0, typed.out[-5000:]
    assert "Traceback" not in typed.out


def test_the_doctor_finds_nothing_wrong(typed: Typed) -> None:
    levels = dict(re.findall(r"^(ok|warning|error|not checked) +(\w+) ", typed.out, re.MULTILINE))
    assert "error" not in levels, typed.out
    assert re.search(r"^ok +sender +news@example.com is verified$", typed.out, re.MULTILINE)
    assert re.search(r"^warning +triggerer +no triggerer is running", typed.out, re.MULTILINE)


def test_the_campaign_is_out_and_its_statistics_are_in_the_warehouse(typed: Typed) -> None:
    assert re.search(r"^newsletter/campaign/manual__\S+ +\| complete \(2\) .* 500 ", typed.out, re.MULTILINE)
    with sqlite3.connect(typed.folder / "warehouse.db") as warehouse:
        rows = dict(warehouse.execute("SELECT mail_name, sent_count FROM mail_campaign_stats").fetchall())
    assert [sent for name, sent in rows.items() if name.startswith("newsletter/campaign/")] == [500]
    assert len(rows) > 5, "those of the week before"


def test_the_dag_is_that_of_the_readme() -> None:
    (ours,) = re.findall(r"newsletter\.py\" <<'EOF'\n(.*?)EOF", PAGE, re.DOTALL)
    (theirs,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "DAG(" in block)
    assert ours.replace("        poke_interval=5,\n", "") == theirs


def test_the_short_form_in_the_readme_is_a_part_of_it() -> None:
    (short,) = (block for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) if "emulator" in block)
    assert [line for line in short.splitlines() if line not in PAGE] == []


def test_it_begins_with_the_installation() -> None:
    assert INSTALL.splitlines()[-1] == 'pip install "airflow-provider-mail[sqlite]"'
