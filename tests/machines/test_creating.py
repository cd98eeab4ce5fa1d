"""One task creates one campaign: tries that fail, die and are repeated, other people, faults of the service, and time.

Whatever happens, the campaign is sent at most once, unless the user wants it again; and what a try says is true.
Examples are in `tests/api/test_creation.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_mail.api.campaigns import CancelCampaign, CreateCampaign
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailError,
    MailHeldError,
    MailIncompleteCampaignError,
    MailRejectedError,
    MailValidationError,
)
from airflow_provider_mail.api.flows.create_campaign import create_campaign
from airflow_provider_mail.api.flows.create_once import Creation
from mail_emulator import Emulator
from mail_emulator.faults import FAULT_KINDS
from tests.machines import EVENTS, HOLD, happening
from tests.support.changes import at_request, by_others
from tests.support.clock import Clock
from tests.support.creation import DyingClient, Killed, StateStore, creation_record
from tests.support.sampling import run_machine
from tests.support.tries import HAS_STORE

NAME = "Weekly"
SENDS, GETS, CANCELS = "campaign/mail/sends", "campaign/mail/get", "campaign/mail/cancel"
MINUTE, HOUR, DAY = 60, 3600, 86_400
SETTLED = HOUR
"""Seconds after which the service shows everything as it is; the package counts on a quarter of an hour."""

SERVICES = st.fixed_dictionaries(
    {
        "kept_task_state": st.sampled_from(["draft", "scheduled"]),
        "scheduled_status": st.sampled_from([1, -1]),
        "state_after_cancel": st.sampled_from(["draft", "removed", "failed", "cancelled"]),
        "visible_after_looks": st.sampled_from([0, 0, 1, 3]),
        "visible_after_seconds": st.sampled_from([0, 20, 10 * MINUTE]),
        "draft_at_first_seconds": st.sampled_from([0, 0, 20, 12 * MINUTE]),
        "sending_seconds": st.sampled_from([0, 5, DAY]),
        "campaign_outcome": st.sampled_from(["done", "done", "failed"]),
        "send_time_in_minutes": st.booleans(),
        "errors_as_http_status": st.booleans(),
        "duplicate_mail_name_code": st.sampled_from([400, 403, 409]),
        "stored_mail_name": st.sampled_from(["as_sent", "as_sent", "all"]),
    }
)
# Faults that only take time pass in real time, and the connection in front of the service is not this flow's subject.
KINDS: list[tuple[str, dict[str, Any]]] = [
    *((kind.name, {}) for kind in FAULT_KINDS.values() if kind.outcome != "slow"),
    *(("code_before", {"code": code}) for code in (400, 401, 403, 429)),
    *(("http_error_before", {"status": status}) for status in (404, 500)),
    ("http_error_after", {"status": 500}),
]
LOST = [kind.name for kind in FAULT_KINDS.values() if kind.outcome in ("lost", "unreadable") and kind.processed]


def _fault(kind: tuple[str, dict[str, Any]], operation: str, skip: int, count: int) -> list[Any]:
    only = FAULT_KINDS[kind[0]].operations
    if only is not None:
        operation = SENDS if f"/v5/{SENDS}" in only else GETS
    return [(kind[0], operation, skip, count, kind[1])] if only is None or f"/v5/{operation}" in only else []


def _lost(kind: str, reject: bool) -> list[Any]:
    """The response to the next creation is lost, and perhaps the one after it is rejected."""
    rejection = [("code_before", SENDS, 0, 1, {"code": 403})] if reject else []
    return [(kind, SENDS, 0, 1, {}), *rejection]


OPERATIONS = st.sampled_from([SENDS, SENDS, GETS, CANCELS, "*"])
ANY_FAULT = st.builds(_fault, st.sampled_from(KINDS), OPERATIONS, st.integers(0, 3), st.integers(1, 6))
FAULTS = st.just([]) | ANY_FAULT | st.builds(_lost, st.sampled_from(LOST), st.booleans())
PEOPLE = ("create an equal one", "create another one", "remove", "cancel", "edit")
MEANWHILE = (
    st.none()
    | st.tuples(st.sampled_from(PEOPLE), st.sampled_from([SENDS, GETS]), st.integers(1, 3))
    | st.tuples(st.sampled_from(EVENTS), st.just("*"), st.integers(1, 8))
)
DEATHS = st.none() | st.none() | st.tuples(st.integers(0, 8), st.booleans())
GOING_OUT = ("scheduled", "sending", "done", "failed")


class Creating(RuleBasedStateMachine):
    """The task instance with its tries, and what must be true of the service."""

    service: Emulator
    clock: Clock
    client: MailClient

    @initialize(
        behavior=SERVICES,
        when=st.sampled_from(["now", "now", "in an hour", "draft"]),
        choice=st.sampled_from(["fail", "cancel", "keep"]),
        stored=st.sampled_from([HAS_STORE, HAS_STORE, False]),
        adopt_older=st.sampled_from([False, False, True]),
        last_week=st.sampled_from([False, False, True]),
        hours=st.sampled_from([0, 0, -9, 9]),
        scheduler=st.sampled_from([0, 0, -9, 9]),
        alone=st.sampled_from([True, True, False]),
    )
    def begin(
        self,
        behavior: Any,
        when: str,
        choice: Any,
        stored: bool,
        adopt_older: bool,
        last_week: bool,
        hours: int,
        scheduler: int,
        alone: bool,
    ) -> None:
        self.service.reset()
        self.service.change_settings(**behavior)
        self.name = NAME.lower() if behavior["stored_mail_name"] == "all" else NAME
        self.service.clock.advance(hours * HOUR)
        self.service.add_sender("news@example.com")
        self.service.add_list("customers", ["ada@example.com"])
        self.service.add_campaign(f"{NAME} 2")
        self.request = CreateCampaign(
            mail_name=NAME,
            sender_mail="news@example.com",
            subject="News",
            content="<p>News</p>",
            send_list_names=["customers"],
            only_save=when == "draft",
        )
        # The model: what was said, who interfered, and how often the campaign may be sent.
        self.said: set[str] = set()
        self.succeeded: set[str] = set()
        self.removed = False
        self.edited: set[str] = set()
        self.interfered = False
        self.unheard = False
        self.most_sent = 1
        self.theirs: set[str] = set()
        self.store: StateStore | None = None
        self.alone = alone
        if last_week and not alone:
            self.people("create an equal one")
            self.clock.sleep(7 * DAY)
        if when == "in an hour":
            send_date = self.service.clock.now().replace(microsecond=0) + timedelta(hours=1)
            self.request = self.request.model_copy(update={"send_date": send_date})
        self.choice, self.adopt_older = choice, adopt_older
        self.began = datetime.now(UTC) + timedelta(hours=scheduler)
        self.clocks_agree = hours >= 0 and scheduler <= 0
        self.last_week = set(self.theirs)
        # The record of the task, and what clearing does to it.
        self.store = StateStore() if stored else None
        self.tries = self.cleared = 0
        self.again = False

    # What happens.

    @rule(faults=FAULTS, dies=DEATHS, meanwhile=MEANWHILE)
    def try_it(self, faults: Any, dies: tuple[int, bool] | None, meanwhile: tuple[str, str, int] | None) -> None:
        """A try, by a process that may die, while people may do something; faults stay until they have struck."""
        for kind, operation, skip, count, params in faults:
            self.service.faults.add(kind, operation, skip=skip, count=count, **params)
        self.run_try(dies, meanwhile)

    def run_try(self, dies: tuple[int, bool] | None = None, meanwhile: tuple[str, str, int] | None = None) -> object:
        record = self.next_record()
        barred = self.removed and not (record.cleared or record.creation.incomplete)
        client: Any = self.client
        if dies is not None:
            steps, heard = dies
            client = DyingClient(client, steps, last_heard=heard)
            self.unheard |= not heard
        acting: Any = nullcontext()
        if meanwhile is not None and meanwhile[0] in EVENTS:
            event, _, number = meanwhile
            self.clocks_agree &= event in ("hold", "renewal")
            acting, meanwhile = happening((event, number), self.service, self.clock), None
        elif self.alone:
            meanwhile = None
        elif meanwhile is not None:
            action, operation, number = meanwhile
            acting = at_request(self.service, operation, number, lambda: self.people(action))
        before = {campaign["guid"] for campaign in self.ours()}
        try:
            with acting:
                creation = create_campaign(
                    client,
                    self.request,
                    on_incomplete=self.choice,
                    state=record,
                    not_older_than=None if self.adopt_older else self.began,
                )
        except Killed as death:
            return death
        except MailError as error:
            self.judge_error(error, self.ours(but=before), meanwhile is None)
            return error
        else:
            if meanwhile is None:
                self.judge_success(creation, {campaign["guid"] for campaign in self.ours(but=before)})
            return creation
        finally:
            made = self.ours(but=before)
            assert not (barred and made), "what people removed was created again"
            # A task that was cleared may have forgotten it, and creates it later.
            self.removed &= not made and (record.creation.seen or not record.cleared)

    @rule()
    def calm(self) -> None:
        """The faults are over and the service shows all: then it is known what became of the campaign."""
        self.service.faults.clear()
        self.clock.sleep(SETTLED)
        wanted = self.again and not self.live() and self.request.send_date is None and self.record().cleared
        outcome = self.run_try()
        assert not getattr(outcome, "temporary", False), outcome
        # Without a record, one lookup must do, and it may be too early.
        late = isinstance(outcome, MailValidationError) and not (self.ours() and self.store)
        # Nor does it know whose a campaign is, once as many hours have passed as the clocks are apart.
        late |= self.store is None and not self.clocks_agree and "is older than this run" in str(outcome)
        kept = any(entry["code"] == 500 for entry in self.service.journal.entries(SENDS))
        if wanted or not (self.interfered or kept or late):
            assert isinstance(outcome, Creation), outcome

    @rule(again=st.booleans())
    def clear(self, again: bool) -> None:
        """A user clears the task, perhaps with ``send_again``."""
        self.cleared += 1
        self.again = again
        self.most_sent += again

    @precondition(lambda self: self.store is not None and self.ours())
    @rule()
    def try_under_another_name(self) -> None:
        """A name with the present time: no retry may create what an earlier try has created under another one.

        With ``send_again``, the user has accepted that everybody is mailed again.
        """
        record = self.next_record()
        if not record.cleared or (self.hidden() and not self.again):
            other = self.request.model_copy(update={"mail_name": f"at {self.tries}"})
            with pytest.raises(MailError):
                create_campaign(self.client, other, state=record)
            assert not self.service.campaigns(other.mail_name)

    @rule()
    def repair_service(self) -> None:
        self.service.faults.clear()

    @rule(seconds=st.sampled_from([30, 5 * MINUTE, 20 * MINUTE, 2 * HOUR]))
    def wait(self, seconds: int) -> None:
        self.clock.sleep(seconds)

    @precondition(lambda self: not self.alone)
    @rule(action=st.sampled_from(PEOPLE))
    def try_after_people(self, action: str) -> None:
        self.people(action)
        self.run_try()

    def people(self, action: str) -> None:
        """Others do something to the campaign of that name, or create one."""
        self.interfered = True
        store = self.service.service.store
        live = self.live()
        if action.startswith("create"):
            subject = {"subject": "Other"} if "another" in action else {}
            if by_others(self.service, self.request.model_copy(update=subject)):
                (campaign,) = self.live()
                self.theirs.add(campaign["guid"])
                self.edited |= {campaign["guid"]} if subject else set()
        elif action == "cancel":
            by_others(self.service, CancelCampaign(mail_name=self.name))
            self.removed |= bool(live) and not self.live() and self.knows(live[0])
        elif action == "edit":
            store.run("UPDATE campaigns SET subject = 'Edited' WHERE name = ? AND deleted_at IS NULL", [self.name])
            self.edited |= {campaign["guid"] for campaign in live}
        elif live:
            (campaign,) = live
            unknown = campaign["guid"] not in self.said or self.store is None
            self.most_sent += campaign["guid"] not in self.theirs and unknown and mailed(campaign)
            self.removed |= self.knows(campaign)
            self.service.set_campaign_state(self.name, "removed")

    # What must be true.

    @invariant()
    def at_most_one_is_sent(self) -> None:
        sent = [campaign for campaign in self.ours() if mailed(campaign)]
        assert len(sent) <= self.most_sent, sent

    def judge_success(self, creation: Creation, made: set[str]) -> None:
        """There is the campaign that was asked for, it goes out, and it is this task's."""
        (campaign,) = self.live()
        guid = campaign["guid"]
        assert creation.guid == guid
        assert made <= {guid}
        assert creation.adopted or guid in made
        assert guid not in self.edited
        if not self.request.only_save:
            assert campaign["state"] in GOING_OUT
            assert not campaign["cancelled"] or campaign["state"] == "failed"
        if self.store is not None and not self.unheard:
            assert creation.incomplete or not campaign["keptBecause"]
        assert not creation.incomplete or self.choice == "keep"
        if guid in self.theirs and not (self.adopt_older or self.request.only_save):
            # Of an attempt whose response was lost it cannot be known what it created.
            unknown = self.tries > 1 and self.store is None and guid not in self.last_week
            assert unknown or self.service.journal.count(SENDS) or campaign["state"] == "failed"
        self.said.add(guid)
        self.succeeded.add(guid)

    def judge_error(self, error: MailError, made: list[Any], alone: bool) -> None:
        """What it says was not done was not done, and who follows its advice mails nobody twice."""
        text, live = str(error), self.live()
        if type(error) is MailRejectedError or re.search("(?i)nothing was sent|created nothing", text):
            assert not made, text
        if not alone:
            return
        if self.store and self.hidden() and error.operation == CreateCampaign.path:
            assert error.temporary, f"the next try would find it: {text}"
        if isinstance(error, MailIncompleteCampaignError):
            (campaign,) = live or [self.service.campaigns(self.name)[-1]]
            assert live or campaign["cancelled"], text
            assert ("It was cancelled" in text) <= campaign["cancelled"]
            self.said.add(campaign["guid"])
        shown = [campaign for campaign in self.ours() if not campaign["removed"] and self.visible(campaign)]
        assert " is gone" not in text or not shown, text
        own = [campaign for campaign in self.ours() if not campaign["removed"] or campaign["guid"] in self.said]
        warned = re.search("mails (everybody again|every recipient a second time)", text)
        if not warned and re.search("(?i)delete|choose|run again|clear th", text):
            newest = own[-1:]
            assert not any(mailed(campaign) for campaign in newest), text
        if not warned and re.search("(?i)choose another", text):
            assert not any(campaign["state"] == "scheduled" for campaign in live if campaign in own), text

    # How it is known.

    def knows(self, campaign: Any) -> bool:
        """Whether it is stored that a try has created or adopted the campaign."""
        return self.store is not None and campaign["guid"] in self.succeeded

    def next_record(self) -> Any:
        self.tries += 1
        return self.record()

    def record(self) -> Any:
        return creation_record(self.store, try_number=self.tries, max_tries=self.cleared, send_again=self.again)

    def ours(self, *, but: set[str] = frozenset()) -> list[Any]:  # type: ignore[assignment]
        """The campaigns that the task has created."""
        return [campaign for campaign in self.service.campaigns(self.name) if campaign["guid"] not in self.theirs | but]

    def live(self) -> list[Any]:
        return [campaign for campaign in self.service.campaigns(self.name) if not campaign["removed"]]

    def hidden(self) -> bool:
        """Whether a campaign that the task created, and no try knows of, does not show yet."""
        own = [campaign for campaign in self.ours() if not campaign["removed"]]
        return any(campaign["guid"] not in self.succeeded and not self.visible(campaign) for campaign in own)

    def visible(self, campaign: Any) -> bool:
        created = datetime.fromisoformat(campaign["created"])
        hidden = timedelta(seconds=self.service.settings.visible_after_seconds)
        return created + hidden < self.service.clock.now()


def mailed(campaign: Any) -> bool:
    return bool(campaign["sentCount"])


@pytest.fixture
def machine(emulator: Emulator, clock: Clock) -> Iterator[type[Creating]]:

    def config() -> ClientConfig:
        return ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)

    def check_hold(operation: str) -> None:
        if operation == CreateCampaign.path and HOLD in os.environ:
            raise MailHeldError("held: this request was not sent", operation=operation)

    with MailClient(config(), before_request=check_hold, renew=config) as client:

        class Machine(Creating):
            service = emulator

        Machine.clock, Machine.client = clock, client
        yield Machine


def test_creating(machine: type[Creating]) -> None:
    run_machine(machine, 100, 10)
