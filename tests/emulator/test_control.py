"""The control interface: the same calls in this process and over HTTP, clock, journal, settings."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

from airflow_provider_mail.emulator import Emulator, EmulatorClient, EmulatorSettings
from airflow_provider_mail.emulator.control_api import ClockControl, ControlApi, FaultControl, JournalControl
from airflow_provider_mail.emulator.inbox.control import InboxControl
from airflow_provider_mail.emulator.rpc import Group
from tests.emulator.conftest import Api


@pytest.fixture(params=["here", "over HTTP"])
def control(emulator: Emulator, request: pytest.FixtureRequest) -> Emulator | EmulatorClient:
    """The emulator under control, both ways."""
    return emulator if request.param == "here" else EmulatorClient(emulator.base_url)


Either = Emulator | EmulatorClient


class TestBothWays:
    def test_what_a_client_needs(self, control: Either, emulator: Emulator) -> None:
        assert control.base_url == emulator.base_url
        assert control.api_key == emulator.api_key

    def test_arranging_and_looking(self, control: Either) -> None:
        control.add_list("A", ["ann@example.com"], count=2, description="d")
        control.add_list("B", ("bob@example.com" for _ in range(1)), dynamic=True)
        control.add_contact("cid@example.com", name="Cid", properties={"tier": "gold"}, lists=["A"])
        control.add_template("t", subject="s", content="c")
        control.add_sender("shop@shop.example", types=[2], verified=False)
        control.set_dns("shop.example", mx=False)
        control.add_campaign("m", send_date=datetime(2026, 3, 1, tzinfo=UTC), sent=10)
        control.set_campaign_stats("m", openCount=3)
        assert control.contact_count() == 5
        assert [one["contacts"] for one in control.lists()] == [4, 1]
        assert control.contact("CID@example.com")["properties"] == {"tier": "gold"}
        assert control.contact("nobody@example.com") is None
        assert control.templates() == [{"name": "t", "subject": "s", "content": "c", "editor": "DRAG"}]
        assert control.senders()[-1] == {"entry": "shop@shop.example", "type": 2}
        (task,) = control.campaigns()
        assert (task["mailName"], task["sendDate"], task["mailStats"]["openCount"]) == ("m", "2026-03-01T00:00:00Z", 3)
        assert control.campaigns("other") == []
        assert control.crashes() == []

    def test_clock(self, control: Either) -> None:
        control.clock.freeze(datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))))
        assert control.clock.now() == datetime(2026, 3, 1, 10, tzinfo=UTC)
        control.clock.advance(1, minutes=1, hours=1, days=1)
        assert control.clock.now() == datetime(2026, 3, 2, 11, 1, 1, tzinfo=UTC)
        control.clock.advance(days=-1)
        assert control.clock.now() == datetime(2026, 3, 1, 11, 1, 1, tzinfo=UTC)
        control.clock.set("2026-04-01T00:00:00Z")
        assert control.clock.read() == {"now": "2026-04-01T00:00:00+00:00", "rate": 0}
        with pytest.raises(ValueError, match="time zone"):
            control.clock.set(datetime(2026, 3, 1))

    def test_clock_runs_as_fast_as_it_is_told(self, control: Either) -> None:
        control.clock.freeze("2026-03-01T00:00:00Z")
        control.clock.run(rate=3600 * 24)
        time.sleep(0.05)
        passed = control.clock.now() - datetime(2026, 3, 1, tzinfo=UTC)
        assert timedelta(hours=1) < passed
        with pytest.raises(ValueError, match="rate"):
            control.clock.run(-1)

    def test_clock_runs_with_real_time_at_first(self, control: Either) -> None:
        assert abs(control.clock.now() - datetime.now(UTC)) < timedelta(seconds=5)

    def test_faults_and_journal(self, control: Either, api: Api) -> None:
        fault = control.faults.add("code_before", "lists/get", skip=1, where={"search": "x"}, code=501)
        for _ in range(2):
            api("lists/get", search="x")
        api("webhook/get")
        assert [entry["code"] for entry in control.journal.entries()] == [200, 501, 200]
        assert [entry["sequence"] for entry in control.journal.entries(since=1)] == [2, 3]
        assert control.journal.counts() == {"/v5/lists/get": 2, "/v5/webhook/get": 1}
        assert (control.journal.count(), control.journal.count("lists/get")) == (3, 2)
        assert len(control.journal.processed("lists/get")) == 1
        assert control.faults.list()[0]["id"] == fault
        control.faults.clear()
        control.journal.clear()
        assert (control.faults.list(), control.journal.entries(), control.journal.count()) == ([], [], 0)
        with pytest.raises(ValueError, match="no_such"):
            control.faults.add("no_such")

    def test_settings(self, control: Either, emulator: Emulator) -> None:
        control.change_settings(sending_looks=2, refused_addresses=["a@example.com"], email_credits=None)
        assert emulator.settings.sending_looks == 2
        assert emulator.settings.refused_addresses == ("a@example.com",)
        assert control.read_settings()["sending_looks"] == 2
        with pytest.raises(ValueError, match="no_such_setting"):
            control.change_settings(sending_looks=5, no_such_setting=1)
        with pytest.raises(ValueError, match="campaign_outcome"):
            control.change_settings(sending_looks=5, campaign_outcome="lost")
        assert emulator.settings.sending_looks == 2

    def test_wrong_arguments_are_told(self, control: Either) -> None:
        with pytest.raises(ValueError, match="outcome"):
            control.plan_campaign("m", outcome="perhaps")
        with pytest.raises(ValueError, match="no campaign"):
            control.set_campaign_state("m", "done")
        with pytest.raises(ValueError, match="no counter"):
            control.set_transactional_day("2026-03-01", opens=1)
        with pytest.raises(ValueError, match="no campaign"):
            control.set_campaign_stats("m", openCount=1)
        control.add_campaign("m")
        with pytest.raises(ValueError, match="finished"):
            control.set_campaign_state("m", "finished")
        with pytest.raises(ValueError, match="opens"):
            control.set_campaign_stats("m", opens=1)
        with pytest.raises(ValueError, match="no list"):
            control.add_contact("a@example.com", lists=["nowhere"])


def test_every_control_function_is_reachable_over_http(emulator: Emulator) -> None:
    """None has a result that JSON cannot carry, and none is missing from the table."""
    groups: list[tuple[str, type[Group]]] = [
        ("", ControlApi), ("clock/", ClockControl), ("faults/", FaultControl), ("journal/", JournalControl),
        ("inbox/", InboxControl),
    ]  # fmt: skip
    names = [
        f"{prefix}{name}"
        for prefix, group in groups
        for name in dir(group)
        if getattr(getattr(group, name), "is_control", False)
    ]
    assert len(names) > 35
    with httpx.Client(base_url=emulator.base_url, trust_env=False, timeout=60) as http:
        for name in names:
            response = http.post(f"/_emulator/{name}", content=b"{}")
            assert response.status_code in (200, 400), name
        for name in ("no_such", "service", "clock/now", "clock/__init__", "_set_dns", "settings", "clock/x/y"):
            assert http.post(f"/_emulator/{name}", content=b"{}").status_code == 404, name
        assert "too_many_requests" in http.get("/_emulator").json()["faults"]


def test_the_journal_has_what_came_in(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-01T12:00:00Z")
    api.import_contacts([["ann@example.com", "Ann"]])
    api.stranger.post("/v5/lists/get", content=b"nonsense", headers={"Content-Type": "application/json"})
    first, second = api.emulator.journal.entries()
    assert first["operation"] == "/v5/contacts/imports"
    assert first["body"]["contactData"] == [["ann@example.com", "Ann"]]
    assert (first["auth"], first["http_status"], first["code"]) == ("api_key", 200, 200)
    assert (first["processed"], first["answered"], first["fault"]) == (True, True, None)
    assert first["virtual_ms"] == 1772366400000
    assert abs(first["real_ms"] / 1000 - time.time()) < 10
    assert first["seconds"] >= 0
    assert first["headers"]["apikey"] == "***"
    assert (second["body"], second["body_bytes"], second["auth"]) == (None, 8, "none")
    assert not second["processed"]


def test_long_bodies_are_summarised(api: Api) -> None:
    api.import_contacts([[f"{number}@example.com", "x" * 20] for number in range(3000)], listName="L")
    (entry,) = api.emulator.journal.entries()
    assert entry["body"]["contactData"] == {"rows": 3000}
    assert entry["body"]["listName"] == "L"
    assert entry["body_bytes"] > 65_536


def test_requests_in_flight_are_counted(api: Api) -> None:
    for _ in range(5):
        api.ok("webhook/get")
    assert api.emulator.journal.most_in_flight() == 1
    api.emulator.settings.latency_seconds = 0.3
    for _ in range(30):
        threads = [threading.Thread(target=api.ok, args=["webhook/get"]) for _ in range(7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # On a busy machine the first may be answered before the last is sent.
        if api.emulator.journal.most_in_flight() == 7:
            break
    assert api.emulator.journal.most_in_flight() == 7
    assert len({entry["connection"] for entry in api.emulator.journal.entries()}) == 7


def test_latency_delays_without_blocking(api: Api) -> None:
    api.emulator.settings.latency_seconds = 0.15
    began = time.monotonic()
    api.ok("webhook/get")
    assert time.monotonic() - began >= 0.15


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("sending_looks", "3"),
            ("sending_looks", True),
            ("errors_as_http_status", 1),
            ("sending_seconds", None),
            ("campaign_outcome", "lost"),
            ("scheduled_status", 2),
            ("scheduled_status", True),
            ("refused_addresses", "a@example.com"),
            ("refused_addresses", [1]),
        ],
    )
    def test_wrong_values_are_refused_by_name(self, name: str, value: Any) -> None:
        with pytest.raises(ValueError, match=name):
            setattr(EmulatorSettings(), name, value)
        with pytest.raises(ValueError, match=name):
            EmulatorSettings(**{name: value})

    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(ValueError, match="sending_second"):
            EmulatorSettings().sending_second = 1  # type: ignore[attr-defined]

    def test_what_differs_from_the_defaults(self) -> None:
        assert EmulatorSettings().changed() == {}
        assert EmulatorSettings(sending_seconds=1, api_key="k").changed() == {"sending_seconds": 1.0, "api_key": "k"}


def test_crashes_are_told_and_recorded(api: Api) -> None:
    api.emulator.service.store.run("DROP TABLE lists")
    response = api.post("lists/add", listName="L")
    assert response.status_code == 500
    assert "no such table" in api.emulator.crashes()[0]
    api.emulator.crashes().clear()


def test_emulators_do_not_share_anything() -> None:
    with Emulator() as one, Emulator() as other:
        one.add_list("L")
        assert other.lists() == []
        assert one.base_url != other.base_url


def test_a_taken_port_is_told() -> None:
    with Emulator() as one:
        other = Emulator(port=int(one.base_url.rpartition(":")[2]))
        with pytest.raises(OSError, match="address already in use"):
            other.start()


def test_reset_forgets_all_but_the_settings(api: Api) -> None:
    emulator = api.emulator
    emulator.change_settings(sending_looks=1)
    api.campaign("m")
    api.ok("webhook/save", transEnable=True)
    emulator.clock.freeze("2026-03-01T12:00:00Z")
    emulator.faults.add("delay")
    emulator.reset()
    assert (emulator.lists(), emulator.campaigns(), emulator.senders(), emulator.contacts()) == ([], [], [], [])
    assert (emulator.faults.list(), emulator.journal.entries()) == ([], [])
    assert emulator.webhook()["transEnable"] is None
    assert abs(emulator.clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    assert emulator.settings.sending_looks == 1
    emulator.add_sender("news@example.com")
    assert api.campaign("m")["id"] > 2**32
