"""What tests of audiences need of the package's private parts."""

from airflow_provider_mail._task.audience_files import FileStateStore
from airflow_provider_mail._task.audience_lines import Matcher
from airflow_provider_mail._task.audience_members import Members, Part, parts_of
from airflow_provider_mail._task.audience_state import SqlStateStore, StateChangedError

__all__ = ["FileStateStore", "Matcher", "Members", "Part", "SqlStateStore", "StateChangedError", "parts_of"]
