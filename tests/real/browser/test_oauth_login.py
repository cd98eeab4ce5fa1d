"""`airflow mail oauth login` as a person does it: the command in a terminal, the consent page in a browser.

What else may happen to the redirect is in `tests/cli/test_oauth.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator
from tests.cli import application
from tests.cli.application import CONN
from tests.support.browser import TIMEOUT_MS
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT

# Airflow has no commands of providers before 3.2.
AIRFLOW = [str(Path(sys.executable).with_name("airflow")), "mail"]
COMMAND = AIRFLOW if AIRFLOW_VERSION >= (3, 2) else [sys.executable, "-m", "airflow_provider_mail"]


@pytest.fixture
def stored(emulator: Emulator, airflow_home: Path) -> Iterator[dict[str, Any]]:
    with application.stored(emulator) as fields:
        yield fields


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 700, "height": 500}, locale="en-US", color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    yield page
    context.close()


class Terminal:
    """A login that is running."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._seen = ""

    def address(self) -> str:
        """The address that it asks to open; it listens by now."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._seen += line
            if "Waiting" in line:
                (url,) = re.findall(r"https?://\S+/authorize\S+", self._seen)
                return str(url)
        raise AssertionError(self._seen)

    def end(self) -> tuple[int, str]:
        """Its status and all that it printed."""
        rest, _ = self._process.communicate()
        return self._process.returncode, self._seen + rest


@contextmanager
def login() -> Iterator[Terminal]:
    command = [*COMMAND, "oauth", "login", "--conn-id", CONN]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=ROOT, env=os.environ, text=True, **streams) as process:
        try:
            yield Terminal(process)
        finally:
            process.kill()


@pytest.mark.ci
def test_approved(page: Page, emulator: Emulator, stored: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.settings.oauth_token_seconds = 3 * 3600
    with login() as terminal:
        address = terminal.address()
        page.goto(address.replace("state=", "state=x"))  # forged
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("heading")).to_have_text("The login is not this one")
        assert emulator.journal.count("auth/oauth/token") == 0

        page.goto(address)
        expect(page.get_by_role("heading")).to_have_text("Allow access?")
        expect(page.locator("body")).to_contain_text(stored["client_id"])
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("heading")).to_have_text("The login was received")
        expect(page.locator("body")).to_contain_text("You can close this page and return to the terminal.")
        assert page.url.startswith(stored["redirect_uri"])
        status, printed = terminal.end()

    assert status == 0, printed
    assert f"The access token is stored in connection '{CONN}'; it is valid for another " in printed
    assert application.extra()["access_token"] not in printed
    assert stored["client_secret"] not in printed
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    assert MailHook(CONN).test_connection()[0]
    assert emulator.journal.entries()[-1]["auth"] == "oauth"
