"""The webhook configuration becomes what is wanted, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailConflictError, MailValidationError
from airflow_provider_mail.api.flows.configure_webhook import configure_webhook
from airflow_provider_mail.api.webhooks import GetWebhook, SaveWebhook
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver
from tests.support.sampling import examples

SAVE = "webhook/save"
A, B = "https://a.example/hook", "https://b.example/hook"


def configure(client: Driver, **fields: Any) -> list[str]:
    return client.run(configure_webhook(SaveWebhook(**fields)))


def test_only_what_differs_is_sent(emulator: Emulator, client: Driver) -> None:
    wanted: dict[str, Any] = {"trans_event": {"opened": True}, "trans_callback_url": A, "trans_enable": True}
    assert configure(client, **wanted) == ["trans_event.opened", "trans_callback_url", "trans_enable"]
    assert configure(client, **wanted) == []
    assert configure(client, **wanted | {"trans_callback_url": B}) == ["trans_callback_url"]
    assert configure(client, trans_enable=False) == ["trans_enable"], "false is a value, absent is none"
    assert [entry["body"] for entry in emulator.journal.entries(SAVE)] == [
        {"transEvent": {"opened": True}, "transCallbackUrl": A, "transEnable": True},
        {"transCallbackUrl": B},
        {"transEnable": False},
    ]


SENDERS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", A, B]))


@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(before=SENDERS, wanted=SENDERS, mode=st.sampled_from(["save", "replace"]))
def test_callbacks_of_senders(
    before: dict[str, str], wanted: dict[str, str], mode: str, emulator: Emulator, client: Driver
) -> None:
    def extra(by_sender: dict[str, str], mode: str) -> dict[str, Any]:
        callbacks = [{"sender": sender, "url": url} for sender, url in by_sender.items()]
        return {"trans_callback_url_extra": callbacks, "trans_callback_url_extra_update_mode": mode}

    client.send(SaveWebhook(**extra(before, "replace")))
    saves = emulator.journal.count(SAVE)
    configure(client, **extra(wanted, mode))

    existing = {sender: url for sender, url in before.items() if url}
    merged = {**(existing if mode == "save" else {}), **wanted}
    expected = {sender: url for sender, url in merged.items() if url}
    assert {callback.sender: callback.url for callback in client.send(GetWebhook()).callbacks} == expected
    assert emulator.journal.count(SAVE) - saves == (expected != existing)


def test_mistakes_and_what_was_not_saved_are_named(emulator: Emulator, client: Driver) -> None:
    with pytest.raises(MailValidationError, match="nothing to save"):
        configure(client)
    configure(client, trans_callback_url=A, trans_enable=True)
    # The service reports success and saves nothing.
    emulator.faults.add("code_before", SAVE, code=200, message="", http_status=200)
    with pytest.raises(MailConflictError, match="these fields read back differently: trans_callback_url") as raised:
        configure(client, trans_callback_url=B)
    assert B not in str(raised.value)
