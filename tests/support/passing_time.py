"""Pauses that cost nothing: who sleeps makes the clock jump, so that hundreds of retries fit into a second.

Only the pauses of the package and of Airflow's sensors are cut short; what the emulator delays, and time-outs, pass in
real time.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
import time
from types import ModuleType
from typing import Any

import pytest
from airflow.sdk import BaseSensorOperator

from airflow_provider_mail.api._core.exchange import Exchange
from airflow_provider_mail.api._core.interrupt import Interrupt
from benchmarks.parse_time import modules_below
from tests.support.defaults import set_default

_IMPORTED_LATE = ("api", "_task", "_polling", "sensors", "triggers", "operators")

# Responses that come too slowly are judged by real time.
_REAL = (
    "airflow_provider_mail.emulator",
    "airflow_provider_mail.api._core.responses",
    "airflow_provider_mail.api._core.network",
)


class PassingTime:
    """Real time, plus all that was slept."""

    def __init__(self) -> None:
        self.skipped = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped

    def time(self) -> float:
        return time.time() + self.skipped

    def sleep(self, seconds: float) -> None:
        """Who sleeps beside others wakes at the moment that was meant: their pauses do not add up."""
        until = self.monotonic() + seconds
        with self._lock:
            self.skipped = max(self.skipped, until - time.monotonic())
        time.sleep(0)

    async def sleep_in_loop(self, seconds: float) -> None:
        self.sleep(seconds)
        await asyncio.sleep(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the modules of the package live in this time, also those that are imported only while a task runs.

        One that lived in real time would wait for ever for what others see pass.
        """
        for name in modules_below(*_IMPORTED_LATE):
            importlib.import_module(name)
        loop = _LoopTime(self)
        for name, module in list(sys.modules.items()):
            ours = name.startswith("airflow_provider_mail.") and not name.startswith(_REAL)
            if ours or name == BaseSensorOperator.__module__:
                for attribute, value in list(vars(module).items()):
                    if value is time:
                        monkeypatch.setattr(module, attribute, self)
                    elif value is asyncio and name == "airflow_provider_mail.api.client":
                        monkeypatch.setattr(module, attribute, loop)

        def sleep(interrupt: Interrupt, seconds: float) -> None:
            self.sleep(seconds)
            interrupt.check()

        monkeypatch.setattr(Interrupt, "sleep", sleep)
        set_default(monkeypatch, Exchange.__init__, "clock", self.monotonic)


class _LoopTime(ModuleType):
    """The module asyncio with another sleep."""

    def __init__(self, passing: PassingTime) -> None:
        super().__init__("asyncio")
        self.sleep = passing.sleep_in_loop

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)
