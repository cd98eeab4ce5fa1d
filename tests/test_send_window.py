"""When a window is open: hours, days, holidays, and the days on which clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.send_window import WEEKDAYS, SendWindow

BERLIN = {"time_zone": "Europe/Berlin"}
NIGHT = {**BERLIN, "weekdays": WEEKDAYS}


@pytest.mark.parametrize(
    ("window", "moment", "opens", "closes"),
    [
        # Thursday: before, within and after; Friday evening goes on on Monday
        ({}, "2026-11-26T08:00Z", "2026-11-26T09:00Z", "2026-11-26T18:00Z"),
        ({}, "2026-11-26T17:59Z", "2026-11-26T09:00Z", "2026-11-26T18:00Z"),
        ({}, "2026-11-26T18:00Z", "2026-11-27T09:00Z", "2026-11-27T18:00Z"),
        ({}, "2026-11-27T18:00Z", "2026-11-30T09:00Z", "2026-11-30T18:00Z"),
        ({"end": "24:00", "weekdays": ["sun"]}, "2026-11-26T18:00Z", "2026-11-29T09:00Z", "2026-11-30T00:00Z"),
        ({"holidays": lambda day: day.day < 30}, "2026-11-26T08:00Z", "2026-11-30T09:00Z", "2026-11-30T18:00Z"),
        # over midnight: the day is that of the opening
        ({"start": "22:00", "end": "06:00"}, "2026-11-26T03:00Z", "2026-11-25T22:00Z", "2026-11-26T06:00Z"),
        ({"start": "22:00", "end": "06:00"}, "2026-11-26T06:00Z", "2026-11-26T22:00Z", "2026-11-27T06:00Z"),
        ({"start": "22:00", "end": "06:00"}, "2026-11-28T03:00Z", "2026-11-27T22:00Z", "2026-11-28T06:00Z"),
        ({"start": "22:00", "end": "06:00"}, "2026-11-28T06:00Z", "2026-11-30T22:00Z", "2026-12-01T06:00Z"),
        # the day is that of the zone: in Auckland it is Friday
        ({"time_zone": "Pacific/Auckland"}, "2026-11-26T12:00Z", "2026-11-26T20:00Z", "2026-11-27T05:00Z"),
        # the same hours in winter and in summer
        (BERLIN, "2026-03-27T00:00Z", "2026-03-27T08:00Z", "2026-03-27T17:00Z"),
        (BERLIN, "2026-03-30T00:00Z", "2026-03-30T07:00Z", "2026-03-30T16:00Z"),
        # 02:30 does not exist on 2026-03-29, and exists twice on 2026-10-25
        ({**NIGHT, "start": "02:30"}, "2026-03-29T00:00Z", "2026-03-29T01:30Z", "2026-03-29T16:00Z"),
        ({**NIGHT, "start": "01:00", "end": "02:30"}, "2026-03-29T00:00Z", "2026-03-29T00:00Z", "2026-03-29T00:30Z"),
        ({**NIGHT, "start": "02:30"}, "2026-10-25T00:00Z", "2026-10-25T01:30Z", "2026-10-25T17:00Z"),
        ({**NIGHT, "start": "01:00", "end": "02:30"}, "2026-10-24T23:00Z", "2026-10-24T23:00Z", "2026-10-25T00:30Z"),
        # all of it is within the hour that is doubtful: the next day
        ({**NIGHT, "start": "02:10", "end": "02:50"}, "2026-10-24T22:00Z", "2026-10-26T01:10Z", "2026-10-26T01:50Z"),
    ],
)
def test_the_opening_of_a_moment(window: dict[str, Any], moment: str, opens: str, closes: str) -> None:
    opening = SendWindow(**window).opening(datetime.fromisoformat(moment))
    assert opening == (datetime.fromisoformat(opens), datetime.fromisoformat(closes))


@given(
    minute=st.integers(0, 370 * 1440),
    start=st.integers(0, 23),
    hours=st.integers(1, 23),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
)
def test_clocks_on_the_wall_agree(minute: int, start: int, hours: int, zone: str) -> None:
    end = min(start + hours, 24)
    window = SendWindow(start=f"{start:02}:00", end=f"{end:02}:00", time_zone=zone, weekdays=WEEKDAYS)
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    opening = window.opening(moment)
    assert moment < opening.closes
    step = timedelta(minutes=15)
    sent = max(moment, opening.opens)
    while sent < opening.closes:
        assert start <= sent.astimezone(ZoneInfo(zone)).hour < end
        sent += step


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ({"start": "9"}, "start: '9' is not a time"),
        ({"end": "25:00"}, "end: '25:00' is not a time"),
        ({"start": "09:00", "end": "09:00"}, "end: must be another time than start, 09:00"),
        ({"start": "24:00", "end": "00:00"}, "end: must be another time than start, 24:00; a day begins at 00:00"),
        ({"weekdays": ["monday"]}, "weekdays: must be a list of some of mon,"),
        ({"weekdays": []}, "weekdays: must be"),
        ({"weekdays": "mon"}, "weekdays: must be"),
        ({"time_zone": "Berlin"}, "time_zone: 'Berlin' is not"),
    ],
)
def test_what_is_no_window(window: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        SendWindow(**window)


def test_a_window_that_never_opens() -> None:
    with pytest.raises(ValueError, match="send_window: does not open on any of the 400 days from 2026-11-26"):
        SendWindow(holidays=lambda day: True).opening(datetime(2026, 11, 26, tzinfo=UTC))
