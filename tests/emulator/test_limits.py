"""The specification's table "Limits": at the limit and one beyond, in characters of 1, 2, 3 and 4 bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.emulator.conftest import BATCH, SEND, SINGLE, Api, batch, version

CAMPAIGN = {"senderMail": "news@example.com", "sendListNames": ["L"]}
TEMPLATE = {"templateContent": "c", "templateSubject": "s"}


def named(role: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: batch(version(**{role: [{"email": "b@example.com", "name": text}]}))


@pytest.mark.parametrize(
    ("limit", "operation", "body"),
    [
        (200, "campaign/mail/sends", lambda text: CAMPAIGN | {"mailName": text}),
        (250, "campaign/mail/template/add", lambda text: TEMPLATE | {"templateName": text}),
        (200, SEND, lambda text: BATCH | {"senderName": text}),
        (100, SEND, named("to")),
        (100, SEND, named("cc")),
        (100, SEND, named("bcc")),
        (100, SEND, lambda text: SINGLE | {"to": {"email": "b@example.com", "name": text}}),
        (50, SEND, lambda text: SINGLE | {"uniqueMsgID": text}),
        (50, SEND, lambda text: BATCH | {"uniqueMsgID": text}),
    ],
)
def test_texts(api: Api, limit: int, operation: str, body: Callable[[str], dict[str, Any]]) -> None:
    api.emulator.add_list("L")
    for character in ("a", "é", "名", "📬"):
        fitting = character * (limit // len(character.encode()))
        api.ok(operation, **body(fitting))
        api.rejected(400, operation, str(limit), **body(fitting + character))


def test_template_names_in_characters_and_sender_names_without_limit(api: Api) -> None:
    api.emulator.change_settings(template_name_unit="characters")
    api.ok("campaign/mail/template/add", templateName="ü" * 250, **TEMPLATE)
    api.rejected(400, "campaign/mail/template/add", templateName="ü" * 251, **TEMPLATE)
    api.ok(SEND, **SINGLE, senderName="x" * 1000)  # of the single form


def test_labels(api: Api) -> None:
    for body, field in product((SINGLE, BATCH), ("category", "campaign")):
        api.ok(SEND, **body | {field: "aZ9" * 33 + "x"})
        api.rejected(400, SEND, field, **body | {field: "a" * 101})
        for wrong in ("a b", "a_b", "a-b", "ü", "٣"):
            api.rejected(400, SEND, "letters and digits", **body | {field: wrong})


def test_100_messages_of_20_recipients_for_each_role(api: Api) -> None:
    api.ok(SEND, **batch(*[version()] * 100))
    api.rejected(400, SEND, "messageVersions", **batch(*[version()] * 101))
    people = [{"email": f"{number}@example.com"} for number in range(21)]
    for role in ("to", "cc", "bcc"):
        api.ok(SEND, **batch(version(**{role: people[:20]})))
        api.rejected(400, SEND, f"[0].{role}", **batch(version(**{role: people})))


def test_one_attachment(api: Api) -> None:
    file = {"fileName": "a", "fileData": "YQ=="}
    api.ok(SEND, **SINGLE, attachment=file)
    api.rejected(400, SEND, "attachment", **SINGLE, attachment=[file, file])
