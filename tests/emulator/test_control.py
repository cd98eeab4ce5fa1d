"""The conventions that hold for every operation, and the control interface, in this process and over HTTP."""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator, EmulatorClient, EmulatorSettings
from mail_emulator.__main__ import add_demo_data, main
from mail_emulator.operations import SANDBOX
from mail_emulator.service import OPERATIONS
from tests.document import facts
from tests.emulator.conftest import Api

SPECIFIED = [operation for operation in facts.OPERATIONS if "oauth" not in operation.path]
MINIMAL = {operation.path.removeprefix("/v5/"): operation.minimal for operation in SPECIFIED}
"""The operations of the specification, with the parameters that it requires."""
WITH_SANDBOX = {operation.path.removeprefix("/v5/") for operation in SPECIFIED if operation.takes_sandbox_mode}


def test_the_operations_are_those_of_the_specification() -> None:
    assert {path.removeprefix("/v5/") for path in OPERATIONS} == MINIMAL.keys()
    fields = {path: operation.fields_for({}, EmulatorSettings()) for path, operation in OPERATIONS.items()}
    assert {path.removeprefix("/v5/") for path in fields if SANDBOX in fields[path]} == WITH_SANDBOX


@pytest.mark.parametrize("operation", sorted(MINIMAL))
def test_every_operation(api: Api, operation: str) -> None:
    """It needs credentials and a JSON object by POST, and rejects parameters that the specification does not list."""
    path, json = f"/v5/{operation}", {"Content-Type": "application/json"}
    for headers in ({}, {"ApiKey": "wrong"}, {"OAuth": "wrong"}):
        response = api.stranger.post(path, json={}, headers=headers)
        assert (response.status_code, response.json()["code"]) == (401, 401)
    assert "Unauthorized" in response.json()["message"]
    assert [entry["auth"] for entry in api.emulator.journal.entries()] == ["none", "invalid", "invalid"]
    for content in (b"[]", b"{", b"", b'"text"', b"\xff"):
        assert api.http.post(path, content=content, headers=json).json()["code"] == 400
    assert api.http.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).json()["code"] == 400
    assert api.http.get(path).status_code == 405
    api.rejected(400, operation, "surprise", **MINIMAL[operation], surprise=1)
    if operation not in WITH_SANDBOX:
        api.rejected(400, operation, "sandboxMode", **MINIMAL[operation], sandboxMode=True)
    api.emulator.change_settings(unknown_fields="ignore")
    if operation in ("contacts/upsert", "lists/add", "lists/get", "webhook/save"):
        api.ok(operation, **MINIMAL[operation], surprise=1)


def test_settings_of_responses(api: Api) -> None:
    assert api.ok("webhook/get")["message"] == ""
    api.ok("lists/get", search=None)
    api.emulator.change_settings(
        bad_api_key_http_status=200, bad_api_key_code=1001, success_message=None, null_is_absent=False
    )
    response = api.stranger.post("/v5/webhook/get", json={})
    assert (response.status_code, response.json()["code"]) == (200, 1001)
    assert api.ok("webhook/get")["message"] is None
    api.rejected(400, "lists/get", "search", search=None)
    api.emulator.change_settings(errors_as_http_status=True)
    response = api.post("lists/delete", listName="nowhere")
    assert (response.status_code, response.json()["code"]) == (404, 404)
    assert api.post("contacts/explode").status_code == 404


def test_the_rate_limit(api: Api) -> None:
    api.emulator.change_settings(requests_per_second=1e-6, retry_after_seconds=3.0)
    first, *others = [api.post("webhook/get") for _ in range(4)]
    assert first.json()["code"] == 200
    assert [(response.status_code, response.headers["Retry-After"]) for response in others] == [(429, "3")] * 3
    assert [entry["processed"] for entry in api.emulator.journal.entries()] == [True, False, False, False]
    api.emulator.change_settings(requests_per_second=1e9)
    assert api.post("webhook/get").status_code == 200


def test_the_date_a_token_and_a_body_over_the_limit(api: Api) -> None:
    api.emulator.clock.freeze("2031-05-06T07:08:09Z")
    response = api.stranger.post("/v5/webhook/get", json={}, headers={"OAuth": api.emulator.issue_token()})
    assert (response.json()["code"], response.headers["date"]) == (200, "Tue, 06 May 2031 07:08:09 GMT")
    assert api.emulator.journal.entries()[-1]["auth"] == "oauth"
    api.emulator.change_settings(date_header=False, max_body_bytes=1000)
    assert "date" not in api.post("webhook/get").headers
    assert api.post("lists/add", listName="x" * 2000).status_code == 413
    assert api.emulator.lists() == []


def test_what_does_not_exist_is_an_error_unless_set(api: Api) -> None:
    operations = [operation for operation in MINIMAL if operation.endswith(("delete", "cancel", "verify"))]
    missing = [(operation, MINIMAL[operation]) for operation in operations]
    missing.append(("contacts/upsert", {"email": "a@example.com", "listName": "L"}))
    for operation, body in missing:
        api.rejected(404, operation, "does not exist", **body)
    api.emulator.change_settings(not_found_code=200)
    for operation, body in missing:
        api.ok(operation, **body)


Control = Emulator | EmulatorClient


@pytest.fixture(params=["here", "over HTTP"])
def control(emulator: Emulator, request: pytest.FixtureRequest) -> Control:
    return emulator if request.param == "here" else EmulatorClient(emulator.base_url)


def test_arranging_and_inspecting(control: Control, emulator: Emulator) -> None:
    assert (control.base_url, control.api_key) == (emulator.base_url, emulator.api_key)
    control.add_list("A", ["ann@example.com"], count=2, description="d")
    control.add_list("B", ("bob@example.com" for _ in range(1)), dynamic=True)
    control.add_contact("cid@example.com", name="Cid", properties={"tier": "gold"}, lists=["A"])
    control.add_template("t", subject="s", content="c")
    control.add_sender("shop@shop.example", types=[2], verified=False)
    control.set_dns("shop.example", mx=False)
    control.add_campaign("m", send_date=datetime(2026, 3, 1, tzinfo=UTC), sent=10)
    control.set_campaign_stats("m", openCount=3)
    assert control.contact_count() == 5
    assert [each["contacts"] for each in control.lists()] == [4, 1]
    assert control.contact("CID@example.com")["properties"] == {"tier": "gold"}
    assert control.contact("nobody@example.com") is None
    assert control.templates() == [{"name": "t", "subject": "s", "content": "c", "editor": "DRAG"}]
    assert control.senders()[-1] == {"entry": "shop@shop.example", "type": 2}
    (task,) = control.campaigns()
    assert (task["mailName"], task["sendDate"], task["mailStats"]["openCount"]) == ("m", "2026-03-01T00:00:00Z", 3)
    assert control.campaigns("other") == control.crashes() == []


def test_the_clock(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    before = datetime.now(UTC)
    assert before - timedelta(milliseconds=1) <= control.clock.now() <= datetime.now(UTC)
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
    with pytest.raises(ValueError, match="rate"):
        control.clock.run(-1)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    control.clock.run(rate=3600)
    now += 2
    for _ in range(2):
        assert control.clock.now() == datetime(2026, 4, 1, 2, tzinfo=UTC)
        control.clock.run()


def test_settings_change_together_or_not_at_all(control: Control, emulator: Emulator) -> None:
    control.change_settings(sending_looks=2, refused_addresses=["a@example.com"], email_credits=None)
    assert (emulator.settings.sending_looks, emulator.settings.refused_addresses) == (2, ("a@example.com",))
    for name, value in (("no_such_setting", 1), ("campaign_outcome", "lost")):
        with pytest.raises(ValueError, match=name):
            control.change_settings(sending_looks=5, **{name: value})
    assert control.read_settings()["sending_looks"] == emulator.settings.sending_looks == 2


def test_wrong_arguments(control: Control) -> None:
    control.add_campaign("m")
    for words, function, arguments, named in (
        ("outcome", control.plan_campaign, ["m"], {"outcome": "perhaps"}),
        ("no campaign", control.set_campaign_state, ["other", "done"], {}),
        ("no campaign", control.set_campaign_stats, ["other"], {"openCount": 1}),
        ("no counter", control.set_transactional_day, ["2026-03-01"], {"opens": 1}),
        ("finished", control.set_campaign_state, ["m", "finished"], {}),
        ("opens", control.set_campaign_stats, ["m"], {"opens": 1}),
        ("no list", control.add_contact, ["a@example.com"], {"lists": ["nowhere"]}),
        ("no_such", control.faults.add, ["no_such"], {}),
        ("secons", control.faults.add, ["delay"], {"secons": 1}),
        ("contacts/import'; .*/v5/contacts/imports, ", control.faults.add, ["refuse", "contacts/import"], {}),
    ):
        with pytest.raises(ValueError, match=words):
            function(*arguments, **named)  # type: ignore[operator]


def test_every_function_can_be_called_over_http(api: Api) -> None:
    """None has a result that JSON cannot carry, and none is missing from the table."""
    names = [
        f"{prefix}{'/' if prefix else ''}{name}"
        for prefix, group in api.emulator.groups().items()
        for name in dir(type(group))
        if getattr(getattr(type(group), name), "is_control", False)
    ]
    assert len(names) > 35
    for name in names:
        assert api.stranger.post(f"/_emulator/{name}", content=b"{}").status_code in (200, 400), name
    for name in ("no_such", "service", "clock/now", "clock/__init__", "_set_dns", "settings", "clock/x/y"):
        assert api.stranger.post(f"/_emulator/{name}", content=b"{}").status_code == 404, name
    assert "too_many_requests" in api.stranger.get("/_emulator").json()["faults"]


def test_impossible_numbers_change_nothing(api: Api) -> None:
    for path, body in (
        ("clock/advance", {"days": 1e300}),
        ("pause_listening", {"seconds": -1}),
        ("change_settings", {"latency_seconds": "inf"}),
    ):
        assert api.stranger.post(f"/_emulator/{path}", json=body).status_code == 400, path
    with pytest.raises(ValueError, match="latency_seconds"):
        api.emulator.change_settings(latency_seconds=float("nan"))
    api.emulator.clock.run(1e300)
    api.ok("lists/get")
    assert api.emulator.clock.now().year == 9999


def test_the_journal_has_each_request(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-01T12:00:00Z")
    before = int(time.time() * 1000)
    api.import_contacts([["ann@example.com", "Ann"]])
    api.stranger.post("/v5/lists/get", content=b"nonsense", headers={"Content-Type": "application/json"})
    first, second = api.emulator.journal.entries()
    assert (first["operation"], first["virtual_ms"]) == ("/v5/contacts/imports", 1772366400000)
    assert first["body"]["contactData"] == [["ann@example.com", "Ann"]]
    assert (first["auth"], first["http_status"], first["code"]) == ("api_key", 200, 200)
    assert (first["processed"], first["answered"], first["fault"]) == (True, True, None)
    assert before <= first["real_ms"] <= int(time.time() * 1000)
    assert (first["seconds"] >= 0, first["headers"]["apikey"]) == (True, "***")
    assert (second["body"], second["body_bytes"], second["auth"], second["processed"]) == (None, 8, "none", False)


def test_the_journal_keeps_long_bodies_short_and_the_newest_responses(api: Api) -> None:
    api.import_contacts([[f"{number}@example.com", "x" * 20] for number in range(3000)], listName="L")
    (entry,) = api.emulator.journal.entries()
    assert (entry["body"]["contactData"], entry["body"]["listName"]) == ({"rows": 3000}, "L")
    assert entry["body_bytes"] > 65_536
    api.emulator.reset()
    journal = api.emulator.service.journal
    for _ in range(1005):
        entry = journal.open("/v5/x", "POST", {}, 0, 1)
        journal.note_response(entry, b"x" * 20_000)
    newest = [api.emulator.journal.response(journal.progress()[0] - number) for number in (1000, 999)]
    assert [response and len(response) for response in newest] == [None, 16_384]


def test_requests_in_flight_are_counted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for its latency without blocking the others, here until all are there."""
    sleep, waiting = asyncio.sleep, []

    async def until_all_wait(seconds: float) -> None:
        waiting.append(seconds)
        while len(waiting) < 7:
            await sleep(0)

    api.ok("webhook/get")
    assert api.emulator.journal.most_in_flight() == 1
    monkeypatch.setattr(asyncio, "sleep", until_all_wait)
    api.emulator.change_settings(latency_seconds=0.25)
    with ThreadPoolExecutor(7) as threads:
        list(threads.map(lambda _: api.ok("webhook/get"), range(7)))
    assert waiting == [0.25] * 7
    assert api.emulator.journal.most_in_flight() == 7
    assert len({entry["connection"] for entry in api.emulator.journal.entries()}) == 7


def test_values_of_settings() -> None:
    for name, value in (
        ("sending_looks", "3"), ("sending_looks", True), ("errors_as_http_status", 1), ("sending_seconds", None),
        ("campaign_outcome", "lost"), ("scheduled_status", 3), ("scheduled_status", True),
        ("refused_addresses", "a@example.com"), ("refused_addresses", [1]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            EmulatorSettings(**{name: value})
    with pytest.raises(ValueError, match="sending_second"):
        EmulatorSettings().sending_second = 1
    assert EmulatorSettings().changed() == {}
    assert EmulatorSettings(sending_seconds=1, api_key="k").changed() == {"sending_seconds": 1.0, "api_key": "k"}


def test_the_options_of_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--list-settings"]) == 0
    printed = capsys.readouterr().out
    assert "sending_seconds=5.0\n    Virtual seconds" in printed
    assert all(f"{name}=" in printed for name in EmulatorSettings.__slots__)
    for option, value, words in (
        ("--setting", "no_such=1", "no_such"),
        ("--setting", "sending_seconds=soon", "sending_seconds"),
        ("--setting", "sending_seconds", "name=value"),
        ("--file", str(tmp_path / "nowhere" / "state.db"), "unable to open"),
        ("--port", "99999", "'99999' is not a port: expected 0 to 65535"),
        ("--port", "http", "'http' is not a port"),
        ("--forward-smtp", "localhost", "'localhost' is not HOST:PORT"),
    ):
        with pytest.raises(SystemExit, match="2"):
            sys.exit(main(["--port", "0", option, value]))
        assert words in capsys.readouterr().err


def test_an_error_of_the_emulator_is_recorded(api: Api) -> None:
    api.emulator.service.store.run("DROP TABLE lists")
    assert api.post("lists/add", listName="L").status_code == 500
    assert "no such table" in api.emulator.crashes()[0]
    api.emulator.crashes().clear()


def test_emulators_share_nothing(emulator: Emulator) -> None:
    with Emulator(host="::1") as other:
        assert other.base_url.startswith("http://[::1]:")
        EmulatorClient(other.base_url).add_list("L")
        assert (emulator.lists(), len(other.lists())) == ([], 1)
        third = Emulator(host="::1", port=int(other.base_url.rpartition(":")[2]))
        with pytest.raises(OSError, match="address already in use"):
            third.start()


def test_a_reset_keeps_only_the_settings(api: Api) -> None:
    emulator = api.emulator
    emulator.change_settings(sending_looks=1)
    api.campaign("m")
    api.ok("webhook/save", transEnable=True)
    emulator.clock.freeze("2001-03-01T12:00:00Z")
    emulator.faults.add("delay")
    emulator.reset()
    assert (emulator.lists(), emulator.campaigns(), emulator.senders(), emulator.contacts()) == ([], [], [], [])
    assert (emulator.faults.list(), emulator.journal.entries()) == ([], [])
    assert emulator.webhook()["transEnable"] is None
    assert (emulator.clock.read()["rate"], emulator.clock.now() > datetime(2002, 1, 1, tzinfo=UTC)) == (1, True)
    assert emulator.settings.sending_looks == 1
    emulator.add_sender("news@example.com")
    assert api.campaign("m")["id"] > 2**32


def test_a_file_keeps_the_state(tmp_path: Path) -> None:
    for lists in (0, 2):
        with Emulator(file=tmp_path / "state.db") as emulator:
            assert len(emulator.lists()) == lists
            add_demo_data(emulator)  # the second time it is there already
            assert (len(emulator.lists()), len(emulator.campaigns())) == (2, 15)


def test_the_connection_leads_to_the_service(mail_emulator: Emulator) -> None:
    mail_emulator.add_list("customers", ["ada@example.com"])
    assert [contact.email for contact in MailHook().iter_contacts("customers")] == ["ada@example.com"]
