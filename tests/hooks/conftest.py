"""Connections where Airflow looks for them, and the hooks on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_mail._polling.inbox import InboxReader  # noqa: F401
from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator

API_KEY = "key-of-the-tests"


@pytest.fixture
def make_hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., MailHook]]:
    """A hook on a connection given as a URI, or by its fields, which become JSON in the environment."""
    hooks: list[MailHook] = []

    def make(uri: str | None = None, *, conn_id: str = "mail_test", **fields: Any) -> MailHook:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", uri or json.dumps({"conn_type": "mail", **fields}))
        hooks.append(MailHook(conn_id))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


@pytest.fixture
def hook(make_hook: Callable[..., MailHook], emulator: Emulator) -> MailHook:
    """A hook on a connection to the emulator."""
    return make_hook(host=emulator.base_url, password=emulator.api_key)
