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
    """

    path: str
    label: str
    tables: Sequence[str] = ()
    shows: str = ""
    cure: str = ""
    guide: str = ""

    def has_data(self, reader: Reader) -> bool:
        if self.label == "Events" and configured_inbox() is not None:
            return True
        return not self.tables or any(map(reader.has, self.tables))


SECTIONS = (
    Section("./", "Overview"),
    Section(
        "campaigns", "Campaigns", ("campaign_stats", "campaigns"),
        "Every mass mail: when it was sent, and how many people opened and clicked.",
        "Add MailCampaignStatsToSqlOperator to a DAG, and MailCampaignsToSqlOperator for subjects and for what is "
        "scheduled.", "statistics.html",
    ),
    Section(
        "lists", "Lists", ("contacts",), "How many people are on each list, and how the lists grow.",
        "Add MailContactsToSqlOperator to a DAG.", "warehouse.html#contacts-of-a-list",
    ),
    Section(
        "transactional", "Transactional", ("transactional_stats",),
        "Receipts, password mails and the like: how many were sent, opened and bounced each day.",
        "Add MailTransactionalStatsToSqlOperator to a DAG.", "statistics.html",
    ),
    Section(
        "loads", "Loads", ("loads", "campaigns"), "How old the numbers on this page are, and which days are missing.",
        "It comes with the first numbers that a DAG loads.", "statistics.html",
    ),
    Section(
        "imports", "Imports", ("imports",),
        "How many people each import brought in, and which rows were rejected and why.",
        "Set [mail] imports_conn_id to the connection of this page. The next import appears here.",
        "warehouse.html#imports",
    ),
    Section(
        "audiences", "Audiences", ("audience_runs",), "Who joined and left the people that a campaign is for.",
        "Import them with changes_only and a log table.", "audiences.html#what-changed-and-when",
    ),
    Section(
        "events", "Events", ("events", "dead_letters", "event_differences"),
        "What happened to single mails, minutes after it happened: delivered, opened, bounced.",
        "Run the receiver, and add MailEventsToSqlOperator to a DAG.", "events.html",
    ),
    Section("waits", "Waits"),
)  # fmt: skip


def menu(reader: Reader) -> Sequence[Section]:
    """Return the parts that have data, and where some have none, the page about those."""
    shown = [section for section in SECTIONS if section.has_data(reader)]
    return shown if len(shown) == len(SECTIONS) else [*shown, Section("more", "More")]
