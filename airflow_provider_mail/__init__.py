"""Run a company's email from Apache Airflow."""

__version__ = "0.1.0"
