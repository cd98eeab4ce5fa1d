"""`make demo-ui` opens its pages where there is a display, and nothing where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import env

OPEN = "from example_dags.demo.__main__ import open_in_browser; open_in_browser('http://a.example', 'http://b.example')"


@pytest.mark.parametrize(("display", "opened"), [(":0", ["http://a.example", "http://b.example"]), ("", [])])
@pytest.mark.skipif(sys.platform == "darwin", reason="has a display always")
def test_pages_are_opened(tmp_path: Path, display: str, opened: list[str]) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {seen}\n')
    browser.chmod(0o700)
    seen.touch()
    variables = {"DISPLAY": display, "WAYLAND_DISPLAY": "", "BROWSER": f"{browser} %s"}
    subprocess.run([sys.executable, "-c", OPEN], cwd=env.ROOT, env=env.clean_environment() | variables, check=True)
    assert seen.read_text().splitlines() == opened
