"""The emulator runs with what its distribution declares, and Airflow is not among it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.env import ROOT

DECLARED = tomllib.loads((ROOT / "emulator" / "pyproject.toml").read_text())["project"]["dependencies"]
# Jinja brings markupsafe along.
ALLOWED = [*(re.match(r"\w+", one)[0] for one in DECLARED), "markupsafe", "mail_emulator"]  # type: ignore[index]

SCRIPT = f"""
import importlib.abc, sys, urllib.request

class OnlyAllowed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {ALLOWED!r}:
            raise ModuleNotFoundError("not declared: " + name)

# First on the path, before an editable installation of this project.
sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, OnlyAllowed())
from mail_emulator import Emulator
from mail_emulator import __main__, client
assert __main__.__file__.startswith(sys.argv[1]), __main__.__file__
with Emulator(forward_smtp="127.0.0.1:9") as emulator:
    __main__.add_demo_data(emulator)
    for page in ("/", "/campaigns", "/inbox/lists", "/inbox/requests", "/inbox/faults", "/inbox/static/inbox.css"):
        urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(emulator.base_url + page).read()
    assert not emulator.crashes(), emulator.crashes()
print("served")
"""


def test_it_runs_without_airflow_and_the_provider(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "emulator" / "mail_emulator", tmp_path / "mail_emulator")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "served\n", done.stderr
