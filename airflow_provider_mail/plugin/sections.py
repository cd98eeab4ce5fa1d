"""The parts of the page: those that have data are in the menu, the others on one page that says how to have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from airflow_provider_mail._config import configured_inbox
from airflow_provider_mail.plugin.reader import Reader


class Section(NamedTuple):
    """A part of the page.

    :param title: its heading.
    :param shows: what it answers, for a person who does not know the tables.
    :param tables: what it shows; one of them is enough.
    :param empty: what it says where they have no rows.
    :param guide: the page of the documentation that says how to have it.
    """

    path: str
    label: str
    title: str = ""
    shows: str = ""
    tables: Sequence[str] = ()
    empty: str = ""
    guide: str = ""

    def has_data(self, reader: Reader) -> bool:
        if self.label == "Activity" and configured_inbox() is not None:
            return True
        return not self.tables or any(map(reader.has, self.tables))


OF_CAMPAIGNS = Section("campaigns", "Campaigns")
"""That to which the pages of single campaigns belong."""

MORE = Section("more", "More")
SECTIONS = (
    Section("./", "Overview"),
    Section(
        "campaigns", "Campaigns", "Campaigns",
        "Every mass mail: when it was sent, and how many people opened and clicked.",
        ("campaign_stats", "campaigns"), "", "statistics.html",
    ),
    Section(
        "lists", "Lists", "Lists", "How many people are on each list, and how the lists grow.",
        ("contacts",), "There are no contacts yet.", "warehouse.html#contacts-of-a-list",
    ),
    Section(
        "transactional", "Transactional mail", "Transactional mail by day",
        "Receipts, password mails and the like: how many were sent, opened and bounced each day.",
        ("transactional_stats",), "There are no numbers yet.", "statistics.html",
    ),
    Section(
        "loads", "Data age", "How old the numbers are",
        "How old the numbers on this page are, and which days are missing.",
        ("loads", "campaigns"), "There are no numbers yet.", "statistics.html",
    ),
    Section(
        "imports", "Imports", "Imports of contacts",
        "How many people each import brought in, and how many were rejected and why.",
        ("imports",), "Nobody was imported yet.", "warehouse.html#imports",
    ),
    Section(
        "audiences", "Audiences", "Audiences",
        "How many people a campaign is for, and how many of them joined and left.",
        ("audience_runs",), "There is no audience yet.", "audiences.html#what-changed-and-when",
    ),
    Section(
        "events", "Activity", "Activity of the last seven days",
        "What happened to single mails, minutes after it happened: delivered, opened, bounced.",
        ("events", "dead_letters", "event_differences"), "Nothing was reported.", "events.html",
    ),
    Section(
        "waits", "Waiting", "What is waiting", "What Airflow waits for before it continues.",
        (), "Nothing waits.", "waiting.html",
    ),
)  # fmt: skip


def menu(reader: Reader) -> Sequence[Section]:
    """Return the parts that have data, and where some have none, the page about those."""
    shown = [section for section in SECTIONS if section.has_data(reader)]
    return shown if len(shown) == len(SECTIONS) else [*shown, MORE]
