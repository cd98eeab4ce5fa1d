"""Fixtures of the tests of tasks, in real time."""

from tests.tasks.conftest import (  # noqa: F401 - fixtures
    _made_once,
    _mail_default,
    connect,
    errors,
    make_database,
    new_dag,
    run,
    run_with,
    warehouse,
)
from tests.tasks.test_metrics import statsd  # noqa: F401 - a fixture
