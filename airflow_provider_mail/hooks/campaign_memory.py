"""What a task remembers of a campaign that the service kept although creating it failed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_mail.api.creation import Memory
from airflow_provider_mail.hooks.ledger import Ledger, task_ledger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

LEDGER_KEY = "airflow_provider_mail.campaign"

VERSION = 1

NO_MEMORY = (
    "This Airflow has no task state store (3.3 has), so another try cannot know that what it finds may be incomplete"
)

log = logging.getLogger(__name__)


class CampaignMemory(Memory):
    """In the task's ledger: a try that follows a crash must not take an incomplete campaign for a whole one.

    It is written when code 500 comes and when a whole campaign is created after all, so as a rule never. A failure to
    write does not keep this try from dealing with the campaign; only a later one may be misled, and the log says so.

    :param mail_name: the campaign's; what is remembered of another name does not count.
    """

    def __init__(self, ledger: Ledger, mail_name: str) -> None:
        self._ledger = ledger
        self._mail_name = mail_name
        record = ledger.read()
        self._written = record is not None
        self.incomplete = self._written and _incomplete_name(record) in (mail_name, _UNKNOWN)

    @property
    def durable(self) -> bool:
        """Whether a later try will know."""
        return self._ledger.durable

    def remember(self) -> None:
        """Write the name down."""
        if not self.incomplete:
            super().remember()
            self._write(self._mail_name)

    def forget(self) -> None:
        """Strike the name out."""
        super().forget()
        if self._written:
            self._write(None)

    def _write(self, incomplete: str | None) -> None:
        self._written = True
        if not self._ledger.durable:
            log.warning("Creating campaign %r was answered with code 500. %s.", self._mail_name, NO_MEMORY)
            return
        from airflow.sdk.exceptions import AirflowRuntimeError

        try:
            self._ledger.write({"version": VERSION, "incomplete": incomplete})
        except AirflowRuntimeError as error:
            log.error(
                "The task state could not be written (%s): a later try will take campaign %r for %s.",
                error,
                self._mail_name,
                "whole" if incomplete else "incomplete",
            )


def task_memory(context: Context, mail_name: str) -> CampaignMemory:
    """The memory of a task instance."""
    return CampaignMemory(task_ledger(context, LEDGER_KEY), mail_name)


_UNKNOWN = object()


def _incomplete_name(record: object) -> object:
    """The name of a campaign that is incomplete, if one is; what is not understood may mean any."""
    understood = isinstance(record, dict) and record.keys() == {"version", "incomplete"}
    if not understood or record["version"] != VERSION:  # type: ignore[index]
        return _UNKNOWN
    return record["incomplete"]  # type: ignore[index]
