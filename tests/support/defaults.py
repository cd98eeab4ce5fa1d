"""Other defaults of arguments while a test runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def set_default(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], argument: str, value: object) -> None:
    """Change the default of a keyword-only argument, also for modules that have imported the function already."""
    defaults = function.__kwdefaults__
    assert argument in defaults
    monkeypatch.setitem(defaults, argument, value)
