"""What tests of audiences need of the package's private parts."""

from airflow_provider_mail._audience.comparison import Matcher
from airflow_provider_mail._audience.members import Members, Part, parts_of
from airflow_provider_mail._audience.store import FileStateStore, SqlStateStore, StateChangedError

__all__ = ["FileStateStore", "Matcher", "Members", "Part", "SqlStateStore", "StateChangedError", "parts_of"]
