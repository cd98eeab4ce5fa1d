"""Reading statistics whole (document, ``campaign/mail/stats/get``).

The operation has no paging: an answer with fewer records than ``totalRecords`` is short, and must never be taken for
everything. The days are asked for in halves then, until every answer is whole.
"""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_mail.api.base import Flow
from airflow_provider_mail.api.campaigns import CampaignStats, CampaignStatsResponse, GetCampaignStats
from airflow_provider_mail.api.errors import MailIncompleteError


def campaign_stats(request: GetCampaignStats) -> Flow[list[CampaignStats]]:
    """All statistics records of a window.

    :raises MailIncompleteError: when the answer for a single day is still short.
    """
    answer: CampaignStatsResponse = yield request
    records = answer.mail_stats_list or []
    if answer.total_records is None or len(records) >= answer.total_records:
        return records
    if request.start_date == request.end_date:
        raise MailIncompleteError(
            f"{request.path}: {len(records)} records came for {request.start_date}, "
            f"the service says there are {answer.total_records}",
            got=len(records),
            expected=answer.total_records,
            operation=request.path,
        )
    middle = request.start_date + (request.end_date - request.start_date) // 2
    first = yield from campaign_stats(request.model_copy(update={"end_date": middle}))
    second = yield from campaign_stats(request.model_copy(update={"start_date": middle + timedelta(days=1)}))
    return first + second
