"""Ask another operation for records that two readings lack, before tables, files and dlt remove them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime

from airflow_provider_mail.api._core.pagination import find, require_complete
from airflow_provider_mail.api._core.requests import Client
from airflow_provider_mail.api.campaigns import GetCampaigns, GetCampaignStats, MailStatus, existing_campaigns
from airflow_provider_mail.api.contacts import existing_contacts
from airflow_provider_mail.api.flows.statistics import campaign_stats
from airflow_provider_mail.api.lists import DYNAMIC, ContactList, GetLists, find_list

_HINT = "Nothing was stored: the next try reads again"


def existing_of(
    client: Client,
    request: GetCampaignStats,
    got: int,
    lacking: Collection[str],
    first_day: date,
    last_day: date,
    sent_at: Mapping[str, datetime | None] | None = None,
) -> Collection[str]:
    """Return those of the campaigns that two readings of statistics lack which the service still has, by their names.

    Statistics of sent campaigns alone can be expected: others may have been planned, and reset since.

    :param got: the number of records that the readings have.
    :param first_day: the first day, in UTC, whose campaigns belong to the window in any time zone.
    :param last_day: the last such day, included.
    :param sent_at: the known send times of the campaigns. One that the statistics of these days show with another send
        time was made under a name that is used again, and is not missing. Default: not compared.
    :raises MailIncompleteError: one of them was sent in these days, so the readings are short.
    """
    campaigns = existing_campaigns(client, lacking)
    found = [
        campaign.mail_name
        for campaign in campaigns.values()
        if campaign.mail_status == MailStatus.COMPLETE
        and campaign.send_by_date_time is not None
        and first_day <= campaign.send_by_date_time.date() <= last_day
        and not (sent_at and _is_used_again(client, campaign.mail_name, sent_at, first_day, last_day))
    ]
    what = f"records came in two readings of {request.start_date} to {request.end_date}"
    require_complete(request.path, got=got, total=got, found=found, what=what, hint=_HINT)
    return campaigns


def _is_used_again(
    client: Client, name: str, sent_at: Mapping[str, datetime | None], first_day: date, last_day: date
) -> bool:
    # Of the same operation, since the specification does not show that both have equal times.
    request = GetCampaignStats(start_date=first_day, end_date=last_day, mail_name=name)
    times = [record.mail_send_date for record in campaign_stats(client, request) if record.mail_name == name]
    return sent_at[name] is not None and any(time != sent_at[name] for time in times)


def check_campaigns(client: Client, campaigns: Sequence[tuple[str, str]]) -> None:
    """Check campaigns that two readings of all campaigns lack.

    :raises MailIncompleteError: the service finds some of them by their names.
    """
    guids = {campaign.guid for campaign in existing_campaigns(client, {name for _, name in campaigns}).values()}
    require_complete(
        GetCampaigns.path,
        got=0,
        total=0,
        found=[name for guid, name in campaigns if guid in guids],
        what=f"of {len(campaigns)} campaigns that two readings lack may be marked",
        hint=_HINT,
    )


def check_contacts(client: Client, list_name: str, contacts: Sequence[tuple[str, str | None]]) -> None:
    """Check contacts that two readings of a list lack.

    No operation takes a contact off a static list. So one that the service still has proves that the readings are
    short, unless it was taken off by hand.

    :param contacts: identifiers and addresses.
    :raises MailIncompleteError: the service still has some of them.
    """
    existing = existing_contacts(client, contacts)
    # The contacts of a list that is gone, or that a filter determines, may still exist.
    if not existing or (found := find_list(client, list_name)) is None or found.list_type == DYNAMIC:
        return
    require_complete(
        f"list {list_name!r}",
        got=len(contacts) - len(existing),
        total=None,
        found=existing,
        what=f"of {len(contacts)} contacts that two readings lack are gone at the service",
        hint="Nothing was removed. If they were taken off the list by hand, set max_removed_fraction",
    )


def gone_lists(client: Client, list_ids: Sequence[str]) -> tuple[str, ...]:
    """Return those of the lists that two readings of all lists lack, whatever their names."""
    missing = set(list_ids)

    def was_the_last(record: ContactList) -> bool:
        missing.discard(str(record.id))
        return not missing

    for _ in range(2):
        if missing:
            find(client, GetLists(page_size=100), was_the_last)
    return tuple(list_id for list_id in list_ids if list_id in missing)
