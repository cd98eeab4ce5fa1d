"""What tests of audiences need of the package's private parts."""

from airflow_provider_mail._audience.store import StateChangedError, StateStore

__all__ = ["StateChangedError", "StateStore"]
