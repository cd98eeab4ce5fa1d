"""The clients of the tests of `tests.api`."""

from tests.api.conftest import client, connect, wire

__all__ = ["client", "connect", "wire"]
