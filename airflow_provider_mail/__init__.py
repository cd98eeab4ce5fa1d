"""Run a company's email from Apache Airflow."""

from __future__ import annotations

from typing import Literal, TypeAlias

__version__ = "0.1.0"

# Here, since an operator and `api` need it at run time: a DAG file must not import `api`, nor `api` an operator.
OnIncomplete: TypeAlias = Literal["cancel", "keep", "fail"]
"""What to do with a campaign that the service kept although creating it failed: cancel it and fail; continue with it if
it is or will be sent; or leave it and fail."""
