"""Clients of both kinds."""

from tests.api.conftest import client, connect, pytest_generate_tests, wire

__all__ = ["client", "connect", "pytest_generate_tests", "wire"]
