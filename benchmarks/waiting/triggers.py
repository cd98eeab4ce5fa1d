"""The triggers of the benchmark, which note when they fire in the file ``$BENCHMARK_FIRED``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from airflow.providers.http.hooks.http import HttpAsyncHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from benchmarks.waiting.service import FINISHED, campaign_name


def _note() -> None:
    with Path(os.environ["BENCHMARK_FIRED"]).open("a") as file:
        file.write(f"{time.time()}\n")


class Ours(MailCampaignTrigger):
    """The provider's trigger."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async for event in super().run():
            _note()
            yield event


class _Waiting(BaseTrigger):
    def __init__(self, mail_conn_id: str, mail_name: str, poke_interval: float) -> None:
        super().__init__()
        self.mail_conn_id = mail_conn_id
        self.mail_name = mail_name
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        trigger_class = type(self)
        arguments = {name: getattr(self, name) for name in ("mail_conn_id", "mail_name", "poke_interval")}
        return f"{trigger_class.__module__}.{trigger_class.__qualname__}", arguments


class Sleeping(_Waiting):
    """The lower bound: checks whether the service's file exists, and polls nothing."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        sent = Path(os.environ["BENCHMARK_SENT"])
        while self.mail_name >= campaign_name(FINISHED) or not sent.exists():
            await asyncio.sleep(self.poke_interval)
        _note()
        yield TriggerEvent({"mail_name": self.mail_name})


class HttpHook(_Waiting):
    """What users write: the official hook, and a request for each wait."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        hook = HttpAsyncHook(method="POST", http_conn_id="http_default")
        while True:
            await asyncio.sleep(self.poke_interval)
            async with aiohttp.ClientSession() as session:
                response = await hook.run(session, "v5/campaign/mail/get", json={"mailName": self.mail_name})
                campaign = (await response.json())["mailList"][0]
            self.log.info("campaign %r: mailStatus %s", self.mail_name, campaign["mailStatus"])
            if campaign["mailStatus"] == 2:
                break
        _note()
        yield TriggerEvent(campaign["mailStats"])
