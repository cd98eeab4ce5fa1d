"""Comes before every other conftest: no test may import Airflow with the settings of the machine that it runs on."""

import signal
from pathlib import Path

import pytest

from tests.support import env

env.install()

# A run that is told to end tears its fixtures down, and with them the processes that it started.
signal.signal(signal.SIGTERM, signal.default_int_handler)

pytest_plugins = [
    "tests.support.fixtures",
    "tests.support.browser",
    "tests.support.one_airflow",
]

ON_REQUEST = tuple(Path(__file__).parent / "tests" / name for name in ("real", "real/extra"))
"""Tests in processes of their own, and among them those that need more than the environment of the others."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect these folders only for who names them, or a file in them."""
    if collection_path not in ON_REQUEST:
        return None
    named = (Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args)
    return None if any(path.is_relative_to(collection_path) for path in named) else True
