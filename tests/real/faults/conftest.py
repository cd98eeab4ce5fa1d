"""The fixtures of the fault matrix, for the soak."""

from tests.faults.conftest import trial

__all__ = ["trial"]
