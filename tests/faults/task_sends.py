"""Tasks that mail people: campaigns exactly once, transactional mail at most once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.creation_state import TASK_STATE_KEY as CAMPAIGN_KEY
from airflow_provider_mail.api.campaigns import CreateCampaign as CreateRequest
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailIncompleteCampaignError, chain_of
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.transactional import TASK_STATE_KEY, MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator
from tests.faults.cases import Case
from tests.faults.flow_changes import CUSTOMERS, NAME, SENDER, campaigns_held, mailed
from tests.faults.flows import config_of
from tests.faults.stores import Database
from tests.faults.tasks import TaskWorkload
from tests.faults.tries import HAS_STORE
from tests.faults.workload import Finding, Said, Wrong


class CreateCampaign(TaskWorkload):
    """A campaign, perhaps waited for."""

    adopts = True
    remembers = True

    def __init__(
        self,
        how: str,
        *,
        age: int = 0,
        renamed: bool = False,
        deleted: bool = False,
        worker: float = 0,
        scheduler: float = 0,
        **arguments: Any,
    ) -> None:
        """
        :param age: how many seconds ago another run created a campaign of that name.
        :param deleted: whether people delete the campaign after each try.
        :param worker: hours by which the worker's clock is ahead of the service's.
        :param scheduler: likewise.
        """
        super().__init__()
        self.name = f"task: create a campaign, {how}"  # type: ignore[misc]
        self.clocks = timedelta(hours=worker), timedelta(hours=scheduler)
        self._age = age
        self._deleted = deleted
        self._most: int | None = None
        # As with the present time in the name. Without a store nothing is known of the other name.
        self._renamed = renamed
        self.remembers = not (renamed or deleted or scheduler)
        self.settings = {"sending_looks": 2}  # type: ignore[misc]
        self._arguments = arguments

    def arrange(self, service: Emulator) -> None:
        self._service = service
        self._most = None
        service.clock.advance(-self.clocks[0].total_seconds())
        service.add_list("customers", CUSTOMERS)
        service.add_campaign(f"other {NAME}")
        if self._age:
            service.clock.advance(-self._age)
            with MailClient(config_of(service)) as earlier:
                earlier.send(
                    CreateRequest(mail_name=NAME, sender_mail=SENDER, subject="News", content="<p>News</p>",
                                  send_list_names=["customers"])
                )  # fmt: skip
            service.clock.advance(self._age)

    def must_end_well(self, case: Case) -> bool:
        return not (self._age or self._renamed or self._deleted) and super().must_end_well(case)

    def operator(self, **identity: Any) -> BaseOperator:
        name = f"{NAME} {next(NUMBERS)}" if self._renamed else NAME
        given = {"task_id": "task", "mail_name": name, **self._arguments, **identity}
        return MailCreateCampaignOperator(
            sender_mail=SENDER,
            subject="News",
            content="<p>News</p>",
            send_list_names=["customers"],
            **given,
        )

    def begin_try(self) -> BaseOperator:
        """Delete the campaign before each further try; if it is recorded that it was created, for the last time."""
        campaigns = self._service.campaigns(NAME)
        if self._deleted and self.task.tries > 1 and campaigns and self._most is None:
            self._service.set_campaign_state(NAME, "removed")
            record = self.task.store.get(CAMPAIGN_KEY) if self.task.store else None
            self._most = len(campaigns) if record and record["seen"] else None
        return self.operator()

    def gives_up(self, service: Emulator, error: BaseException | None) -> bool:
        # What the service kept, or seems to have kept, a person must deal with.
        kept = any(each["keptBecause"] for each in service.campaigns(NAME))
        if self._age or self._renamed or self._deleted or kept:
            return True
        return error is not None and any(isinstance(each, MailIncompleteCampaignError) for each in chain_of(error))

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if self._deleted:
            # Only what is known to have been created must not be created again.
            if self._most is not None and len(service.campaigns(NAME)) > self._most:
                yield Wrong.MAIL_TWICE, "what people deleted was created again"
            return
        yield from campaigns_held(service)
        if self._renamed:
            created = [each["mailName"] for each in service.campaigns() if each["mailName"].startswith(f"{NAME} ")]
            if len(created) > 1:
                yield Wrong.MAIL_TWICE, f"a campaign in every try: {created}"
            return
        there = service.campaigns(NAME)
        if not said.green:
            return
        if self._age:
            yield Wrong.UNTRUE, "success, and nobody was mailed"
        if len(there) != 1 or there[0]["guid"] != said.result["guid"]:
            yield Wrong.UNTRUE, f"success, and the service holds {there}"
        elif there[0]["keptBecause"] and not said.result.get("incomplete") and self.task.tries == 1:
            yield Wrong.UNTRUE, "a kept campaign is taken for a whole one"
        elif self._arguments.get("wait_for_completion") and there[0]["mailStats"] is None:
            yield Wrong.INCOMPLETE, "it is said to have gone out"


class Send(TaskWorkload):
    """Transactional mail in several requests, or one."""

    # What is unknown stays unknown.
    recovers = False
    remembers = True

    def __init__(self, on_ambiguous: str, *, single: bool = False) -> None:
        super().__init__()
        self.name = f"task: send {'one mail' if single else 'a batch'}, {on_ambiguous}"  # type: ignore[misc]
        self.on_ambiguous = on_ambiguous
        self._people = [f"p{number}@example.com" for number in range(1 if single else 6)]
        self._single = single

    def operator(self, **identity: Any) -> BaseOperator:
        given = {"task_id": "task", "on_ambiguous": self.on_ambiguous, **identity}
        common = {"sender_mail": SENDER, "subject": "Hi", "content": "<p>Hi</p>", **given}
        if self._single:
            return MailSendOperator(to=self._people[0], **common)
        messages = [{"to": address} for address in self._people]
        return MailSendBatchOperator(messages=messages, versions_per_request=IN_ONE, **common)

    def must_end_well(self, case: Case) -> bool:
        """Also what is unknown, when it is to be skipped, or to be sent again and the memory knows which."""
        if case.passes(adopts=False):
            return True
        goes_on = self.on_ambiguous == "skip" or (self.on_ambiguous == "resend" and self.task.store is not None)
        passing = [strike.variant.passes and strike.count in (1, 2) for strike in case.strikes]
        return goes_on and not case.wild and passing == [True]

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        mails = mailed(service)
        twice = sorted(address for address, count in mails.items() if count > 1)
        if twice and self.on_ambiguous != "resend":
            yield Wrong.MAIL_TWICE, str(twice)
        if self.on_ambiguous != "skip" and set(mails) != set(self._people[: len(mails)]):
            yield Wrong.UNTRUE, f"it went on behind a request that failed: {sorted(mails)}"
        record = self.task.store.get(TASK_STATE_KEY) if self.task.store else None
        if record and record["recipients"] > len(mails):
            yield Wrong.UNTRUE, f"{record} is remembered, and {sorted(mails)} were mailed"
        if not said.green:
            return
        told = Counter({name: said.result[name] for name in ("recipients", "unknown_recipients")})
        missing = [address for address in self._people if address not in mails]
        if told.total() != len(self._people):
            yield Wrong.UNTRUE, f"of {len(self._people)} people it tells of {told.total()}"
        if len(missing) > told["unknown_recipients"]:
            yield Wrong.INCOMPLETE, f"nobody told of {missing}"
        if self.on_ambiguous != "skip" and told["unknown_recipients"]:
            yield Wrong.UNTRUE, f"{self.on_ambiguous} leaves nobody unknown"


class SendWhereIdsCount(Send):
    """To a service that takes no ``uniqueMsgID`` twice: then nobody is mailed twice, whatever is sent again."""

    def __init__(self) -> None:
        super().__init__("resend")
        self.name = "task: send a batch, resend, ids count"  # type: ignore[misc]

    def arrange(self, service: Emulator) -> None:
        service.change_settings(duplicate_unique_msg_id_code=400)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        yield from super().held(service, said)
        twice = sorted(address for address, count in mailed(service).items() if count > 1)
        if twice:
            yield Wrong.MAIL_TWICE, str(twice)


class SendRows(Send):
    """A message for each row of a table, personalized."""

    def __init__(self, on_ambiguous: str) -> None:
        super().__init__(on_ambiguous)
        self.name = f"task: send rows of a table, {on_ambiguous}"  # type: ignore[misc]
        self._names = {address: f"Name {number}" for number, address in enumerate(self._people)}
        self._crm = Database(f"crm_{on_ambiguous}")

    def arrange(self, service: Emulator) -> None:
        self._crm.hold("people", ["email", "name"], [*self._names.items()])

    def operator(self, **identity: Any) -> BaseOperator:
        return SqlToMailBatchOperator(
            task_id="task",
            sql_conn_id=self._crm.conn_id,
            sql="SELECT email, name FROM people ORDER BY email",
            versions_per_request=IN_ONE,
            sender_mail=SENDER,
            subject="Hi",
            content="{{name}}",
            on_ambiguous=self.on_ambiguous,
        )

    def connections(self, service: Emulator, timeout: float) -> dict[str, Any]:
        return super().connections(service, timeout) | self._crm.connection()

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        yield from super().held(service, said)
        for message in service.messages():
            for person in message["recipients"]:
                if message["content"] != self._names[person["email"]]:
                    yield Wrong.UNTRUE, f"{person} was sent what is another one's: {message['content']}"


IN_ONE = 2
NUMBERS = count()
HOUR = 3_600
WEEK = 7 * 24 * HOUR
WAIT: dict[str, Any] = {"wait_for_completion": True, "poke_interval": 1.0, "deferrable": False}
CHOICES = ("fail", "skip", "resend")

# Without a store it is not known which campaign is the task's own.
REMEMBERED = (
    CreateCampaign("the scheduler's clock ahead", scheduler=2),
    CreateCampaign("with the name of an hour ago, the scheduler's clock behind", age=HOUR, scheduler=-2),
    CreateCampaign("with another name in every try", renamed=True, **WAIT),
    CreateCampaign("that people delete after each try", deleted=True, **WAIT),
)

SENDS = (
    CreateCampaign("and go on"),
    CreateCampaign("and wait", **WAIT),
    CreateCampaign("with the name of last week's", age=WEEK),
    CreateCampaign("with the name of an hour ago, the worker's clock ahead", age=HOUR, worker=2),
    CreateCampaign("the worker's clock ahead", worker=2),
    CreateCampaign("the worker's clock behind", worker=-2),
    *(REMEMBERED if HAS_STORE else ()),
    CreateCampaign("cancelling what is kept", on_incomplete="cancel"),
    CreateCampaign("keeping what is kept", on_incomplete="keep", **WAIT),
    *(Send(choice) for choice in CHOICES),
    SendWhereIdsCount(),
    *(Send(choice, single=True) for choice in CHOICES),
)

ROW_SENDS = tuple(SendRows(choice) for choice in CHOICES)
