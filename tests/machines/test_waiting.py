"""A deferred wait for a campaign, while the service changes it, fails and moves; triggerers come and go."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from mail_emulator import Emulator
from tests.machines.waiting_model import Poll, expected
from tests.support.clock import Clock, passes
from tests.support.sampling import examples
from tests.tasks.triggering import cancelled, event, restarted

GETS, NAME, SENT = "campaign/mail/get", "spring", 123
INTERVAL = 70.0
LONGEST_PAUSE, SETTLE_SECONDS, LAST_POLL_SECONDS = 300.0, 5.0, 60.0
CLOCK_ERROR = 1.5
"""Seconds by which a `Date` header does not show the service's clock."""
SHOWN = {None: "disappeared|never seen|not found", -1: "draft|scheduled for", 1: "sending|scheduled for",
         2: "was sent", 4: "mailStatus 4"}  # fmt: skip
"""What the message says of the status that was seen last."""

not_over = precondition(lambda self: not self.waiting.done())


class CampaignWaits(RuleBasedStateMachine):
    """One wait, from the task's deferral to the event; `expected` is the model."""

    waiting: asyncio.Task[Any]

    def __init__(self) -> None:
        super().__init__()
        self.used = ExitStack()
        self.used.enter_context(Clock().installed())
        self.emulator = self.used.enter_context(Emulator())
        self.environment = self.used.enter_context(pytest.MonkeyPatch.context())
        self.loop = self.used.enter_context(asyncio.Runner())
        self.exists = False

    def teardown(self) -> None:
        if hasattr(self, "waiting"):
            self.loop.run(cancelled(self.waiting))
        crashes = self.emulator.crashes()
        self.used.close()
        assert not crashes, crashes[0]

    # --- what happens ---

    @initialize(
        ahead=st.sampled_from([-600, 0, 600]),
        timeout=st.sampled_from([2003, 20_003]),
        scheduled_status=st.sampled_from([-1, 1]),
        seen=st.booleans(),
        not_before=st.sampled_from([0, 453]),
    )
    def the_task_defers(self, ahead: int, timeout: int, scheduled_status: int, seen: bool, not_before: int) -> None:
        self.ahead, self.seen = ahead, seen
        self.emulator.clock.advance(ahead)
        self.emulator.settings.sending_seconds = 10**6
        self.emulator.settings.scheduled_status = scheduled_status  # type: ignore[assignment]
        self.the_connection_is_corrected()
        self.end_time = time.time() + ahead + timeout
        self.trigger = MailCampaignTrigger(
            mail_conn_id="mail_default",
            mail_name=NAME,
            poke_interval=INTERVAL,
            end_time=self.end_time,
            seen=seen,
            not_before=time.time() + not_before if not_before else 0.0,
        )
        self.start()

    def start(self) -> None:
        self.first = self.emulator.journal.count(GETS)
        self.started = time.time()
        self.waiting = self.loop.get_loop().create_task(self.wait())
        self.loop.run(passes(0))

    async def wait(self) -> Any:
        found = await event(self.trigger)
        return {**found, "ended": time.time() + self.ahead}

    @rule(seconds=st.sampled_from([10, 100, 400, 1000]))
    def time_passes(self, seconds: int) -> None:
        self.loop.run(passes(seconds))

    @not_over
    @precondition(lambda self: not self.exists)
    @rule(state=st.sampled_from(["draft", "scheduled", "sending", "done"]), send_in=st.sampled_from([-997, 503, 3003]))
    def it_appears(self, state: Any, send_in: int) -> None:
        send_date = datetime.fromtimestamp(time.time() + self.ahead + send_in, UTC)
        self.emulator.add_campaign(NAME, state=state, send_date=send_date, sent=SENT)
        self.exists = True

    @not_over
    @precondition(lambda self: self.exists)
    @rule(state=st.sampled_from(["draft", "scheduled", "sending", "done", "failed", "cancelled", "removed"]))
    def it_changes(self, state: str) -> None:
        self.emulator.set_campaign_state(NAME, state)

    @not_over
    @rule(count=st.sampled_from([1, 2, 5, 15]))
    def polls_fail(self, count: int) -> None:
        # Each poll is one request: so long a pause is not waited for.
        self.emulator.faults.add("too_many_requests", GETS, count=count, retry_after=999)

    @not_over
    @rule()
    def the_key_is_exchanged(self) -> None:
        self.emulator.settings.api_key = f"key {self.emulator.journal.count()}"

    @not_over
    @rule()
    def the_connection_is_corrected(self) -> None:
        found = {"conn_type": "mail", "host": self.emulator.base_url, "password": self.emulator.settings.api_key}
        self.environment.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(found))

    @not_over
    @rule()
    def another_triggerer_continues(self) -> None:
        self.loop.run(cancelled(self.waiting))
        self.trigger = restarted(self.trigger)
        self.start()

    # --- what must be ---

    def polls(self) -> list[Poll]:
        """What the service showed to this triggerer."""
        journal = self.emulator.service.journal
        return [
            poll_of(entry["virtual_ms"] / 1000, json.loads(journal.responses.get(entry["sequence"], b"")))
            for entry in self.emulator.journal.entries(GETS)[self.first :]
        ]

    @invariant()
    def it_waits_or_ends_as_the_model_says(self) -> None:
        if not hasattr(self, "waiting"):
            return
        polls = self.polls()
        limits = [{"seen": self.seen, "tolerance": error} for error in (-CLOCK_ERROR, 0.0, CLOCK_ERROR)]
        for number in range(1, len(polls)):
            assert "waiting" in [expected(polls[:number], **limit) for limit in limits], "it should have ended"
        statuses = [expected(polls, **limit) for limit in limits] if polls else ["waiting"]
        # The service's clock shows at the first poll that succeeds; until then the local one counts.
        offset = self.ahead if any(not poll.error for poll in polls) else 0.0
        deadline = self.end_time - offset + self.ahead
        last = polls[-1] if polls else Poll(self.started + self.ahead)
        if not self.waiting.done():
            now = time.time() + self.ahead
            assert "waiting" in statuses
            assert now <= deadline + LAST_POLL_SECONDS + 10
            may_wait_longer = not polls or last.is_ahead(-CLOCK_ERROR)
            assert now - last.at <= (LONGEST_PAUSE if may_wait_longer else INTERVAL) + 10
            return
        found = self.waiting.result()
        if found["message"].startswith("the wait timed out: "):
            assert "waiting" in statuses
            assert deadline - 2 <= found["ended"] <= deadline + LAST_POLL_SECONDS + 10
            assert last.at >= deadline - 2 * SETTLE_SECONDS - 2, "the last poll is at the deadline"
            assert found["status"] == ("error" if last.error else "timeout")
        else:
            assert found["status"] in statuses
            assert found["status"] != "waiting"
            assert found["ended"] - last.at <= SETTLE_SECONDS
        said = "polls? (in a row )?failed" if last.error else SHOWN[last.status]
        assert re.search(said, found["message"])
        if found["status"] == "complete":
            assert found["result"]["sent_count"] == SENT


def poll_of(at: float, body: dict[str, Any]) -> Poll:
    """What a response says of the campaign."""
    if body["code"] != 200:
        return Poll(at, error="rejected" if body["code"] == 401 else "temporary")
    for campaign in body["mailList"] or ():
        if campaign["mailName"] == NAME:
            return Poll(at, campaign["mailStatus"], campaign["sendByDateTime"] / 1000)
    return Poll(at)


TestCampaignWaits = CampaignWaits.TestCase
TestCampaignWaits.settings = settings(
    max_examples=examples(25), stateful_step_count=20, deadline=None, derandomize=settings().derandomize
)
