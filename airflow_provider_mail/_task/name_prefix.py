"""The prefix that distinguishes the default names of two Airflow deployments on one account.

The provider information imports this module: keep it cheap.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.webhook.settings import setting

NAME_OPTIONS: dict[str, dict[str, Any]] = {
    "name_prefix": {
        "description": "What the default names of campaigns begin with, and what the default ids of transactional "
        "messages and notifications are made of, before dag id, task id and run id; the tokens of the receiver carry "
        "it, too. Set it where two Airflow deployments with the same dag ids use one account of the service, or two "
        "deployments one inbox: each takes the other's campaigns and tokens for its own otherwise. A change concerns "
        "runs that are not finished: their cleared tasks do not find what they created.",
        "type": "string",
        "default": "",
        "example": "production",
    },
}


def name_prefix() -> str:
    """Return the prefix with its separator, which dag ids cannot contain; empty if none is set."""
    prefix = setting("name_prefix", NAME_OPTIONS)
    return f"{prefix}:" if prefix else ""
