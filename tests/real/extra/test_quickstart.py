"""docs/quickstart.md, from an empty folder to its result, typed as it is printed."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.support.env import ROOT, clean_environment
from tests.support.processes import free_port

PAGE = (ROOT / "docs" / "quickstart.md").read_text()
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"(<!-- not run[^\n]*-->\n)?```console\n(.*?)```", PAGE, re.DOTALL)
INSTALL, *TYPED = (block for marked, block in BLOCKS if not marked)


def test_every_line_works_and_brings_the_result(tmp_path: Path) -> None:
    """All blocks but the installation, in one shell, with what is installed here; the port alone is another one."""
    script = "\n".join(TYPED).replace("8025", str(free_port()))
    environment = clean_environment()
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, text=True, start_new_session=True, **streams
    ) as shell:
        try:
            out, _ = shell.communicate()
        finally:
            # The emulator too, where the shell did not reach its last line.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, out[-5000:]
    assert "Traceback" not in out

    levels = dict(re.findall(r"^(ok|warning|error|not checked) +(\w+) ", out, re.MULTILINE))
    assert "error" not in levels, out
    assert re.search(r"^ok +sender +news@example.com is verified$", out, re.MULTILINE)
    assert re.search(r"^warning +triggerer +no triggerer is running", out, re.MULTILINE)
    assert re.search(r"^newsletter/campaign/manual__\S+ +\| complete \(2\) .* 500 ", out, re.MULTILINE)
    with sqlite3.connect(tmp_path / "warehouse.db") as warehouse:
        rows = dict(warehouse.execute("SELECT mail_name, sent_count FROM mail_campaign_stats").fetchall())
        campaigns = warehouse.execute(
            "SELECT mail_name, mail_status FROM mail_campaigns WHERE subject <> ''"
        ).fetchall()
    assert [(name[:20], sent) for name, sent in rows.items()] == [("newsletter/campaign/", 500)]
    assert len(campaigns) > 15, "the emulator's, and this one"


def test_the_page_and_the_readme_agree() -> None:
    (version,) = re.findall(
        r'pip install "apache-airflow==([\d.]+)" "airflow-provider-mail\[emulator,sqlite\]"', INSTALL
    )
    assert f"apache/airflow/constraints-{version}/constraints-$PYTHON_VERSION.txt" in INSTALL
    newest = sorted((ROOT / "constraints").glob("airflow-*.txt"))[-1]
    assert f"apache-airflow=={version}" in newest.read_text().splitlines()
    (ours,) = re.findall(r"newsletter\.py\" <<'EOF'\n(.*?)EOF", PAGE, re.DOTALL)
    (theirs,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "DAG(" in block)
    assert ours.replace("        poke_interval=5,\n", "") == theirs
    (short,) = (block for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) if "emulator" in block)
    assert [line for line in short.splitlines() if line not in PAGE] == []


def test_the_install_line_keeps_the_airflow_that_it_names(tmp_path: Path) -> None:
    """The command of the README, with this package's folder for its name, and our file of versions for Airflow's."""
    (block,) = (block for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) if "--constraint" in block)
    (version,) = re.findall(r'"apache-airflow==([\d.]+)"', block)
    url = f"https://raw.githubusercontent.com/apache/airflow/constraints-{version}/constraints-3.11.txt"
    assert url in block
    ours = ROOT / "constraints" / f"airflow-{version.rpartition('.')[0]}.txt"
    words = shlex.split(block.replace("\\\n", "").replace(url, str(ours)).replace("airflow-provider-mail", str(ROOT)))
    command = [sys.executable, "-m", "uv", *words, "--dry-run", "--python", sys.executable, "--target", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f" + apache-airflow=={version}" in done.stderr
    assert " + airflow-provider-mail " in done.stderr
