"""What the Containerfile copies and installs is enough to run the emulator, and Airflow is not among it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.env import ROOT

CONTAINERFILE = (ROOT / "Containerfile").read_text()
INSTALLED = re.findall(r'"(\w+)(>=[^"]*)"', CONTAINERFILE)
ALLOWED = [*(name for name, _ in INSTALLED), "markupsafe", "airflow_provider_mail"]  # Jinja brings markupsafe along

SCRIPT = f"""
import importlib.abc, sys, urllib.request

class OnlyAllowed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {ALLOWED!r}:
            raise ModuleNotFoundError("not in the image: " + name)

# First on the path, before an editable installation of this project.
sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, OnlyAllowed())
from mail_emulator import Emulator
from mail_emulator import __main__, client, demo_data
assert __main__.__file__.startswith(sys.argv[1]), __main__.__file__
with Emulator(forward_smtp="127.0.0.1:9") as emulator:
    demo_data.add_demo_data(emulator)
    for page in ("/", "/campaigns", "/inbox/lists", "/inbox/requests", "/inbox/faults", "/inbox/static/inbox.css"):
        urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(emulator.base_url + page).read()
    assert not emulator.crashes(), emulator.crashes()
print("served")
"""


def test_the_copied_files_run_without_airflow(tmp_path: Path) -> None:
    copied = re.findall(r"^COPY (\S+) (\S+)$", CONTAINERFILE, re.MULTILINE)
    assert len(copied) == 2
    for source, target in copied:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / target)
        else:
            (tmp_path / target).mkdir()
            shutil.copy(ROOT / source, tmp_path / target)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "served\n", done.stderr
