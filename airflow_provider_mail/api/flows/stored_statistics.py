"""Campaign statistics that are too many for memory: one answer in a file, gone through as often as it is loaded.

What is certain costs little: records of the documented form, each campaign once, all in the window, as many as the
service says. Whatever is doubtful ends in `StatsInDoubt`, and :meth:`StoredStats.make_whole` then settles it as
:func:`~airflow_provider_mail.api.flows.statistics.campaign_stats` does, in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Annotated, TypeAlias

import msgspec
import pydantic_core
from msgspec import Meta

from airflow_provider_mail.api._core.list_file import ListFile
from airflow_provider_mail.api.campaigns import CampaignStats, CampaignStatsResponse, GetCampaignStats
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailAnswerError
from airflow_provider_mail.api.flows.statistics import campaign_stats, checked

# Narrower than what is read in the end: what does not fit in here `CampaignStats` decides on.
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
_Millis: TypeAlias = Annotated[int, Meta(ge=1, le=253_402_300_799_999)]


class PlainStats(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """What `CampaignStats` is, of a record that says everything in the documented form."""

    mail_name: str
    sent_at: _Millis = msgspec.field(name="mailSendDate")
    sent_count: _Count
    open_count: _Count
    click_count: _Count
    hard_bounce: _Count
    soft_bounce: _Count
    unsent_count: _Count
    unsubscribe_count: _Count

    @property
    def mail_send_date(self) -> datetime:
        """When the campaign was sent."""
        return datetime.fromtimestamp(self.sent_at / 1000, UTC)


Records: TypeAlias = list[PlainStats] | list[CampaignStats]

_EPOCH = date(1970, 1, 1).toordinal()
_DAY_MILLIS = 86_400_000

_decode = msgspec.json.Decoder(list[PlainStats]).decode


class StatsInDoubt(Exception):
    """The answer is short, or not what it should be; nothing that came of it may be kept."""


class StoredStats:
    """The statistics of a window, asked for when this is made. Closing it removes the file.

    :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
    """

    def __init__(self, client: MailClient, request: GetCampaignStats) -> None:
        self._client = client
        self._request = request
        # As `checked` has it: up to a day outside of the window.
        self._first_millis = (request.start_date.toordinal() - 1 - _EPOCH) * _DAY_MILLIS
        self._end_millis = (request.end_date.toordinal() + 2 - _EPOCH) * _DAY_MILLIS
        self._found: list[CampaignStats] | None = None
        self._file = ListFile("mailStatsList")
        try:
            self._answer = client.send(request, into=self._file)
            if not self._file.holds_list:
                self._found = client.run(campaign_stats(request, self._answer))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Records]:
        """The records, some at a time.

        :raises StatsInDoubt: perhaps after many records, and not again after :meth:`make_whole`.
        """
        if self._found is not None:
            yield self._found
            return
        # Hashes take a fraction of what names take; two names with the same one are a doubt like any other.
        names: set[int] = set()
        count = 0
        try:
            for records in self._file.read(self._decoded):
                count += len(records)
                names.update([hash(record.mail_name) for record in records])
                if len(names) < count:
                    raise StatsInDoubt
                yield records
        except (ValueError, MailAnswerError):
            raise StatsInDoubt from None
        if count < (self._answer.total_records or 0):
            raise StatsInDoubt

    def make_whole(self) -> None:
        """Settle a doubt: read the answer in memory, and ask for what it lacks.

        :raises MailError: as :func:`~airflow_provider_mail.api.flows.statistics.campaign_stats` does.
        """
        answer: CampaignStatsResponse | None
        try:
            answer = self._request.read(pydantic_core.from_json(self._file.whole(), allow_inf_nan=False))
        except (ValueError, MailAnswerError):
            answer = None  # asked for again, as after any answer that cannot be read
        self._found = self._client.run(campaign_stats(self._request, answer))

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _decoded(self, array: bytes) -> Records:
        array.decode()  # what is skipped as unknown is not looked at
        try:
            records = _decode(array)
        except (msgspec.DecodeError, RecursionError):
            answer = self._request.read({"mailStatsList": pydantic_core.from_json(array, allow_inf_nan=False)})
            return list(checked(self._request, answer).values())
        first, end = self._first_millis, self._end_millis
        if not all(first <= record.sent_at < end for record in records):
            raise StatsInDoubt
        return records
