"""The settings of every Airflow that the tests run, in this process or in others.

Airflow reads them when it is first imported, so the conftest.py at the root calls `install` before anything else.
"""

from __future__ import annotations

import atexit
import base64
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def settings(home: Path, database_url: str, dags_folder: Path) -> dict[str, str]:
    """Environment variables of an Airflow that lives in `home` and knows nothing of the user's own."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(48),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_url,
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
    }


def clean_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`environ` without the user's Airflow and proxies for loopback, able to import the project from a checkout."""
    clean = {name: value for name, value in environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
    clean["NO_PROXY"] = clean["no_proxy"] = "127.0.0.1,localhost"
    clean["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environ.get("PYTHONPATH")])])
    return clean


def install() -> Path:
    """Give this process an Airflow home of its own, gone when it ends.

    :return: the home; its database is made by the fixture `airflow_home` when a test asks for it.
    :raises RuntimeError: when Airflow was imported already, with whatever settings it found.
    """
    if "airflow" in sys.modules:
        raise RuntimeError("tests.support.env.install() must run before airflow is imported")
    home = Path(tempfile.mkdtemp(prefix="airflow-home-"))
    atexit.register(_remove, home, os.getpid())
    dags_folder = home / "dags"
    dags_folder.mkdir()
    environment = clean_environment() | settings(home, f"sqlite:///{home / 'airflow.db'}", dags_folder)
    os.environ.clear()
    os.environ.update(environment)
    return home


def _remove(home: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs the same exit handlers
        shutil.rmtree(home, ignore_errors=True)
