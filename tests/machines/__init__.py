"""State machines of Hypothesis: a flow against a service that changes and fails, beside a model of it."""

from typing import Any

Fault = tuple[str, dict[str, Any]]
UNCLEAR: list[Fault] = [
    ("close_before", {}),
    ("reset_after", {}),
    ("http_error_before", {"status": 503}),
    ("http_error_after", {}),
    ("code_after", {"code": 500}),
    ("html_after", {}),
    ("cut_json", {}),
    ("empty_body", {}),
]
"""Faults after which it is not known whether the service has carried out the request."""
REJECTED_KEY: Fault = ("code_before", {"code": 401, "http_status": 401})
