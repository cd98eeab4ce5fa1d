"""Creating, changing, deleting and sending: what was said is what the service holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import SecretStr

from airflow_provider_mail.api._core.requests import Flow, MailRequest
from airflow_provider_mail.api.campaigns import Attachment, CancelCampaign, CreateCampaign, DeleteCampaign
from airflow_provider_mail.api.contacts import DeleteContact, UpsertContact
from airflow_provider_mail.api.errors import MailError, MailIncompleteCampaignError
from airflow_provider_mail.api.flows import ensure
from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.api.flows.configure_webhook import configure_webhook
from airflow_provider_mail.api.flows.create_campaign import create_campaign
from airflow_provider_mail.api.lists import AddList, DeleteList
from airflow_provider_mail.api.oauth import GetToken
from airflow_provider_mail.api.senders import AddSender, DeleteSender
from airflow_provider_mail.api.templates import AddTemplate, DeleteTemplate
from airflow_provider_mail.api.transactional import MessageVersion, Recipient, SendBatch, SendMail
from airflow_provider_mail.api.webhooks import EventToggles, SaveWebhook
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver, driver
from tests.document.test_oauth_end_to_end import authorization_code, opens
from tests.faults.cases import Case
from tests.faults.flow_reads import fill
from tests.faults.flows import FlowWorkload, config_of, done_unless_said
from tests.faults.workload import Finding, Said, Wrong

NAME = "weekly"
SENDER = "news@example.com"
CUSTOMERS = [f"c{number}@example.com" for number in range(3)]


def campaign(**fields: Any) -> CreateCampaign:
    given = {
        "sender_mail": SENDER,
        "subject": "News",
        "content": "<p>News</p>",
        "send_list_names": ["customers"],
    }
    return CreateCampaign(mail_name=NAME, **given | fields)


def campaigns_held(service: Emulator) -> Iterator[Finding]:
    """No campaign of the name is there twice, and nobody was written to twice."""
    if len(service.campaigns(NAME)) > 1:
        yield Wrong.CAMPAIGN_TWICE, f"{len(service.campaigns(NAME))} of {NAME!r}"
    if any(count > 1 for count in Counter(service.campaign_recipients(NAME)).values()):
        yield Wrong.MAIL_TWICE, "somebody was written to twice"


class Create(FlowWorkload):
    """A campaign, exactly once, among others whose names contain its name."""

    adopts = True

    def __init__(
        self, how: str, request: CreateCampaign, *, there: bool = False, cancelled: bool = False, **settings: Any
    ) -> None:
        self.name = f"create a campaign, {how}"  # type: ignore[misc]
        self.settings = settings  # type: ignore[misc]
        self._request = request
        self._there = there
        self._cancelled = cancelled

    def arrange(self, service: Emulator) -> None:
        service.add_list("customers", CUSTOMERS)
        for number in range(3):
            service.add_campaign(f"{number} {NAME}")
        if self._there:
            earlier = driver("sync", config_of(service))
            earlier.send(self._request)
            if self._cancelled:
                earlier.send(CancelCampaign(mail_name=NAME))
            earlier.close()

    def act(self, client: Driver, service: Emulator) -> Any:
        return client.run(create_campaign(self._request))

    def must_end_well(self, case: Case) -> bool:
        return not self._cancelled and super().must_end_well(case)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        yield from campaigns_held(service)
        there = service.campaigns(NAME)
        if said.green and (len(there) != 1 or there[0]["keptBecause"] or there[0]["guid"] != said.result.guid):
            yield Wrong.UNTRUE, f"success, and the service holds {there}"
        if said.green and there and there[0]["cancelled"]:
            yield Wrong.UNTRUE, "success, and it does not go out"
        if isinstance(said.error, MailIncompleteCampaignError) and not there:
            yield Wrong.UNTRUE, "the service is said to have kept a campaign"


class Change(FlowWorkload):
    """A request that changes something, as it is or in a flow that looks too, and what is left alone."""

    def __init__(
        self,
        what: str,
        request: MailRequest[Any],
        done: Callable[[Emulator], Any],
        flow: Callable[[Any], Flow[Any]] | None = None,
    ) -> None:
        self.name = f"{what}, looking too" if flow else what  # type: ignore[misc]
        self.adopts = flow is not None
        self._request = request
        self._flow = flow
        self._done = done
        self._neighbours: Any = None

    def arrange(self, service: Emulator) -> None:
        fill(service)
        service.add_contact("doomed@example.com")
        service.add_list("doomed")
        service.add_template("doomed", subject="Hi", content="<p>Hi</p>")
        service.add_campaign("doomed")
        service.add_sender("doomed.example.com", types=[2])
        service.add_campaign("waiting", state="scheduled", send_date=LATER)
        self._neighbours = neighbours(service)

    def act(self, client: Driver, service: Emulator) -> Any:
        if self._flow is not None:
            return client.run(self._flow(self._request))
        client.send(self._request)
        return None

    def undecidable(self, case: Case) -> bool:
        return isinstance(self._request, DeleteContact) and self.adopts and refuses_in_its_words(case)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        yield from done_unless_said(said, bool(self._done(service)), self._request.path)
        if said.green and said.result in (False, []):
            yield Wrong.UNTRUE, "it is said that there was nothing to do"
        if missing := self._neighbours - neighbours(service):
            yield Wrong.UNTRUE, f"something else is gone: {missing}"
        if twice := [name for name, count in Counter(names(service)).items() if count > 1]:
            yield Wrong.UNTRUE, f"there twice: {twice}"


def refuses_in_its_words(case: Case) -> bool:
    """Whether the service refuses. How it answers for a contact that is not there is not shown: that may be meant."""
    return any(strike.variant.kind.name == "code_before" for strike in case.strikes)


class CancelAtAnyRate(Change):
    """A cancellation that must not end in an error: what went wrong is told."""

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if not said.green:
            yield Wrong.FOREIGN, "it must not end in an error"
        elif said.result.done and not self._done(service):
            yield Wrong.UNTRUE, "it is said to be cancelled, and may go out"


def names(service: Emulator) -> list[tuple[str, str]]:
    """Everything that has a name, and can be there twice only by mistake."""
    return [
        *(("contact", contact["email"]) for contact in service.contacts()),
        *(("list", each["name"]) for each in service.lists()),
        *(("template", each["name"]) for each in service.templates()),
        *(("sender", f"{each['entry']} {each['type']}") for each in service.senders()),
        *(("campaign", each["mailName"]) for each in service.campaigns() if not each["removed"]),
    ]


def neighbours(service: Emulator) -> set[tuple[str, str]]:
    return {named for named in names(service) if "doomed" not in named[1] and named[1] != "waiting"}


class GetAToken(FlowWorkload):
    """A code for a token, once: either the token works, or the code was not used, or that is unknown."""

    name = "get a token"

    def __init__(self) -> None:
        self._code = ""

    def arrange(self, service: Emulator) -> None:
        self._code = authorization_code(service)

    def act(self, client: Driver, service: Emulator) -> Any:
        settings = service.settings
        secret, code = SecretStr(settings.oauth_client_secret), SecretStr(self._code)
        return client.send(GetToken(client_id=settings.oauth_client_id, client_secret=secret, code=code))

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and not opens(said.result, config_of(service)):
            yield Wrong.UNTRUE, "the token does not open the service"
        if isinstance(said.error, MailError) and not said.error.may_have_taken_effect:
            again = driver("sync", config_of(service))
            try:
                self.act(again, service)
            except MailError:
                yield Wrong.UNTRUE, "the error says that nothing was done, and the code is used"
            finally:
                again.close()


class Send(FlowWorkload):
    """Transactional mail: each person gets one, or none."""

    def __init__(self, what: str, request: SendMail | SendBatch, people: list[str]) -> None:
        self.name = what  # type: ignore[misc]
        self._request = request
        self._people = people

    def act(self, client: Driver, service: Emulator) -> Any:
        client.send(self._request)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        mails = mailed(service)
        if any(count > 1 for count in mails.values()):
            yield Wrong.MAIL_TWICE, str(mails)
        if mails and len(mails) < len(self._people):
            yield Wrong.UNTRUE, "one request reached only some of its people"
        yield from done_unless_said(said, bool(mails), self._request.path)


def mailed(service: Emulator) -> Counter[str]:
    """How many transactional mails each address got."""
    return Counter(person["email"] for message in service.messages() for person in message["recipients"])


def _people(*addresses: str) -> list[Recipient]:
    return [Recipient(email=address) for address in addresses]


def _shown(name: str, what: str) -> Callable[[Emulator], bool]:
    return lambda service: (what, name) in names(service)


def _gone(name: str, what: str) -> Callable[[Emulator], bool]:
    return lambda service: (what, name) not in names(service)


def _cancelled(service: Emulator) -> bool:
    return bool(service.campaigns("waiting")[0]["cancelled"])


def _saved(service: Emulator) -> bool:
    return bool(service.webhook()["transCallbackUrl"] == CALLBACK)


def _upserted(service: Emulator) -> bool:
    return [contact["name"] for contact in service.contacts("list 1")] == ["New"]


LATER = datetime(2030, 1, 1, tzinfo=UTC)
CALLBACK = "http://127.0.0.1:9/hook"

CANCEL = CancelCampaign(mail_name="waiting")
UPSERT = UpsertContact(email="new@example.com", name="New", list_name="list 1")
SAVE = SaveWebhook(trans_callback_url=CALLBACK, trans_event=EventToggles(opened=True), trans_enable=False)
ADDITIONS: dict[str, tuple[MailRequest[Any], Callable[[Emulator], bool]]] = {
    "list": (AddList(list_name="new"), _shown("new", "list")),
    "template": (
        AddTemplate(template_name="new", template_content="<p>Hi</p>", template_subject="Hi"),
        _shown("new", "template"),
    ),
    "sender": (AddSender(sender_email="new.example.com", sender_type="1"), _shown("new.example.com 1", "sender")),
}
DELETIONS: dict[str, tuple[MailRequest[Any], Callable[[Emulator], bool]]] = {
    "contact": (DeleteContact(email="doomed@example.com"), _gone("doomed@example.com", "contact")),
    "list": (DeleteList(list_name="doomed"), _gone("doomed", "list")),
    "template": (DeleteTemplate(template_name="doomed"), _gone("doomed", "template")),
    "sender": (DeleteSender(sender_email="doomed.example.com"), _gone("doomed.example.com 2", "sender")),
    "campaign": (DeleteCampaign(mail_name="doomed"), _gone("doomed", "campaign")),
}

CHANGES = (
    Create("the first", campaign()),
    Create("for later", campaign(send_date=LATER)),
    Create("a draft", campaign(only_save=True, send_list_names=None)),
    Create("with an attachment", campaign(attachment=Attachment(file_name="a.txt", file_data="QQ=="))),
    Create("that appears late", campaign(), visible_after_looks=1),
    Create("behind pages of others", campaign(), max_page_size=2, newest_first=False),
    Create("that is there", campaign(), there=True, max_page_size=2, newest_first=False),
    Create("for later, that is there", campaign(send_date=LATER), there=True, scheduled_status=-1),
    Create("that was cancelled", campaign(send_date=LATER), there=True, cancelled=True, state_after_cancel="cancelled"),
    Change("cancel a campaign", CANCEL, _cancelled),
    CancelAtAnyRate("cancel a campaign", CANCEL, _cancelled, lambda request: cancel_campaign(request.mail_name)),
    *(Change(f"add a {what}", *addition) for what, addition in ADDITIONS.items()),
    *(Change(f"add a {what}", *addition, ensure.create) for what, addition in ADDITIONS.items()),
    *(Change(f"delete a {what}", *deletion) for what, deletion in DELETIONS.items()),
    *(Change(f"delete a {what}", *deletion, ensure.delete) for what, deletion in DELETIONS.items()),
    Change("upsert a contact", UPSERT, _upserted),
    Change("save the webhook", SAVE, _saved),
    Change("save the webhook", SAVE, _saved, configure_webhook),
    GetAToken(),
    Send(
        "send one mail",
        SendMail(subject="Hi", content="<p>Hi</p>", sender_mail=SENDER, to=Recipient(email="a@example.com")),
        ["a@example.com"],
    ),
    Send(
        "send a batch",
        SendBatch(
            subject="Hi",
            content="<p>Hi</p>",
            sender_mail=SENDER,
            message_versions=[
                MessageVersion(to=_people("a@example.com", "b@example.com")),
                MessageVersion(to=_people("c@example.com"), cc=_people("d@example.com")),
            ],
        ),
        [f"{name}@example.com" for name in "abcd"],
    ),
)
