"""Read statistics completely (specification, ``campaign/mail/stats/get`` and ``transactional/mail/stats/get``).

Neither operation has pages, so an incomplete response must be detected:

- for campaigns, the service reports the number of matches (``totalRecords``). An incomplete window is requested again
  in halves, and an incomplete day campaign by campaign, with the names from ``campaign/mail/get``. If records are still
  missing, that is an error with both numbers; so is a response without a valid ``totalRecords``;
- for transactional mail, there should be a record for each day. Missing days are requested again separately; days that
  are missing even then are unknown, which is not the same as zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any

from airflow_provider_mail.api._core.pagination import all_records, require_complete
from airflow_provider_mail.api._core.requests import Client
from airflow_provider_mail.api._core.responses import compact_records
from airflow_provider_mail.api.campaigns import (
    CampaignStats,
    CampaignStatsResponse,
    GetCampaigns,
    GetCampaignStats,
)
from airflow_provider_mail.api.errors import MailRejectedError, MailResponseError
from airflow_provider_mail.api.transactional import GetTransactionalStats, TransactionalStats

__all__ = ["campaign_stats", "transactional_stats"]

DAY = timedelta(days=1)

RecordsByName = dict[str, CampaignStats]
"""Records by campaign: names are unique within a team, and statistics are of one team."""


def campaign_stats(client: Client, request: GetCampaignStats, *, compact: bool = False) -> list[CampaignStats]:
    """Get all statistics records of a window, each campaign once.

    :param compact: return objects with the fields of :class:`CampaignStats` but none of its methods, which take a
        fraction of its memory.
    :raises MailIncompleteError: the responses are incomplete even for single campaigns.
    :raises MailResponseError: a campaign was not sent in the window, or has two send times.
    """
    if compact:
        request = compact_records(request)
    records = _whole(client, request, _Names(request))
    return list(records.values())


def find_stats(client: Client, mail_name: str, days: tuple[date, date]) -> CampaignStats | None:
    """Get the record of the campaign of exactly this name, if it was sent in these days.

    :raises MailIncompleteError: the response for a single day is incomplete.
    """
    start_day, end_day = days
    records = campaign_stats(client, GetCampaignStats(start_date=start_day, end_date=end_day, mail_name=mail_name))
    return next((record for record in records if record.mail_name == mail_name), None)


def transactional_stats(client: Client, request: GetTransactionalStats) -> list[TransactionalStats]:
    """Get the records of a window in the order of the days; ``missing_days`` returns the days without a record.

    :raises MailResponseError: a day is outside the window, or has two different records.
    """
    records = _days(client, request)
    if not records:
        # An empty response may be an error of the service; a day without mail has a record of zeros.
        records = _days(client, request)
    return [records[day] for day in sorted(records)]


def missing_days(request: GetTransactionalStats, records: list[TransactionalStats], today: date) -> list[date]:
    """Return the days before ``today`` without a record; the service may list the current day only when it is over."""
    known = {record.stats_date for record in records}
    return [day for day in calendar(request.start_date, min(request.end_date, today - DAY)) if day not in known]


def _whole(client: Client, request: GetCampaignStats, names: _Names) -> RecordsByName:
    response: CampaignStatsResponse = client.send(request)
    records = _checked(request, response)
    total = response.total_records
    if total is None or total < 0:
        require_complete(request.path, got=len(records), total=total)
    assert total is not None
    if len(records) >= total:
        return records
    if request.start_date < request.end_date:
        middle = request.start_date + (request.end_date - request.start_date) // 2
        for half in ({"end_date": middle}, {"start_date": middle + DAY}):
            _merge(request, records, _whole(client, request.model_copy(update=half), names))
    else:
        for name in names.sent_on(client, request.start_date):
            if name not in records and _may_match(request, name, total) and len(records) < total:
                _merge(request, records, _named(client, request.model_copy(update={"mail_name": name})))
    days = f"{request.start_date}" + (f" to {request.end_date}" if request.start_date < request.end_date else "")
    require_complete(request.path, got=len(records), total=total, what=f"records came for {days}")
    return records


def _may_match(request: GetCampaignStats, name: str, total: int) -> bool:
    """Return whether the statistics may include a campaign that ``campaign/mail/get`` finds by a filter.

    The specification does not show how the statistics compare names. If several match, the comparison is "contains",
    since names are unique; if one matches, it may be the one with exactly that name.
    """
    return request.mail_name is None or total > 1 or name == request.mail_name


def _named(client: Client, request: GetCampaignStats) -> RecordsByName:
    try:
        response: CampaignStatsResponse = client.send(request)
    except MailRejectedError:
        return {}  # The campaign may have no statistics; the number of records is checked.
    return _checked(request, response)


def _checked(request: GetCampaignStats, response: CampaignStatsResponse) -> RecordsByName:
    """Return the records of a response by campaign, or raise if one is outside the requested window."""
    records = response.mail_stats_list or []
    by_name: RecordsByName = {}
    # The specification does not show the time zone of calendar days; no zone differs from UTC by a full day.
    first, last = request.start_date.toordinal() - 1, request.end_date.toordinal() + 1
    for record in records:
        sent_at = record.mail_send_date
        if sent_at is not None and not first <= sent_at.toordinal() <= last:
            raise MailResponseError(
                f"{request.path}: {request.start_date} to {request.end_date} was requested, and a record has the "
                f"mailSendDate {sent_at:%Y-%m-%dT%H:%M:%SZ}",
                operation=request.path,
            )
        if by_name.setdefault(record.mail_name, record) is not record:
            _merge(request, by_name, {record.mail_name: record})
    return by_name


def _merge(request: GetCampaignStats, by_name: RecordsByName, more: RecordsByName) -> None:
    """Add records; of two records of one campaign, keep the later one, since counts grow."""
    for name, record in more.items():
        if name in by_name and by_name[name].mail_send_date != record.mail_send_date:
            raise MailResponseError(
                f"{request.path}: two records of one mailName have different mailSendDates", operation=request.path
            )
        by_name[name] = record


class _Names:
    """The campaigns that match a request, with the days on which they were sent; read at first use."""

    def __init__(self, request: GetCampaignStats) -> None:
        self._request = GetCampaigns(mail_name=request.mail_name, type=request.type, page_size=100)
        self._campaigns: list[tuple[str, date]] | None = None

    def sent_on(self, client: Client, day: date) -> list[str]:
        """Return the names of those sent on a day in any time zone; those of the day in UTC first."""
        if self._campaigns is None:
            self._campaigns = [
                (campaign.mail_name, campaign.send_by_date_time.date())
                for campaign in all_records(client, self._request)
                if campaign.send_by_date_time is not None
            ]
        near = [(abs(sent_on - day), name) for name, sent_on in self._campaigns if abs(sent_on - day) <= DAY]
        return [name for _, name in sorted(near)]


def _days(client: Client, request: GetTransactionalStats) -> dict[date, TransactionalStats]:
    records: dict[date, TransactionalStats] = {}
    response = client.send(request)
    for record in response.mail_stats_list or []:
        if not request.start_date <= record.stats_date <= request.end_date:
            raise MailResponseError(
                f"{request.path}: {request.start_date} to {request.end_date} was requested, and a record has the "
                f"statsDate {record.stats_date}",
                operation=request.path,
            )
        if records.setdefault(record.stats_date, record) != record:
            raise MailResponseError(
                f"{request.path}: two different records have the statsDate {record.stats_date}", operation=request.path
            )
    # Request each gap separately as long as that finds more days: the response may have been incomplete. The recursion
    # ends, since a gap is smaller than its window.
    for gap in _gaps(request, records) if records else ():
        records |= _days(client, request.model_copy(update=gap))
    return records


def _gaps(request: GetTransactionalStats, records: Mapping[date, Any]) -> list[dict[str, date]]:
    """Return the ranges of days without a record."""
    gaps: list[dict[str, date]] = []
    for day in calendar(request.start_date, request.end_date):
        if day in records:
            continue
        if gaps and gaps[-1]["end_date"] == day - DAY:
            gaps[-1]["end_date"] = day
        else:
            gaps.append({"start_date": day, "end_date": day})
    return gaps


def calendar(first: date, last: date) -> Iterator[date]:
    return (first + timedelta(days=number) for number in range((last - first).days + 1))
