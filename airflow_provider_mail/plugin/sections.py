"""The parts of the page: those that have data are in the menu, the others on one page that says how to have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from airflow_provider_mail._config import configured_inbox
from airflow_provider_mail.plugin.reader import Reader


class Section(NamedTuple):
    """A part of the page.

    :param tables: what it shows; one of them is enough.
    :param shows: what it answers, for a person who does not know the tables.
    :param guide: the page of the documentation that says how to have it.
    """

    path: str
    label: str
    tables: Sequence[str] = ()
    shows: str = ""
    guide: str = ""

    def has_data(self, reader: Reader) -> bool:
        if self.label == "Activity" and configured_inbox() is not None:
            return True
        return not self.tables or any(map(reader.has, self.tables))


SECTIONS = (
    Section("./", "Overview"),
    Section(
        "campaigns", "Campaigns", ("campaign_stats", "campaigns"),
        "Every mass mail: when it was sent, and how many people opened and clicked.", "statistics.html",
    ),
    Section(
        "lists", "Lists", ("contacts",), "How many people are on each list, and how the lists grow.",
        "warehouse.html#contacts-of-a-list",
    ),
    Section(
        "transactional", "Transactional mail", ("transactional_stats",),
        "Receipts, password mails and the like: how many were sent, opened and bounced each day.", "statistics.html",
    ),
    Section(
        "loads", "Data age", ("loads", "campaigns"),
        "How old the numbers on this page are, and which days are missing.", "statistics.html",
    ),
    Section(
        "imports", "Imports", ("imports",),
        "How many people each import brought in, and how many were rejected and why.", "warehouse.html#imports",
    ),
    Section(
        "audiences", "Audiences", ("audience_runs",),
        "How many people a campaign is for, and how many of them joined and left.",
        "audiences.html#what-changed-and-when",
    ),
    Section(
        "events", "Activity", ("events", "dead_letters", "event_differences"),
        "What happened to single mails, minutes after it happened: delivered, opened, bounced.",
        "events.html",
    ),
    Section("waits", "Waiting"),
)  # fmt: skip


def menu(reader: Reader) -> Sequence[Section]:
    """Return the parts that have data, and where some have none, the page about those."""
    shown = [section for section in SECTIONS if section.has_data(reader)]
    return shown if len(shown) == len(SECTIONS) else [*shown, Section("more", "More")]
