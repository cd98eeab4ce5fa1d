"""From what Airflow hands over to a request: bodies as the document's tables have them."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailConfigError, MailValidationError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.notifications._message import OutgoingMessage, build_message
from tests.notifications.conftest import addressees, bodies

HELLO = {"subject": "Hello", "content": "<p>Hello</p>", "sender": "news@example.com", "event_key": "test"}


def letter(**arguments: Any) -> OutgoingMessage:
    return build_message(**HELLO | arguments)


def sent(emulator: Emulator, **arguments: Any) -> dict[str, Any]:
    """The body that the service got."""
    MailHook().send(letter(**arguments).request)
    body: dict[str, Any] = bodies(emulator)[-1]
    return body


def test_one_person_is_written_to_with_the_single_form(emulator: Emulator) -> None:
    body = sent(
        emulator,
        to="Ada Lovelace <ada@example.com>",
        sender="Airflow <news@example.com>",
        reply_to="data@example.com",
        category="Alerts",
    )
    assert body == {
        "subject": "Hello",
        "content": "<p>Hello</p>",
        "senderMail": "news@example.com",
        "senderName": "Airflow",
        "replyTo": "data@example.com",
        "to": {"email": "ada@example.com", "name": "Ada Lovelace"},
        "category": "Alerts",
        "uniqueMsgID": body["uniqueMsgID"],
    }
    assert len(body["uniqueMsgID"].encode()) <= 50


def test_several_get_one_message_with_empty_copies(emulator: Emulator) -> None:
    body = sent(emulator, to="ada@example.com, bob@example.com; carl@example.com")

    assert body == {
        "subject": "Hello",
        "content": "<p>Hello</p>",
        "senderMail": "news@example.com",
        "messageVersions": [
            {
                "to": [{"email": f"{name}@example.com"} for name in ("ada", "bob", "carl")],
                "cc": [],
                "bcc": [],
            }
        ],
        "uniqueMsgID": body["uniqueMsgID"],
    }
    (message,) = emulator.messages()
    assert addressees(message) == ["ada@example.com", "bob@example.com", "carl@example.com"]


def test_copies_take_the_batch_form(emulator: Emulator) -> None:
    body = sent(emulator, to=["ada@example.com"], cc="bob@example.com", bcc=["Carl <carl@example.com>"])

    assert body["messageVersions"] == [
        {
            "to": [{"email": "ada@example.com"}],
            "cc": [{"email": "bob@example.com"}],
            "bcc": [{"email": "carl@example.com", "name": "Carl"}],
        }
    ]
    assert "to" not in body


def test_more_than_twenty_are_several_messages_of_one_request(emulator: Emulator) -> None:
    everybody = [f"user{number}@example.com" for number in range(45)]

    body = sent(emulator, to=everybody, cc="ada@example.com")

    assert [len(version["to"]) for version in body["messageVersions"]] == [20, 20, 5]
    assert [version["cc"] for version in body["messageVersions"]] == [[{"email": "ada@example.com"}], [], []]
    assert sorted(address for message in emulator.messages() for address in addressees(message)) == sorted(
        [*everybody, "ada@example.com"]
    )


def test_nobody_gets_it_twice() -> None:
    request = letter(to="ada@example.com,Ada <ADA@example.com>", cc="ada@example.com", bcc="bob@example.com").request
    body = request.model_dump(by_alias=True, exclude_none=True)
    assert body["messageVersions"] == [
        {"to": [{"email": "ada@example.com"}], "cc": [], "bcc": [{"email": "bob@example.com"}]}
    ]


def test_a_wrong_address_does_not_keep_the_others_from_hearing() -> None:
    written = letter(to=["ada@example.com", "nobody", ""], cc="who@where, bob@example.com")

    assert written.recipient_count == 2
    assert written.skipped == ["to[1].email: is not an email address", "cc[0].email: is not an email address"]


@pytest.mark.parametrize("to", ["", [], None, " , ", "nobody"])
def test_nobody_to_write_to(to: Any) -> None:
    with pytest.raises(MailValidationError, match=r"^to: "):
        letter(to=to)


def test_too_many_copies() -> None:
    with pytest.raises(MailValidationError, match="bcc: 21 recipients, at most 20 are allowed"):
        letter(to="ada@example.com", bcc=[f"user{number}@example.com" for number in range(21)])


def test_addresses_are_text() -> None:
    with pytest.raises(MailValidationError, match="to: addresses must be text"):
        letter(to=[{"email": "ada@example.com"}])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('"Lovelace, Ada" <ada@example.com>', "Lovelace, Ada"),
        ("<ada@example.com>", None),
        ("é" * 60 + " <ada@example.com>", "é" * 50),
    ],
    ids=["quoted", "without", "too long"],
)
def test_names_beside_addresses(emulator: Emulator, text: str, name: str | None) -> None:
    assert sent(emulator, to=text)["to"] == {"email": "ada@example.com"} | ({"name": name} if name else {})


@pytest.mark.parametrize("given", [None, "", "airflow@airflow"])
def test_the_sender_is_the_one_of_airflows_settings(given: str | None, emulator: Emulator) -> None:
    body = sent(emulator, to="ada@example.com", sender=given)
    assert (body["senderMail"], body["senderName"]) == ("news@example.com", "Airflow")


@pytest.mark.parametrize("setting", ["", "airflow@airflow"])
def test_without_a_sender_the_error_names_the_setting(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("AIRFLOW__EMAIL__FROM_EMAIL", setting)
    with pytest.raises(MailConfigError, match=r"\[email\] from_email \(AIRFLOW__EMAIL__FROM_EMAIL\)"):
        letter(to="ada@example.com", sender="airflow@airflow")


@pytest.mark.parametrize(
    ("subject", "short"),
    [
        ("Hello", "Hello"),
        ("  two\n lines ", "two lines"),
        ("", "(no subject)"),
        ("x" * 151, "x" * 148 + " …"),
        (
            "Airflow alert: id=UUID('0199') task_id='load' dag_id='orders' run_id='manual' try_number=2 " + "x" * 400,
            "Airflow alert: orders.load, try 2",
        ),
        ("{{ dag }} and {{task}}", "{ { dag }} and { {task}}"),
    ],
    ids=["good", "lines", "none", "long", "a task instance", "tags"],
)
def test_subjects(emulator: Emulator, subject: str, short: str) -> None:
    sent(emulator, to="ada@example.com", subject=subject)
    (message,) = emulator.messages()
    assert message["subject"] == short


def test_what_looks_like_a_tag_is_shown_as_it_is(emulator: Emulator) -> None:
    sent(emulator, to="ada@example.com, bob@example.com", content="<pre>{{name}} is missing</pre>")
    (message,) = emulator.messages()
    assert message["content"] == "<pre>&#123;&#123;name}} is missing</pre>"


def test_one_file_is_attached_as_it_is(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "report.csv").write_bytes(b"a;b\n\xff")
    assert sent(emulator, to="ada@example.com", files=str(tmp_path / "report.csv"))["attachment"] == {
        "fileName": "report.csv",
        "fileData": base64.b64encode(b"a;b\n\xff").decode(),
    }


def test_several_files_are_one_archive(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    files = {tmp_path / "report.csv": b"1", tmp_path / "more" / "report.csv": b"2", tmp_path / "log.txt": b"3"}
    for path, content in files.items():
        path.write_bytes(content)

    attachment = sent(emulator, to="ada@example.com", files=[str(path) for path in files])["attachment"]

    assert attachment["fileName"] == "attachments.zip"
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(attachment["fileData"]))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "report.csv": b"1",
            "1-report.csv": b"2",
            "log.txt": b"3",
        }


def test_a_file_that_is_not_there_does_not_keep_anybody_from_hearing(tmp_path: Path) -> None:
    written = letter(to="ada@example.com", files=[str(tmp_path / "nothing.csv")])

    assert written.request.attachment is None
    assert written.skipped == ["files[0]: No such file or directory"]


def test_an_occasion_has_an_id_and_no_occasion_a_new_one() -> None:
    def identity(**arguments: Any) -> str | None:
        return letter(**{"to": "ada@example.com, bob@example.com"} | arguments).request.unique_msg_id

    assert identity() == identity(to=["bob@example.com", "ADA@example.com"], content="another")
    others = [identity(event_key="another"), identity(subject="another"), identity(to="ada@example.com"), identity()]
    assert len(set(others)) == 4
    assert identity(event_key=None) != identity(event_key=None)
