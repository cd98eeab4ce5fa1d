"""Operations through the hook, with both clients; the requests of all operations are in `tests/document`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.api import AddList, GetLists, ImportPlan, MailRequest, find_list
from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator


def send(hook: MailHook, request: MailRequest[Any]) -> Any:
    return hook.send(request)


def send_async(hook: MailHook, request: MailRequest[Any]) -> Any:
    async def carry_out() -> Any:
        async with await hook.get_async_conn() as client:
            return await client.send(request)

    return asyncio.run(carry_out())


@pytest.mark.parametrize("way", [send, send_async])
def test_requests_of_both_clients(hook: MailHook, emulator: Emulator, way: Callable[..., Any]) -> None:
    assert way(hook, AddList(list_name="customers", list_description="everybody")).code == 200
    assert [found.list_name for found in way(hook, GetLists(search="custom")).records] == ["customers"]
    added, read = emulator.journal.entries()
    assert (added["body"], added["auth"]) == ({"listName": "customers", "listDescription": "everybody"}, "api_key")
    assert read["body"] == {"search": "custom"}


def test_what_needs_several_requests(hook: MailHook, emulator: Emulator) -> None:
    emulator.add_campaigns(3, prefix="news", first_day="2026-01-01")
    assert hook.find_campaign("news-000001").mail_name == "news-000001"
    assert hook.find_campaign("news") is None
    batches = [[(f"{number}@example.com",) for number in range(first, first + 2)] for first in (0, 2, 4)]
    progress = hook.import_contacts(batches, ImportPlan(properties=("email",), list_name="vip"), on_reject=print)
    assert (progress.accepted, progress.requests) == (6, 3)
    assert hook.run(find_list("vip")).list_name == "vip"
    emails = {contact.email for contact in hook.iter_contacts("vip", page_size=4)}
    assert emails == {f"{number}@example.com" for number in range(6)}
