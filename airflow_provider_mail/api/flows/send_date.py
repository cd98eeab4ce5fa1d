"""Check for a send time in the past: the service would send immediately, which is rarely intended."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_provider_mail.api.errors import MailValidationError

TOLERANCE = timedelta(minutes=5)
"""How far in the past a send time may be: clocks differ slightly, and a task may start slightly late."""


def lateness(send_date: datetime | None, now: datetime) -> timedelta | None:
    """Return how far a send time is in the past, in whole seconds; ``None`` if that is within :data:`TOLERANCE`.

    :param send_date: with a time zone; ``None`` (send now) is never late.
    :param now: the service's time, see :class:`~airflow_provider_mail.api._core.clock.ServiceClock`.
    """
    late = timedelta() if send_date is None else now - send_date
    return timedelta(seconds=int(late.total_seconds())) if late > TOLERANCE else None


def check_send_date(send_date: datetime | None, now: datetime, *, operation: str | None = None) -> None:
    """Reject a send time in the past.

    Call it right before the request, after the lookup: a late try must still find what an earlier one created.

    :param send_date: with a time zone; ``None`` (send now) is accepted.
    :param now: the service's time.
    :param operation: the path of the operation, for the error.
    :raises MailValidationError: naming ``send_date`` and the argument that allows it.
    """
    if (late := lateness(send_date, now)) is not None:
        raise MailValidationError(
            f"send_date: {send_date:%Y-%m-%dT%H:%M:%SZ} lies {late} in the past: the service would send at once. "
            "Nothing was sent. Correct it, or set allow_past_send_date=True to send at once",
            operation=operation,
        )
