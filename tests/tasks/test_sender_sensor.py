"""`MailSenderSensor`: until all four checks are good, three ways to wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.sensors.senders import MailSenderSensor
from airflow_provider_mail.triggers.senders import MailSenderTrigger
from tests.tasks.conftest import TASK, Run
from tests.tasks.sensing import WAYS, every_way, repeating
from tests.tasks.waiting import answered, as_soon_as

SENDER = "mail.example.com"
GOOD = dict.fromkeys(("mx", "spf", "dkim", "dmarc", "valid"), True)
GET, VERIFY = "verified_senders/get", "verified_senders/verify"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.1)


def wait(way: str, **arguments: Any) -> MailSenderSensor:
    given = {"task_id": TASK, "sender_email": SENDER, "poke_interval": 0.3, "timeout": 60}
    return MailSenderSensor(**given | WAYS[way] | arguments)


@every_way
def test_good_already(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_sender(SENDER)
    assert run(lambda: wait(way)).returned == GOOD
    assert emulator.journal.count(GET) == 1


@repeating
def test_registered_and_good_at_last(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_sender("other.example.com")
    with as_soon_as(lambda: answered(emulator, GET) >= 2, lambda: emulator.add_sender(SENDER.upper())):
        done = run(lambda: wait(way))
    assert done.returned == GOOD
    assert f"there is no sender '{SENDER}' (yet)" in done.log


@repeating
def test_never_good(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_sender(SENDER, verified=False)
    done = run(lambda: wait(way, timeout=1))
    assert done.state == "failed"
    assert "is not valid yet: MX, SPF, DKIM, DMARC" in done.log


@repeating
def test_the_service_is_made_to_check(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_sender(SENDER, verified=False)
    emulator.set_dns(SENDER, dkim=False, selector="mail")
    with as_soon_as(lambda: answered(emulator, VERIFY) >= 2, lambda: emulator.set_dns(SENDER, selector="mail")):
        done = run(lambda: wait(way, selector="mail"))
    assert done.returned == GOOD
    assert "is not valid yet: DKIM" in done.log
    assert emulator.journal.entries(VERIFY)[0]["body"] == {"fromDomain": SENDER, "selector": "mail"}


def test_many_waits_share_one_request(emulator: Emulator) -> None:
    senders = [f"mail{number}.example.com" for number in range(50)]

    async def all_of_them() -> list[Any]:
        async def one(sender: str) -> Any:
            trigger = MailSenderTrigger(mail_conn_id="mail_default", sender_email=sender, poke_interval=0.3)
            async for event in trigger.run():
                return event.payload

        waits = [asyncio.create_task(one(sender)) for sender in senders]
        await asyncio.sleep(1)
        for sender in senders:
            emulator.add_sender(sender)
        return await asyncio.gather(*waits)

    events = asyncio.run(all_of_them())
    assert [event["name"] for event in events] == senders
    assert all(event["result"] == GOOD for event in events)
    assert emulator.journal.count(GET) < 20


@pytest.mark.parametrize(("name", "result"), [("name", "result"), ("mail_name", "mail_stats")])
def test_a_task_resumes_with_the_event_of_this_version_and_of_the_one_before(name: str, result: str) -> None:
    """A wait that the triggerer ended before an upgrade is read by a worker after it."""
    event = {"status": "complete", name: SENDER, "message": "all checks are good", result: GOOD}
    assert wait("deferrable").execute_complete({}, event) == GOOD  # type: ignore[typeddict-item]
