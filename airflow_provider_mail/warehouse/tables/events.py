"""The tables of pushed events (specification, "Events"), of what cannot be read, and of differences in their counts."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from airflow_provider_mail.warehouse.table import (
    BIGINT,
    BOOLEAN,
    CONNECTION,
    DATE,
    INTEGER,
    JSON,
    LAST_SEEN,
    TEXT,
    TIMESTAMP,
    Column,
    Table,
    text,
)

EVENTS = Table(
    comment="Events of mails as the mail service pushed them, each once; personal data",
    key=("mail_conn_id", "event_id"),
    indexes=(("mail_conn_id", "received_at"),),
    columns=(
        CONNECTION,
        Column("event_id", text(32), "Digest of what identifies the event: pushed again, it has the same"),
        Column("event_code", TEXT, "What happened: the code of the specification, or one that it does not have"),
        Column("triggered_time", TIMESTAMP, "When it happened", nullable=True),
        Column("submit_time", TIMESTAMP, "When the mail was submitted", nullable=True),
        Column("email", TEXT, "Address of the recipient", nullable=True),
        Column("event_type", TEXT, "Kind of mail, such as transactional, as the service writes it", nullable=True),
        Column("sender_email", TEXT, "Sender address", nullable=True),
        Column("sent_mail_list_name", TEXT, "List that the recipient was taken from", nullable=True),
        Column("unique_msg_id", TEXT, "Identifier of the mail", nullable=True),
        Column("guid", TEXT, "Identifier of the campaign", nullable=True),
        Column("mail_name", TEXT, "Name of the campaign", nullable=True),
        Column("receive_server", TEXT, "Mail server of the recipient", nullable=True),
        Column("ip", TEXT, "Address that the recipient opened or clicked from", nullable=True),
        Column("platform", TEXT, "Operating system there", nullable=True),
        Column("browser_type", TEXT, "Browser or mail program there", nullable=True),
        Column("raw", JSON, "The event with all its fields, also those without a column"),
        Column("received_at", TIMESTAMP, "When the push was received"),
        Column("push_id", BIGINT, "Number of the push in the inbox"),
        Column("push_index", INTEGER, "Position of the event in the push, from 0"),
    ),
    insert_only=True,
    counted_by="event_code",
)

DEAD_LETTERS = Table(
    comment="Pushed events that could not be read, with the reason; personal data",
    # It is read from letter to letter.
    key=("letter_id", "mail_conn_id"),
    indexes=(("received_at",),),
    columns=(
        CONNECTION,
        Column("letter_id", text(32), "Digest of account and text: pushed again, it has the same"),
        Column("reason", TEXT, "Why it could not be read, one of a few texts"),
        Column("raw", TEXT, "The event as text"),
        Column("received_at", TIMESTAMP, "When the push was received"),
        Column("push_id", BIGINT, "Number of the push in the inbox"),
        Column("push_index", INTEGER, "Position in the push, from 0"),
    ),
    insert_only=True,
    counted_by="reason",
)


EVENT_DIFFERENCES = Table(
    comment="Daily statistics of transactional mail, compared with the events that were received",
    key=("mail_conn_id", "stats_date", "counter"),
    columns=(
        CONNECTION,
        Column("stats_date", DATE, "Calendar day of the service"),
        Column("counter", text(40), "Counter of the service's statistics, such as sent_count"),
        Column("service_count", BIGINT, "What the service counted; null if its response leaves out the day", True),
        Column("events_least", BIGINT, "The smallest count that agrees with the events"),
        Column("events_most", BIGINT, "The largest count that agrees with the events"),
        Column(
            "difference",
            BIGINT,
            "service_count minus the nearest count that agrees: more than 0 if events are missing, less if there are "
            "too many; null without service_count",
            True,
        ),
        Column(
            "at_edges",
            BIGINT,
            "Mails in this range that may belong to the day before or after: no event tells when they were sent",
            True,
        ),
        Column("tolerated", BOOLEAN, "Whether the difference is within the tolerance of the comparison"),
        Column("counted_on", TEXT, "Day to which events counted: that of the sending (send) or their own (event)"),
        Column("time_zone", TEXT, "Time zone in which the day begins"),
        LAST_SEEN,
    ),
)


class EventCounts(NamedTuple):
    """How often events of some codes were received.

    :param mails: the number of mails with such an event; a mail has one recipient.
    """

    mails: int
    events: int


Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Rule:
    """How events determine one counter.

    :param codes: the codes that are counted, of which each mail counts once.
    :param repeated: whether the service may count each event instead of each mail.
    :param partly: whether the service counts only some of these mails, and the events do not show which.
    """

    codes: tuple[str, ...]
    repeated: bool = False
    partly: bool = False

    def spans(self, of_day: EventCounts, maybe_earlier: EventCounts, maybe_later: EventCounts) -> tuple[Span, ...]:
        """Return the smallest and the largest count that agree with the events, for each way to count.

        A count between two ways agrees with neither: the service counts in one of them. The day of a mail is not known
        exactly if no event has the time at which it was sent.

        :param maybe_earlier: those of the day's events that may belong to the day before: early, and of such a mail.
        :param maybe_later: those of the day after it that may belong to this one.
        """
        numbers = zip(of_day, maybe_earlier, maybe_later, strict=True)
        mails, events = ((count - earlier, count + later) for count, earlier, later in numbers)
        if self.partly:
            return ((0, mails[1]),)
        return (mails, events) if self.repeated else (mails,)


RULES: Mapping[str, Rule] = {
    # A mail that was sent ends as delivered or as bounced, or as both one after the other.
    "sent_count": Rule(("Delivered", "Bounced")),
    # The specification does not show whether a mail that is opened twice counts twice.
    "open_count": Rule(("Opened",), repeated=True),
    "click_count": Rule(("Clicked",), repeated=True),
    # The statistics count soft bounces; the events do not show which bounces are soft.
    "bounce_count": Rule(("Bounced",), partly=True),
    "unsent_count": Rule(("Dropped",)),
    "unsubscribe_count": Rule(("Unsubscribed",)),
}
"""By the counter of the statistics. Spam reports have no counter."""


@dataclass(frozen=True)
class Difference:
    """The comparison of one counter on one day.

    :param service_count: what the service counted; ``None`` if its response leaves out the day.
    :param spans: the smallest and the largest count that agree with the events, for each way to count.
    :param at_edges: mails that may belong to either side of an edge of the day: no event has their time of sending.
    """

    stats_date: datetime.date
    counter: str
    service_count: int | None
    spans: tuple[Span, ...]
    at_edges: int = 0

    @property
    def least(self) -> int:
        return self.spans[0][0]

    @property
    def most(self) -> int:
        return self.spans[-1][1]

    @property
    def difference(self) -> int | None:
        """The distance of the service's count from the nearest one that agrees: more than 0 if events are missing."""
        if self.service_count is None:
            return None
        count = self.service_count
        distances = (count - min(max(count, least), most) for least, most in self.spans)
        return min(distances, key=abs)

    def is_tolerated(self, tolerance: int, tolerance_fraction: float) -> bool:
        """A day that the service leaves out is compared as if the service had counted nothing."""
        distance = self.least if self.difference is None else abs(self.difference)
        return distance <= max(tolerance, tolerance_fraction * (self.service_count or 0))

    def __str__(self) -> str:
        ways = [str(least) if least == most else f"{least} to {most}" for least, most in dict.fromkeys(self.spans)]
        events = " or ".join(ways) + (f" ({self.at_edges} at the edges of the day)" if self.at_edges else "")
        service = "no record" if self.service_count is None else self.service_count
        difference = "" if self.difference is None else f" ({self.difference:+})"
        return f"{self.stats_date} {self.counter}: service {service}, events {events}{difference}"

    def row(self, mail_conn_id: str, *others: Any) -> tuple[Any, ...]:
        """Build a row of `EVENT_DIFFERENCES`.

        :param others: the values of the columns behind `at_edges`.
        """
        counts = (self.service_count, self.least, self.most, self.difference, self.at_edges)
        return (mail_conn_id, self.stats_date, self.counter, *counts, *others)
