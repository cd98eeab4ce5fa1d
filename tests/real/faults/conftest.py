"""The fixtures of the fault matrix."""

from tests.faults.conftest import flow_trial, passing, soak_trial, tally, task_trial

__all__ = ["flow_trial", "passing", "soak_trial", "tally", "task_trial"]
