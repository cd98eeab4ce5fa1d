"""The private parts of operators that tests look into, arguments, errors and metrics: only this module knows where."""

from __future__ import annotations

from airflow_provider_mail import _metrics
from airflow_provider_mail._task.checks import (  # noqa: F401
    checked,
    declared,
    unwrap,
)
from airflow_provider_mail._task.mixin import AirflowErrors  # noqa: F401
from airflow_provider_mail._task.mixin import log as errors_log  # noqa: F401
from airflow_provider_mail._task.rules import ARGUMENTS, SEEN_ARGUMENTS  # noqa: F401
from airflow_provider_mail.api._core.fields import without_addresses  # noqa: F401


def forget_metrics() -> None:
    """Let metrics look again whether they are on, and warn again."""
    _metrics._is_on.cache_clear()
    _metrics._warn.cache_clear()
