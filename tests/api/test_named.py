"""Lists, templates and senders: created once, deleted once, whatever happens to a response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailAuthError, MailConflictError, MailError, MailMissingError
from airflow_provider_mail.api.flows.ensure import create, delete
from airflow_provider_mail.api.lists import AddList, DeleteList
from airflow_provider_mail.api.senders import AddSender, DeleteSender
from airflow_provider_mail.api.templates import AddTemplate, DeleteTemplate
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.api.driving import Driver
from tests.support.changes import at_request, by_others

pytestmark = pytest.mark.usefixtures("clock")


@dataclass(frozen=True)
class Kind:
    """A kind of thing with a name: how it is requested, how its names are read, and how to add a longer name."""

    add: Any
    remove: Any
    held: Callable[[Emulator], list[Any]]
    longer: Callable[[Emulator], object]


KINDS = {
    "list": Kind(
        AddList(list_name="friends"),
        DeleteList(list_name="friends"),
        lambda service: [row for row in service.lists() if row["name"] == "friends"],
        lambda service: service.add_list("old friends"),
    ),
    "template": Kind(
        AddTemplate(template_name="hello", template_content="<p>{{name}}</p>", template_subject="Hello"),
        DeleteTemplate(template_name="hello"),
        lambda service: [row for row in service.templates() if row["name"] == "hello"],
        lambda service: service.add_template("hello again", subject="Hello", content="<p></p>"),
    ),
    "sender": Kind(
        AddSender(sender_email="fresh@example.com", sender_type="1"),
        DeleteSender(sender_email="fresh@example.com"),
        lambda service: [row for row in service.senders() if row["entry"] == "fresh@example.com"],
        lambda service: service.add_sender("old.fresh@example.com"),
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
FAULTS = [kind for kind in FAULT_KINDS.values() if not kind.operations and kind.outcome != "slow"]


@pytest.mark.both_clients
@kinds
def test_created_and_deleted_once(kind: Kind, emulator: Emulator, client: Driver) -> None:
    kind.longer(emulator)
    assert client.run(create(kind.add)) is True
    assert client.run(create(kind.add)) is False
    assert emulator.journal.count(kind.add.path) == len(kind.held(emulator)) == 1
    assert client.run(delete(kind.remove)) is True
    assert client.run(delete(kind.remove)) is False
    assert (emulator.journal.count(kind.remove.path), kind.held(emulator)) == (1, [])
    with pytest.raises(MailMissingError, match="no resource of that name"):
        client.run(delete(kind.remove, missing_ok=False))


@kinds
def test_any_fault_of_the_creation(kind: Kind, emulator: Emulator, client: Driver) -> None:
    for fault in FAULTS:
        emulator.journal.clear()
        emulator.faults.add(fault.name, kind.add.path)
        try:
            assert client.run(create(kind.add)) is True
        except MailError:
            # Whether it was created or not, the next try finds out.
            emulator.faults.clear()
            client.run(create(kind.add))
        if fault.outcome == "lost" and fault.processed:
            assert emulator.journal.count(kind.add.path) == 1
        assert len(kind.held(emulator)) == 1, fault
        client.run(delete(kind.remove))


@kinds
def test_others_were_quicker(kind: Kind, emulator: Emulator, client: Driver) -> None:
    look = kind.add.path.removeprefix("/v5/").replace("add", "get")
    with at_request(emulator, look, 1, lambda: by_others(emulator, kind.add)):
        assert client.run(create(kind.add)) is False
    assert len(kind.held(emulator)) == emulator.journal.count(kind.add.path) == 1


def test_a_template_that_differs(emulator: Emulator, client: Driver) -> None:
    emulator.add_template("hello", subject="Hello", content="<p>old</p>")
    kind = KINDS["template"]
    with pytest.raises(MailConflictError, match=r"differs in template_content: choose another name"):
        client.run(create(kind.add))
    assert emulator.journal.count(AddTemplate.path) == 0
    assert client.run(create(kind.add, replace=kind.remove)) is True
    assert client.run(create(kind.add, replace=kind.remove)) is False
    assert [row["content"] for row in emulator.templates()] == ["<p>{{name}}</p>"]
    assert emulator.journal.count(DeleteTemplate.path) == 1


def test_a_dynamic_list_is_another_one(emulator: Emulator, client: Driver) -> None:
    emulator.add_list("friends", dynamic=True)
    with pytest.raises(MailConflictError, match="dynamic list"):
        client.run(create(KINDS["list"].add))


def test_a_sender_may_have_both_types(emulator: Emulator, client: Driver) -> None:
    emulator.add_sender("Fresh@Example.com", types=[1])
    assert client.run(create(AddSender(sender_email="fresh@example.com", sender_type="1"))) is False
    assert client.run(create(AddSender(sender_email="other@example.com", sender_type="2"))) is True


@kinds
def test_a_rejected_key_is_not_tried_again(kind: Kind, emulator: Emulator, client: Driver) -> None:
    emulator.faults.add("code_before", kind.add.path, code=401, message="no", http_status=401)
    with pytest.raises(MailAuthError):
        client.run(create(kind.add))
    assert emulator.journal.count(kind.add.path) == 1
