"""Lists, templates and senders: created once, deleted once, whatever happens to an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConflictError,
    MailError,
    MailMissingError,
)
from airflow_provider_mail.api.flows.ensure import create, delete
from airflow_provider_mail.api.lists import AddList, DeleteList
from airflow_provider_mail.api.senders import AddSender, DeleteSender
from airflow_provider_mail.api.templates import AddTemplate, DeleteTemplate
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.api.driving import KINDS as CLIENTS
from tests.api.driving import Driver
from tests.api.test_faults import QUICKLY
from tests.support.sampling import pairwise


@dataclass(frozen=True)
class Kind:
    """One kind of thing with a name: how it is asked for, and how the service tells what it holds."""

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
FAULTS = [kind.name for kind in FAULT_KINDS.values() if not kind.operations]
LOST = [kind.name for kind in FAULT_KINDS.values() if kind.outcome == "lost" and kind.processed and not kind.operations]


def run_create(client: Driver, request: Any, **options: Any) -> bool:
    return client.run(create(request, **{"patience": 0.03, **options}))


@pytest.mark.both_clients
@kinds
def test_created_once(kind: Kind, emulator: Emulator, client: Driver) -> None:
    kind.longer(emulator)
    assert run_create(client, kind.add) is True
    assert run_create(client, kind.add) is False
    assert emulator.journal.count(kind.add.path) == 1
    assert len(kind.held(emulator)) == 1


@kinds
def test_deleted_once(kind: Kind, emulator: Emulator, client: Driver) -> None:
    kind.longer(emulator)
    run_create(client, kind.add)
    assert client.run(delete(kind.remove)) is True
    assert client.run(delete(kind.remove)) is False
    assert emulator.journal.count(kind.remove.path) == 1
    assert kind.held(emulator) == []
    with pytest.raises(MailMissingError, match="no resource of that name"):
        client.run(delete(kind.remove, missing_ok=False))


@pairwise(kind=KINDS.values(), fault=FAULTS, connect=CLIENTS, indirect=["connect"])
def test_any_fault_of_the_creation(kind: Kind, fault: str, emulator: Emulator, client: Driver) -> None:
    emulator.faults.add(fault, kind.add.path, **QUICKLY.get(fault, {}))
    try:
        created = run_create(client, kind.add)
    except MailError:
        # Whether it was created or not, whoever tries again finds out.
        emulator.faults.clear()
        run_create(client, kind.add)
    else:
        assert created
    assert len(kind.held(emulator)) == 1


@kinds
@pytest.mark.parametrize("fault", LOST)
def test_a_lost_answer_creates_nothing_twice(kind: Kind, fault: str, emulator: Emulator, client: Driver) -> None:
    emulator.faults.add(fault, kind.add.path, **QUICKLY.get(fault, {}))
    assert run_create(client, kind.add) is True
    assert emulator.journal.count(kind.add.path) == 1


@kinds
def test_somebody_else_was_quicker(kind: Kind, emulator: Emulator, client: Driver) -> None:
    original, racing = kind.add.find, iter([None])

    class Raced(type(kind.add)):  # type: ignore[misc]
        def find(self) -> Any:
            found = yield from original()
            return next(racing, found)

    run_create(client, kind.add)
    assert run_create(client, Raced(**kind.add.model_dump())) is False
    assert len(kind.held(emulator)) == 1


def test_a_template_that_differs(emulator: Emulator, client: Driver) -> None:
    emulator.add_template("hello", subject="Hello", content="<p>old</p>")
    with pytest.raises(MailConflictError, match=r"differs in template_content: choose another name"):
        run_create(client, KINDS["template"].add)
    assert emulator.journal.count(AddTemplate.path) == 0


def test_a_template_that_differs_is_replaced(emulator: Emulator, client: Driver) -> None:
    emulator.add_template("hello", subject="Hello", content="<p>old</p>")
    kind = KINDS["template"]
    assert run_create(client, kind.add, replace=kind.remove) is True
    assert run_create(client, kind.add, replace=kind.remove) is False
    assert [row["content"] for row in emulator.templates()] == ["<p>{{name}}</p>"]
    assert emulator.journal.count(DeleteTemplate.path) == 1


def test_a_dynamic_list_is_another_one(emulator: Emulator, client: Driver) -> None:
    emulator.add_list("friends", dynamic=True)
    with pytest.raises(MailConflictError, match="dynamic list"):
        run_create(client, KINDS["list"].add)


def test_a_sender_may_have_both_types(emulator: Emulator, client: Driver) -> None:
    emulator.add_sender("Fresh@Example.com", types=[1])
    assert run_create(client, AddSender(sender_email="fresh@example.com", sender_type="1")) is False
    assert run_create(client, AddSender(sender_email="other@example.com", sender_type="2")) is True


@kinds
def test_a_refused_key_is_not_tried_again(kind: Kind, emulator: Emulator, client: Driver) -> None:
    emulator.faults.add("code_before", kind.add.path, code=401, message="no", http_status=401)
    with pytest.raises(MailAuthError):
        run_create(client, kind.add)
    assert emulator.journal.count(kind.add.path) == 1
