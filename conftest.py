"""Comes before every other conftest: no test may import Airflow with the settings of the machine that it runs on."""

import signal

from tests.support import env

env.install()

# A run that is told to end tears its fixtures down, and with them the processes that it started.
signal.signal(signal.SIGTERM, signal.default_int_handler)

pytest_plugins = [
    "tests.support.fixtures",
    "tests.support.browser",
    "tests.support.one_airflow",
    "tests.support.warehouses.fixtures",
]
