"""Events that the service pushes to a callback URL (specification, "Events")."""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_pascal

from airflow_provider_mail.api._core.fields import ServiceTime
from airflow_provider_mail.api._core.requests import Resource, describe
from airflow_provider_mail.api.errors import MailValidationError

__all__ = ["EventCode", "MailEvent", "parse_push"]

USER_AGENT = "ServiceWebhooks"
"""The ``User-Agent`` of pushes, the only check of their origin that the specification describes."""

MAX_EVENTS_PER_PUSH = 1000


class EventCode(StrEnum):
    """The event types of the specification. `MailEvent.event_code` is text, so unknown codes are kept."""

    DROPPED = "Dropped"
    BOUNCED = "Bounced"
    DELIVERED = "Delivered"
    OPENED = "Opened"
    CLICKED = "Clicked"
    UNSUBSCRIBED = "Unsubscribed"
    SPAM_REPORT = "SpamReport"
    TASK_STATUS = "TaskStatus"


class MailEvent(Resource):
    """One event. The specification mostly does not show the fields of an event type: all but the code are optional."""

    model_config = ConfigDict(alias_generator=to_pascal, extra="allow")

    event_code: str
    email: str | None = None
    event_type: str | None = None
    sender_email: str | None = None
    sent_mail_list_name: str | None = None
    submit_time: ServiceTime = Field(default=None, alias="SubmitDateTimeV2")
    triggered_time: ServiceTime = Field(default=None, alias="TriggeredDateTimeV2")
    unique_msg_id: str | None = Field(default=None, alias="UniqueMsgID")
    receive_server: str | None = None
    guid: str | None = None
    mail_name: str | None = None
    ip: str | None = Field(default=None, alias="IP")
    platform: str | None = None
    browser_type: str | None = None


_PUSH = TypeAdapter(list[MailEvent])


def parse_push(body: bytes) -> list[MailEvent]:
    """Parse the events of one push.

    :param body: a JSON array of event objects.
    :raises MailValidationError: the body is invalid; the message does not quote it.
    """
    try:
        return _PUSH.validate_json(body)
    except ValidationError as error:
        raise MailValidationError(f"push: {describe(error)}") from None
