"""Tasks that make, change or delete one thing, which is done if they say so; and preflights, which see everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_mail.operators.campaigns import MailCancelCampaignOperator, MailDeleteCampaignOperator
from airflow_provider_mail.operators.contacts import MailDeleteContactOperator, MailUpsertContactOperator
from airflow_provider_mail.operators.lists import MailCreateListOperator, MailDeleteListOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.senders import (
    MailAddSenderOperator,
    MailDeleteSenderOperator,
    MailVerifySenderOperator,
)
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator, MailDeleteTemplateOperator
from airflow_provider_mail.operators.webhooks import MailSaveWebhookOperator
from mail_emulator import Emulator
from tests.faults.reads import fill
from tests.faults.trying import Fault, Said, TaskWorkload
from tests.support.tries import Tries

UNVERIFIED = "unverified.example.org"
LATER = datetime(2030, 1, 1, tzinfo=UTC)
CALLBACK = "http://127.0.0.1:9/hook"
Thing = tuple[str, str]


def things(service: Emulator) -> list[Thing]:
    """Everything that has a name, and can be there twice only by mistake."""
    return [
        *(("contact", contact["email"]) for contact in service.contacts()),
        *(("list", found["name"]) for found in service.lists()),
        *(("template", found["name"]) for found in service.templates()),
        *(("sender", f"{found['entry']} {found['type']}") for found in service.senders()),
        *(("campaign", found["mailName"]) for found in service.campaigns() if not found["removed"]),
    ]


def neighbors(service: Emulator) -> set[Thing]:
    return {thing for thing in things(service) if "doomed" not in thing[1]}


class Named(TaskWorkload):
    """An operator that makes, changes or removes one thing."""

    reads = False

    def __init__(
        self, make: Callable[..., BaseOperator], done: Callable[[Emulator], bool], *, more: str = "", **arguments: Any
    ) -> None:
        self.name = f"{make.__name__}{more}"
        self._make, self._done, self._arguments = make, done, arguments

    def arrange(self, service: Emulator) -> None:
        # What is cancelled then looks like one that failed, perhaps when some had been mailed.
        self.recovers = not (
            self._make is MailCancelCampaignOperator and service.settings.state_after_cancel == "failed"
        )
        fill(service)
        service.add_contact("doomed@example.com")
        service.add_list("doomed")
        service.add_template("doomed", subject="Hi", content="<p>Hi</p>")
        service.add_sender("doomed.example.com", types=[2])
        service.add_campaign("doomed")
        service.add_campaign("doomed later", state="scheduled", send_date=LATER)
        # The worker's clock is past its send time: the service's stands at an earlier one.
        service.add_campaign("doomed soon", state="scheduled", send_date=service.clock.now() + timedelta(hours=1))
        self._before = neighbors(service)

    def operator(self) -> BaseOperator:
        return self._make(task_id="task", **self._arguments)

    def undecidable(self, faults: Sequence[Fault]) -> bool:
        # The response for a contact that does not exist is not shown: a rejection may be that.
        return self._make is MailDeleteContactOperator and any(fault.kind == "code_before" for fault in faults)

    def check(self, service: Emulator, said: Said) -> None:
        assert self._done(service) or not said.green, "success, and it was not done"
        assert self._before <= neighbors(service), "something else is gone"
        assert max(Counter(things(service)).values()) == 1, "something is there twice"


class Preflight(TaskWorkload):
    """A preflight whose findings are compared with those of one that nothing disturbed."""

    examples = 12
    reads = False  # code 500 is how the service says that the check of a campaign failed

    def __init__(self, what: str, *, passes: bool, **arguments: Any) -> None:
        self.name = f"preflight of a {what} campaign"
        self._arguments, self._passes = arguments, passes
        self._truth: dict[str, Any] = {}

    def arrange(self, service: Emulator) -> None:
        fill(service)
        service.add_sender(UNVERIFIED)
        service.set_dns(UNVERIFIED, spf=False)
        service.add_list("empty")
        if not self._truth:
            self._truth = super().run(service, "").result
            assert (not self._truth["errors"]) is self._passes, self._truth["table"]
            self.task = Tries(service)
        self._before = self._all(service)

    @staticmethod
    def _all(service: Emulator) -> Any:
        return sorted(things(service)), service.messages(), service.webhook()

    def operator(self) -> BaseOperator:
        return MailPreflightOperator(task_id="task", mail_name="weekly", subject="News", **self._arguments)

    def undecidable(self, faults: Sequence[Fault]) -> bool:
        # The service is believed when it says how many contacts are in a list.
        return any(fault.kind == "wrong_total" for fault in faults)

    def check(self, service: Emulator, said: Said) -> None:
        assert self._all(service) == self._before, "it was only to look, and changed something"
        if not said.green:
            return
        found, truth = by_level(said.result), by_level(self._truth)
        assert truth["error"] <= found["error"], "it passes over something"
        assert found["ok"] | found["warning"] <= truth["ok"] | truth["warning"], "it has not seen that"
        assert said.result["recipients"] == self._truth["recipients"]
        assert said.result["errors"] == len(found["error"])


def by_level(result: dict[str, Any]) -> dict[str, set[tuple[str, str]]]:
    levels: dict[str, set[tuple[str, str]]] = {"ok": set(), "warning": set(), "error": set()}
    for finding in result["findings"]:
        # Why the service rejects it is in the service's words, whatever they are.
        text = "" if finding["check"] == "service" else finding["text"]
        levels[finding["level"]].add((finding["check"], text))
    return levels


def _exists(kind: str, name: str) -> Callable[[Emulator], bool]:
    return lambda service: (kind, name) in things(service)


def _gone(kind: str, name: str) -> Callable[[Emulator], bool]:
    return lambda service: (kind, name) not in things(service)


def _cancelled(name: str) -> Callable[[Emulator], bool]:
    return lambda service: bool(service.campaigns(name)[0]["cancelled"])


def _in_list(service: Emulator) -> bool:
    return [contact["email"] for contact in service.contacts("list 1")] == ["new@example.com"]


def _saved(service: Emulator) -> bool:
    return bool(service.webhook()["transCallbackUrl"] == CALLBACK)


def _replaced(service: Emulator) -> bool:
    return [found["content"] for found in service.templates() if found["name"] == "doomed"] == ["<p>New</p>"]


TEMPLATE = {"template_content": "<p>New</p>", "template_subject": "Hi"}
NAMED = (
    Named(MailCreateListOperator, _exists("list", "new"), list_name="new"),
    Named(MailCreateTemplateOperator, _exists("template", "new"), template_name="new", **TEMPLATE),
    Named(
        MailCreateTemplateOperator, _replaced, more=", replacing", template_name="doomed", replace=True, **TEMPLATE
    ),
    Named(MailAddSenderOperator, _exists("sender", "new.example.com 1"), sender_email="new.example.com", sender_type=1),
    Named(MailVerifySenderOperator, lambda service: True, from_domain="example.com", selector="s1"),
    Named(MailUpsertContactOperator, _in_list, contact_email="new@example.com", list_name="list 1"),
    Named(MailSaveWebhookOperator, _saved, trans_callback_url=CALLBACK, trans_enable=True),
    Named(MailDeleteContactOperator, _gone("contact", "doomed@example.com"), contact_email="doomed@example.com"),
    Named(MailDeleteListOperator, _gone("list", "doomed"), list_name="doomed"),
    Named(MailDeleteTemplateOperator, _gone("template", "doomed"), template_name="doomed"),
    Named(MailDeleteSenderOperator, _gone("sender", "doomed.example.com 2"), sender_email="doomed.example.com"),
    Named(MailDeleteCampaignOperator, _gone("campaign", "doomed"), mail_name="doomed"),
    *(
        Named(MailCancelCampaignOperator, _cancelled(name), more=f" {name}", mail_name=name, ignore_draft=True)
        for name in ("doomed later", "doomed soon")
    ),
)  # fmt: skip

PREFLIGHTS = (
    Preflight(
        "good",
        passes=True,
        sender_mail="news@example.com",
        content="<p>News, {{name}}</p><a>unsubscribe</a>",
        send_list_names=["customers"],
        repel_list_names=["list 0"],
        max_recipients=10,
        max_growth=2,
        compare_with="news",
        known_tags=["name"],
    ),
    Preflight(
        "bad",
        passes=False,
        fail_on="never",
        sender_mail=f"news@{UNVERIFIED}",
        content="<p>News, {{nome}}</p>",
        send_list_names=["customers", "empty"],
        repel_list_names=["nobody"],
        max_recipients=3,
        known_tags=["name"],
    ),
)
