"""Lists, templates, senders and the webhook: as they are wanted, once, whatever happens to a response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.contacts import DeleteContact
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConflictError,
    MailNotFoundError,
    MailRejectedError,
    MailServerError,
    MailValidationError,
)
from airflow_provider_mail.api.flows.cancel_campaign import StopResult, stop_campaigns
from airflow_provider_mail.api.flows.create_once import create, delete
from airflow_provider_mail.api.lists import AddList, DeleteList
from airflow_provider_mail.api.senders import AddSender, DeleteSender
from airflow_provider_mail.api.templates import AddTemplate, DeleteTemplate
from airflow_provider_mail.api.webhooks import GetWebhook, SaveWebhook, configure_webhook
from mail_emulator import Emulator
from tests.api.driving import QUICK
from tests.support.changes import at_request, by_others
from tests.support.clock import Clock
from tests.support.sampling import examples

pytestmark = pytest.mark.usefixtures("clock")


@dataclass(frozen=True)
class Kind:
    """A kind of thing with a name: how it is requested, how its names are read, and how to add a longer name."""

    add: Any
    remove: Any
    names: Callable[[Emulator], list[Any]]
    longer: Callable[[Emulator], object]

    def held(self, service: Emulator) -> int:
        return self.names(service).count(next(iter(self.remove.model_dump(exclude_none=True).values())))


TEMPLATE = AddTemplate(template_name="hello", template_content="<p>{{name}}</p>", template_subject="Hello")
KINDS = {
    "list": Kind(
        AddList(list_name="friends"),
        DeleteList(list_name="friends"),
        lambda service: [row["name"] for row in service.lists()],
        lambda service: service.add_list("old friends"),
    ),
    "template": Kind(
        TEMPLATE,
        DeleteTemplate(template_name="hello"),
        lambda service: [row["name"] for row in service.templates()],
        lambda service: service.add_template("hello again", subject="Hello", content="<p></p>"),
    ),
    "sender": Kind(
        AddSender(sender_email="fresh@example.com", sender_type="1"),
        DeleteSender(sender_email="fresh@example.com"),
        lambda service: [row["entry"] for row in service.senders()],
        lambda service: service.add_sender("old.fresh@example.com"),
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@kinds
def test_created_and_deleted_once(kind: Kind, emulator: Emulator, client: MailClient) -> None:
    kind.longer(emulator)
    emulator.faults.add("code_before", kind.add.path, code=401, http_status=401)
    with pytest.raises(MailAuthError):
        create(client, kind.add)
    assert emulator.journal.count(kind.add.path) == 1, "a rejected key is not tried again"
    emulator.faults.add("close_after", kind.add.path)
    assert create(client, kind.add) is True
    assert create(client, kind.add) is False
    assert (emulator.journal.count(kind.add.path), kind.held(emulator)) == (2, 1)
    emulator.faults.add("code_before", kind.remove.path, code=403)
    with pytest.raises(MailRejectedError):
        delete(client, kind.remove)
    emulator.journal.clear()
    assert delete(client, kind.remove) is True
    assert delete(client, kind.remove) is False
    assert (emulator.journal.count(kind.remove.path), kind.held(emulator)) == (1, 0)
    with pytest.raises(MailNotFoundError, match="no resource of that name"):
        delete(client, kind.remove, missing_ok=False)


def test_a_contact_that_is_not_found_is_deleted_all_the_same(emulator: Emulator, client: MailClient) -> None:
    """The lookup may be rejected for another reason."""
    emulator.add_contact("ada@example.com")
    emulator.faults.add("code_before", "contacts/get", code=404)
    delete(client, DeleteContact(email="ada@example.com"))
    assert emulator.contact("ada@example.com") is None
    assert delete(client, DeleteContact(email="ada@example.com")) is False


@kinds
def test_others_were_quicker(kind: Kind, emulator: Emulator, client: MailClient) -> None:
    look = kind.add.path.removeprefix("/v5/").replace("add", "get")
    with at_request(emulator, look, 1, lambda: by_others(emulator, kind.add)):
        assert create(client, kind.add) is False
    assert kind.held(emulator) == emulator.journal.count(kind.add.path) == 1


def test_a_template_that_differs(emulator: Emulator, client: MailClient) -> None:
    emulator.add_template("hello", subject="Hello", content="<p>old</p>")
    remove = KINDS["template"].remove
    with pytest.raises(MailConflictError, match=r"differs in template_content: choose another name"):
        create(client, TEMPLATE)
    assert emulator.journal.count(AddTemplate.path) == 0
    assert create(client, TEMPLATE, replace=remove) is True
    assert create(client, TEMPLATE, replace=remove) is False
    assert [row["content"] for row in emulator.templates()] == ["<p>{{name}}</p>"]
    assert emulator.journal.count(DeleteTemplate.path) == 1


def test_what_counts_as_another_list_or_sender(emulator: Emulator, client: MailClient) -> None:
    emulator.add_list("friends", dynamic=True)
    with pytest.raises(MailConflictError, match="dynamic list"):
        create(client, KINDS["list"].add)
    emulator.add_sender("Fresh@Example.com", types=[1])
    assert create(client, AddSender(sender_email="fresh@example.com", sender_type="1")) is False
    assert create(client, AddSender(sender_email="other@example.com", sender_type="2")) is True


def test_a_template_that_was_changed_after_a_lost_response(emulator: Emulator, client: MailClient) -> None:
    """To delete it and to try again, as for the template of others, would not help."""
    emulator.faults.add("close_before", AddTemplate.path)
    changed = TEMPLATE.model_copy(update={"template_content": "rewritten"})
    with (
        at_request(emulator, "campaign/mail/template/get", 2, lambda: by_others(emulator, changed), before=True),
        pytest.raises(MailConflictError, match="this task probably created it, and the service rewrites"),
    ):
        create(client, TEMPLATE)


# The webhook configuration becomes what is wanted, and nothing else changes.

SAVE = "webhook/save"
A, B = "https://a.example/hook", "https://b.example/hook"


def configure(client: MailClient, **fields: Any) -> list[str]:
    return configure_webhook(client, SaveWebhook(**fields))


SENDERS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", A, B]))


@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(before=SENDERS, wanted=SENDERS, mode=st.sampled_from(["save", "replace"]))
def test_callbacks_of_senders(
    before: dict[str, str], wanted: dict[str, str], mode: str, emulator: Emulator, client: MailClient
) -> None:
    def extra(by_sender: dict[str, str], mode: str) -> dict[str, Any]:
        callbacks = [{"sender": sender, "url": url} for sender, url in by_sender.items()]
        return {"trans_callback_url_extra": callbacks, "trans_callback_url_extra_update_mode": mode}

    client.send(SaveWebhook(**extra(before, "replace")))
    saves = emulator.journal.count(SAVE)
    configure(client, **extra(wanted, mode))
    existing = {sender: url for sender, url in before.items() if url}
    merged = {**(existing if mode == "save" else {}), **wanted}
    expected = {sender: url for sender, url in merged.items() if url}
    assert {callback.sender: callback.url for callback in client.send(GetWebhook()).callbacks} == expected
    assert emulator.journal.count(SAVE) - saves == (expected != existing)


def test_mistakes_and_what_was_not_saved_are_named(emulator: Emulator, client: MailClient) -> None:
    with pytest.raises(MailValidationError, match="nothing to save"):
        configure(client)
    configure(client, trans_callback_url=A, trans_enable=True)
    # The service reports success and saves nothing.
    emulator.faults.add("code_before", SAVE, code=200, message="", http_status=200)
    with pytest.raises(MailConflictError, match="these fields read back differently: trans_callback_url") as raised:
        configure(client, trans_callback_url=B)
    assert B not in str(raised.value)


# All scheduled campaigns are cancelled, each is verified, and what may be sent nevertheless is named.

CANCEL, GET = "campaign/mail/cancel", "campaign/mail/get"
SOON = "2999-01-01T00:00:00Z"


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_campaign("news sent", send_date="2026-03-01T08:00:00Z")
    emulator.add_campaign("news sending", state="sending")
    emulator.add_campaign("news draft", state="draft")
    for name in ("news a", "news b", "other news"):
        emulator.add_campaign(name, state="scheduled", send_date=SOON)
    return emulator


def stop(emulator: Emulator, prefix: str = "", **options: Any) -> StopResult:
    config = ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, retry=QUICK)
    with MailClient(config) as client:
        return stop_campaigns(client, prefix, **options)


def states(emulator: Emulator) -> dict[str, Any]:
    return {campaign["mailName"]: campaign["state"] for campaign in emulator.campaigns()}


@pytest.mark.parametrize("scheduled_status", [1, -1])
@pytest.mark.parametrize("after", ["draft", "removed", "failed", "cancelled"])
def test_only_the_scheduled_ones_with_that_prefix(service: Emulator, scheduled_status: int, after: str) -> None:
    service.change_settings(scheduled_status=scheduled_status, state_after_cancel=after)
    result = stop(service, "news")
    assert sorted(result.stopped) == ["news a", "news b"]
    assert (dict(result.not_stopped), list(result.sending), result.sent) == ({}, ["news sending"], 1)
    assert states(service)["other news"] == "scheduled"
    assert "scheduled" not in {states(service).get(name) for name in ("news a", "news b")}
    bodies = [entry["body"] for entry in service.journal.entries(CANCEL)]
    in_earnest = [body["mailName"] for body in bodies if not body.get("sandboxMode")]
    assert sorted(in_earnest) == ["news a", "news b"]
    assert stop(service, "news").stopped == []


def test_also_those_that_are_created_meanwhile(service: Emulator, clock: Clock) -> None:
    """While others are cancelled, of which a response is lost; and before all tasks know."""

    def create(name: str) -> None:
        service.add_campaign(f"news {name}", state="scheduled", send_date=SOON)

    for number in range(250):
        create(str(number))
    service.faults.add("close_after", CANCEL)
    with at_request(service, CANCEL, 2, lambda: create("late")):
        assert len(stop(service).stopped) == 254
    create("again")
    clock.after(7, lambda: create("later"))
    assert sorted(stop(service, settle_seconds=8).stopped) == ["news again", "news later"]
    assert "scheduled" not in states(service).values()


def test_what_cannot_be_cancelled_is_named(service: Emulator) -> None:
    service.faults.add("code_before", CANCEL, code=403)
    result = stop(service, "news a")
    assert list(result.stopped) == []
    assert "it is still scheduled" in result.not_stopped["news a"]
    service.faults.add("http_error_before", GET, status=500, count=None)
    with pytest.raises(MailServerError):
        stop(service)


def test_one_that_goes_out_meanwhile_is_named(service: Emulator) -> None:
    with at_request(service, GET, 1, lambda: service.clock.advance(999 * 366 * 86_400)):
        result = stop(service, "news a")
    assert list(result.stopped) == []
    assert "its send time has passed" in result.not_stopped["news a"]
