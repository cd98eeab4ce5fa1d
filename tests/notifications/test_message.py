"""From what Airflow hands over to a request: bodies as the document's tables have them."""

from __future__ import annotations

import base64
import html
import io
import zipfile
from email.headerregistry import Address
from email.utils import formataddr
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


NAMES = ["Ada", "Lovelace, Ada", 'Ada "The Countess" L.', "Zoë, Čeněk; 陈", "a\\b", "Alerts [prod]", "O'Neil", "a@b.cc"]


@pytest.mark.parametrize("name", NAMES)
def test_names_as_the_standard_library_writes_them(emulator: Emulator, name: str) -> None:
    written = [formataddr((name, "ada@example.com")), str(Address(name, addr_spec="bob@example.com"))]

    (version,) = sent(emulator, to=", ".join(written))["messageVersions"]

    assert version["to"] == [{"email": f"{who}@example.com", "name": name} for who in ("ada", "bob")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<ada@example.com>", None),
        (" Ada  Lovelace<ada@example.com>", "Ada Lovelace"),
        ("Alerts [prod] <ada@example.com>", "Alerts [prod]"),
        ("Prod: Airflow <ada@example.com>", "Prod: Airflow"),
        ("a@b.cc <ada@example.com>", "a@b.cc"),
        ("ada@example.com (Ada)", "Ada"),
        ("Ada <ada@example.com>(work)", "Ada"),
        ("=?utf-8?q?Zo=C3=AB?= =?utf-8?q?_L?= <ada@example.com>", "Zoë L"),
        ('"=?utf-8?b?Wm/Dqw==?=" <ada@example.com>', "Zoë"),
        ("=?utf-8?q?Ada=0ABcc=3A_bob=40example=2Ecom?= <ada@example.com>", "Ada Bcc: bob@example.com"),
        ("é" * 60 + " <ada@example.com>", "é" * 50),
        ("Team: ada@example.com;", None),
        ('"Team, A": ada@example.com;', None),
        ("undisclosed-recipients:; ada@example.com", None),
    ],
)
def test_names_beside_addresses(emulator: Emulator, text: str, name: str | None) -> None:
    assert sent(emulator, to=text)["to"] == {"email": "ada@example.com"} | ({"name": name} if name else {})


def test_the_members_of_a_group(emulator: Emulator) -> None:
    (version,) = sent(emulator, to='Team: "A, B" <ada@example.com>, bob@example.com; Carl <carl@example.com>')[
        "messageVersions"
    ]
    assert [person["email"] for person in version["to"]] == [f"{name}@example.com" for name in ("ada", "bob", "carl")]


@pytest.mark.parametrize(
    "text",
    [
        "eve@example.org <ada@example.com> bob@example.com",
        "Ada <ada@example.com> Bob <bob@example.com>",
        "eve(ada@example.com)bob@example.com",
        "eve@example.org)bob@example.com",
        "ada@example.com(Ada)",
        "ada@example.com\nbob@example.com",
    ],
)
def test_what_could_be_another_address_is_none(text: str) -> None:
    with pytest.raises(MailValidationError, match="is not an email address"):
        letter(to=text)


COPIES = [f"user{number}@example.com" for number in range(21)]


@pytest.mark.parametrize(
    ("arguments", "fields", "note"),
    [
        ({"bcc": COPIES}, {}, "bcc: 21 recipients, at most 20 are allowed"),
        ({"cc": 7}, {}, "cc[0]: addresses must be text"),
        ({"to": [{"email": "bob@example.com"}, "ada@example.com"]}, {}, "to[0]: addresses must be text"),
        ({"reply_to": "Help Desk <help@example.com>"}, {"replyTo": "help@example.com"}, ""),
        ({"reply_to": "a@x.com, b@x.com"}, {"replyTo": "a@x.com"}, "reply_to: the service accepts one address"),
        ({"reply_to": "help"}, {}, "reply_to[0].email: is not an email address"),
        ({"reply_to": "None"}, {}, "reply_to: is None"),
        ({"category": "data-team"}, {}, "category: only letters and digits are allowed"),
        ({"category": "None"}, {}, "category: is None"),
        ({"sender_name": " None "}, {"senderName": None}, "sender_name: is None"),
        ({"sender_name": "two\nlines\x00"}, {"senderName": "two lines"}, ""),
        ({"sender": "nobody"}, {"senderName": "Airflow"}, "sender_mail: is not an email address"),
        ({"sender": "=?x?q?a?= <news@example.com>"}, {}, "sender_mail: the name cannot be decoded"),
        ({"to": "=?utf-8?b?a?= <ada@example.com>"}, {}, "to[0]: the name cannot be decoded"),
        (
            {"to": "ada@example.com, ada\u200b@example.com"},
            {},
            "to[1].email: is not an email address: it ",
        ),
        ({"subject": None}, {"subject": "(no subject)"}, ""),
        ({"subject": "None"}, {"subject": "(no subject)"}, "subject: is None"),
        ({"subject": "\x07"}, {"subject": "(no subject)"}, ""),
        ({"subject": "bell\x07 \ud800"}, {"subject": "bell ?"}, ""),
        ({"content": " "}, {}, "content: is blank"),
        ({"content": "report.html"}, {}, "content: is only the name of a file"),
        ({"files": ["\0", 7]}, {}, "files[1]: is not a path"),
    ],
    ids=str,
)
def test_a_part_that_cannot_be_used_is_left_out(
    emulator: Emulator, arguments: dict[str, Any], fields: dict[str, Any], note: str
) -> None:
    written = letter(**{"to": "ada@example.com"} | arguments)
    MailHook().send(written.request)

    assert len(emulator.messages()) == 1
    (body,) = bodies(emulator)
    optional = dict.fromkeys(("replyTo", "category", "senderName", "attachment"))
    assert {name: body.get(name) for name in (optional | fields)} == optional | fields
    assert bool(written.skipped) == bool(note)
    assert note in "; ".join(written.skipped)
    said = html.unescape(body["content"])
    assert said.endswith(f"<p>Left out of this message: {'; '.join(written.skipped)}.</p>") == bool(note)


def test_the_note_is_a_part_of_the_page(emulator: Emulator) -> None:
    content = sent(emulator, to="ada@example.com", category="-", content="<html><body>Hi</body></html>")["content"]
    assert content.startswith("<html><body>Hi<p>Left out of this message: category: ")
    assert content.endswith("</p></body></html>")


def test_an_empty_file_is_left_out(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "full.csv").write_bytes(b"1")

    body = sent(emulator, to="ada@example.com", files=[tmp_path / "empty.csv", tmp_path / "full.csv"])

    assert body["attachment"]["fileName"] == "full.csv"
    assert "files[0]: is empty" in body["content"]


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


def test_an_occasion_has_an_id_and_no_occasion_a_new_one(tmp_path: Path) -> None:
    def identity(**arguments: Any) -> str | None:
        return letter(**{"to": "ada@example.com, bob@example.com"} | arguments).request.unique_msg_id

    (tmp_path / "one.csv").write_bytes(b"1")
    (tmp_path / "two.csv").write_bytes(b"2")
    files = [str(tmp_path / "one.csv"), str(tmp_path / "two.csv")]
    assert identity() == identity(to=["bob@example.com", "ADA@example.com"])
    assert identity(files=files) == identity(files=files)
    different: list[dict[str, Any]] = [
        {},
        {"event_key": "another"},
        {"subject": "another"},
        {"content": "another"},
        {"to": "ada@example.com"},
        {"to": "ada@example.com", "cc": "bob@example.com"},
        {"to": "Ada <ada@example.com>, bob@example.com"},
        {"sender_name": "another"},
        {"reply_to": "another@example.com"},
        {"category": "another"},
        {"files": files},
        {"files": files[:1]},
        {"files": files[1:]},
    ]
    assert len({identity(**each) for each in different}) == len(different)
    assert identity(event_key=None) != identity(event_key=None)
