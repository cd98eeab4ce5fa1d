"""A send time in the past: the service sends at once then, which is rarely what was meant."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_provider_mail.api.errors import MailValidationError

TOLERANCE = timedelta(minutes=5)
"""How far in the past a send time may lie: clocks differ a little, and a task may start a little late."""


def lateness(send_date: datetime | None, now: datetime) -> timedelta | None:
    """How far a send time lies in the past, in whole seconds; ``None`` unless that is more than :data:`TOLERANCE`.

    :param send_date: with a zone; ``None`` (send now) is never late.
    :param now: the service's time, see :class:`~airflow_provider_mail.api._core.clock.ServiceClock`.
    """
    late = timedelta() if send_date is None else now - send_date
    return timedelta(seconds=int(late.total_seconds())) if late > TOLERANCE else None


def check_send_date(send_date: datetime | None, now: datetime, *, operation: str | None = None) -> None:
    """Reject a send time that lies in the past.

    Call it right before the request, and only after having looked for what an earlier try has created: a try that
    comes late must still find that.

    :param send_date: with a zone; ``None`` (send now) passes.
    :param now: the service's time.
    :param operation: path of the operation, for the error.
    :raises MailValidationError: naming ``send_date`` and the argument that allows it.
    """
    if (late := lateness(send_date, now)) is not None:
        raise MailValidationError(
            f"send_date: {send_date:%Y-%m-%dT%H:%M:%SZ} lies {late} in the past: the service would send at once. "
            "Nothing was sent. Correct it, or set allow_past_send_date=True to send at once",
            operation=operation,
        )
