"""What tests of audiences need of the package's private parts."""

from airflow_provider_mail._audience import people
from airflow_provider_mail._audience.compared import STORE_KEY, ComparedAudience
from airflow_provider_mail._audience.state import AudienceState
from airflow_provider_mail._audience.store import StateChangedError, StateStore
from airflow_provider_mail._task.storage import sql_hook

__all__ = ["STORE_KEY", "AudienceState", "ComparedAudience", "StateChangedError", "StateStore", "forget"]


def forget(sql_conn_id: str, email: str) -> dict[str, str]:
    """Take a person out of the audiences of a database."""
    return people.forget(StateStore(sql_hook(sql_conn_id), "mail_audiences"), email)
