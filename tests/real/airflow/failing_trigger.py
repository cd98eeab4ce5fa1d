"""A trigger that ends its task as failed, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskFailedEvent, TriggerEvent


class FailingTrigger(BaseTrigger):
    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (f"{__name__}.FailingTrigger", {})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(3)
        yield TaskFailedEvent()
