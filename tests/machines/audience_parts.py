"""What the machine of audiences needs of the package's private parts."""

from airflow_provider_mail._task.audience_files import FileStateStore
from airflow_provider_mail._task.audience_state import SqlStateStore, StateChangedError

__all__ = ["FileStateStore", "SqlStateStore", "StateChangedError"]
