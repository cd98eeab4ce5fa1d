"""Run a company's email from Apache Airflow."""

from __future__ import annotations

__version__ = "0.1.0"
