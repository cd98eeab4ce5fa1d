"""The document's table "Limits", row by row: at the limit and one beyond."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulator.conftest import Api
from tests.emulator.test_transactional import BATCH, SEND, SINGLE, version

#: A character of 1, 2, 3 and 4 bytes.
CHARACTERS = ("a", "é", "名", "📬")


def texts(limit: int) -> tuple[list[str], list[str]]:
    """Texts of as many bytes as fit, and of a byte or more beyond."""
    fitting = [character * (limit // len(character.encode())) for character in CHARACTERS]
    return fitting, [text + character for text, character in zip(fitting, CHARACTERS, strict=True)]


def check(api: Api, limit: int, operation: str, body: Any) -> None:
    fitting, beyond = texts(limit)
    for text in fitting:
        api.ok(operation, **body(text))
    for text in beyond:
        assert str(limit) in api.refused(400, operation, **body(text))


def test_mail_name_200_bytes(api: Api) -> None:
    api.emulator.add_list("L")
    check(
        api, 200, "campaign/mail/sends",
        lambda text: {"mailName": text, "senderMail": "news@example.com", "sendListNames": ["L"]},
    )  # fmt: skip


def test_template_name_250_bytes_or_characters(api: Api) -> None:
    def body(text: str) -> dict[str, str]:
        return {"templateName": text, "templateContent": "c", "templateSubject": "s"}

    check(api, 250, "campaign/mail/template/add", body)
    api.emulator.change_settings(template_name_unit="characters")
    api.ok("campaign/mail/template/add", **body("ü" * 250))
    api.refused(400, "campaign/mail/template/add", **body("ü" * 251))


def test_sender_name_of_the_batch_form_200_bytes(api: Api) -> None:
    check(api, 200, SEND, lambda text: {**BATCH, "senderName": text})


def test_the_single_form_has_no_such_limit(api: Api) -> None:
    api.ok(SEND, **SINGLE, senderName="x" * 1000)


@pytest.mark.parametrize("role", ["to", "cc", "bcc"])
def test_names_of_recipients_100_bytes(api: Api, role: str) -> None:
    check(
        api, 100, SEND,
        lambda text: {**BATCH, "messageVersions": [version(**{role: [{"email": "b@example.com", "name": text}]})]},
    )  # fmt: skip


def test_name_of_the_single_recipient_100_bytes(api: Api) -> None:
    check(api, 100, SEND, lambda text: {**SINGLE, "to": {"email": "b@example.com", "name": text}})


@pytest.mark.parametrize("body", [SINGLE, BATCH])
@pytest.mark.parametrize("field", ["category", "campaign"])
def test_labels_100_bytes_of_letters_and_digits(api: Api, body: dict[str, Any], field: str) -> None:
    api.ok(SEND, **{**body, field: "aZ9" * 33 + "x"})
    assert field in api.refused(400, SEND, **{**body, field: "a" * 101})
    for wrong in ("a b", "a_b", "ü", "٣"):
        assert "letters and digits" in api.refused(400, SEND, **{**body, field: wrong})


@pytest.mark.parametrize("body", [SINGLE, BATCH])
def test_unique_msg_id_50_bytes(api: Api, body: dict[str, Any]) -> None:
    check(api, 50, SEND, lambda text: {**body, "uniqueMsgID": text})


def test_100_message_versions(api: Api) -> None:
    api.ok(SEND, **{**BATCH, "messageVersions": [version()] * 100})
    assert "messageVersions" in api.refused(400, SEND, **{**BATCH, "messageVersions": [version()] * 101})


@pytest.mark.parametrize("role", ["to", "cc", "bcc"])
def test_20_recipients_per_version(api: Api, role: str) -> None:
    people = [{"email": f"{number}@example.com"} for number in range(21)]
    api.ok(SEND, **{**BATCH, "messageVersions": [version(**{role: people[:20]})]})
    assert f"[0].{role}" in api.refused(400, SEND, **{**BATCH, "messageVersions": [version(**{role: people})]})


def test_one_attachment(api: Api) -> None:
    file = {"fileName": "a", "fileData": "YQ=="}
    api.ok(SEND, **SINGLE, attachment=file)
    assert "attachment" in api.refused(400, SEND, **SINGLE, attachment=[file, file])
    api.emulator.add_list("L")
    api.refused(
        400, "campaign/mail/sends", mailName="m", senderMail="news@example.com", sendListNames=["L"],
        attachment=[file, file],
    )  # fmt: skip


def test_page_sizes(api: Api) -> None:
    """Defaults 200 and 10 and the maximum of 1000 are checked beside the operations; here the default index."""
    api.emulator.add_list("L", count=3)
    first = api.ok("contacts/list/get", listName="L", pageSize=2)["contactList"]
    assert first == api.ok("contacts/list/get", listName="L", pageSize=2, pageIndex=1)["contactList"]
