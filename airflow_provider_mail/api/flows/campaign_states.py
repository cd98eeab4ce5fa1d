"""The fields of campaigns that polls need, decoded without the contents, which make up most of a response."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from airflow_provider_mail.api.campaigns import CampaignsPage, GetCampaigns, MailStats, MailStatus

# Narrower than Campaign, which decodes all other values.
_Millis = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]


class CampaignState(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Fields of :class:`~airflow_provider_mail.api.campaigns.Campaign`."""

    mail_name: str
    mail_status: int
    send_millis: _Millis | None = msgspec.field(name="sendByDateTime", default=None)
    guid: str | None = None
    team_name: str | None = None
    mail_stats: MailStats | None = None

    @property
    def send_by_date_time(self) -> datetime | None:
        """The send time."""
        return datetime.fromtimestamp(self.send_millis / 1000, UTC) if self.send_millis else None


class _Page(msgspec.Struct, rename="camel"):
    code: int
    total_records: int | None = None
    mail_list: list[CampaignState] | None = None


def _validate(model: Any, value: Any) -> Any:
    return model.model_validate(value)


_decode_page = msgspec.json.Decoder(_Page, dec_hook=_validate).decode


class _GetCampaignStates(GetCampaigns):
    """The same operation. Records of the documented form are decoded in one step, all others by the model."""

    def decode(self, body: bytes | bytearray) -> CampaignsPage | None:
        try:
            page = _decode_page(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if page.code != 200:
            return None
        return CampaignsPage.model_construct(mail_list=page.mail_list, total_records=page.total_records)  # type: ignore[arg-type]


def get_campaign_states(statuses: list[MailStatus]) -> GetCampaigns:
    """Return the request for campaigns in some states, a hundred per page, whose records are :class:`CampaignState`."""
    return _GetCampaignStates(mail_status=statuses, page_size=100)
