"""Airflow's version, and names whose module differs between versions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow import __version__

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        BaseHook,
        Stats,
        XCom,
        conf,
        mask_secret,
        redact,
    )

__all__ = [
    "AIRFLOW_V_3_1_PLUS",
    "AIRFLOW_V_3_2_PLUS",
    "AIRFLOW_V_3_3_PLUS",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "BaseHook",
    "Stats",
    "XCom",
    "conf",
    "mask_secret",
    "redact",
]

_VERSION = tuple(int(part) for part in __version__.split(".")[:2])

AIRFLOW_V_3_1_PLUS = _VERSION >= (3, 1)
AIRFLOW_V_3_2_PLUS = _VERSION >= (3, 2)
AIRFLOW_V_3_3_PLUS = _VERSION >= (3, 3)

_EXCEPTIONS = ("airflow.sdk.exceptions", "airflow.exceptions")
_MASKER = ("airflow.sdk.log", "airflow.sdk._shared.secrets_masker", "airflow.sdk.execution_time.secrets_masker")
_HOMES = {
    "AirflowException": _EXCEPTIONS,
    "AirflowFailException": _EXCEPTIONS,
    "AirflowNotFoundException": _EXCEPTIONS,
    "AirflowSensorTimeout": _EXCEPTIONS,
    "AirflowSkipException": _EXCEPTIONS,
    "BaseHook": ("airflow.sdk", "airflow.hooks.base"),
    # Since Airflow 3.2, `airflow.stats` is deprecated, and tasks have their own copy.
    "Stats": ("airflow.sdk.observability.stats", "airflow.stats"),
    "XCom": ("airflow.sdk.execution_time.xcom", "airflow.models.xcom"),
    "conf": ("airflow.sdk.configuration", "airflow.configuration"),
    "mask_secret": _MASKER,
    "redact": _MASKER,
}
"""Modules to try when `common.compat` lacks a name: its releases in the published constraints of Airflow 3.0
have no `sdk` module, and those of 3.1 and 3.2 lack some names."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in ("airflow.providers.common.compat.sdk", *_HOMES[name]):
        try:
            value = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
        globals()[name] = value
        return value
    raise ImportError(f"{name}: not found in Airflow {__version__}")
