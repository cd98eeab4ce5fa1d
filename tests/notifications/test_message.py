"""From what a notifier is given to a request: bodies as the document's tables have them."""

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

from airflow_provider_mail.utils.emailer import send_email
from mail_emulator import Emulator
from tests.notifications.conftest import DEADLINE, addressees, bodies, notify

HELLO = {"subject": "Hello", "content": "<p>Hello</p>", "sender_mail": "news@example.com", "to": "ada@example.com"}
ADA, BOB, CARL = ({"email": f"{name}@example.com"} for name in ("ada", "bob", "carl"))
COPIES = [f"user{number}@example.com" for number in range(21)]


def sent(emulator: Emulator, **arguments: Any) -> dict[str, Any]:
    """The body that the service got."""
    notify(DEADLINE, **HELLO | arguments)
    body: dict[str, Any] = bodies(emulator)[-1]
    return body


FULL = {"to": "Ada Lovelace <ada@example.com>", "sender_mail": "Airflow <news@example.com>", "category": "Alerts"}


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (
            FULL | {"reply_to": "data@example.com"},
            {"senderName": "Airflow", "replyTo": "data@example.com", "category": "Alerts",
             "to": ADA | {"name": "Ada Lovelace"}},
        ),
        (
            {"to": "ada@example.com, bob@example.com; carl@example.com"},
            {"messageVersions": [{"to": [ADA, BOB, CARL], "cc": [], "bcc": []}]},
        ),
        (
            {"cc": "bob@example.com", "bcc": ["Carl <carl@example.com>"]},
            {"messageVersions": [{"to": [ADA], "cc": [BOB], "bcc": [CARL | {"name": "Carl"}]}]},
        ),
        (
            {"to": "ada@example.com,Ada <ADA@example.com>", "cc": "ada@example.com", "bcc": "bob@example.com"},
            {"messageVersions": [{"to": [ADA], "cc": [], "bcc": [BOB]}]},
        ),
        ({"sender_mail": None}, {"senderName": "Airflow", "to": ADA}),
        ({"sender_mail": "airflow@airflow"}, {"senderName": "Airflow", "to": ADA}),
    ],
)  # fmt: skip
def test_arguments_become_fields(emulator: Emulator, arguments: dict[str, Any], fields: dict[str, Any]) -> None:
    body = sent(emulator, **arguments)
    common = {"subject": "Hello", "content": "<p>Hello</p>", "senderMail": "news@example.com"}
    assert body == common | fields | {"uniqueMsgID": body["uniqueMsgID"]}
    assert len(body["uniqueMsgID"].encode()) <= 50
    assert len(emulator.messages()) == 1


def test_more_than_twenty_get_several_messages_of_one_request(emulator: Emulator) -> None:
    everybody = [f"user{number}@example.com" for number in range(45)]
    body = sent(emulator, to=everybody, cc="ada@example.com")
    assert [len(version["to"]) for version in body["messageVersions"]] == [20, 20, 5]
    assert [version["cc"] for version in body["messageVersions"]] == [[ADA], [], []]
    mailed = [address for message in emulator.messages() for address in addressees(message)]
    assert sorted(mailed) == sorted([*everybody, "ada@example.com"])


def test_names_as_the_standard_library_writes_them(emulator: Emulator) -> None:
    for name in ("Ada", "Lovelace, Ada", 'Ada "The Countess" L.', "Zoë, Čeněk; 陈", "a\\b", "Alerts [prod]", "a@b.cc"):
        written = [formataddr((name, "ada@example.com")), str(Address(name, addr_spec="bob@example.com"))]
        (version,) = sent(emulator, to=", ".join(written))["messageVersions"]
        assert version["to"] == [person | {"name": name} for person in (ADA, BOB)]


def test_names_beside_addresses(emulator: Emulator) -> None:
    for text, name in [
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
    ]:
        assert sent(emulator, to=text)["to"] == ADA | ({"name": name} if name else {})
    text = 'Team: "A, B" <ada@example.com>, bob@example.com; Carl <carl@example.com>'
    (version,) = sent(emulator, to=text)["messageVersions"]
    assert version["to"] == [ADA | {"name": "A, B"}, BOB, CARL | {"name": "Carl"}]


def test_what_could_be_another_address_is_none(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    for text in (
        "eve@example.org <ada@example.com> bob@example.com", "Ada <ada@example.com> Bob <bob@example.com>",
        "eve(ada@example.com)bob@example.com", "eve@example.org)bob@example.com", "ada@example.com(Ada)",
        "ada@example.com\nbob@example.com", "no address", "", " , ",
    ):  # fmt: skip
        caplog.clear()
        notify(DEADLINE, to=text)
        assert "Mail: not sent (connection 'mail_default'): to: " in caplog.text
        assert ("is not an email address" in caplog.text) == ("@" in text or "no" in text)
    assert emulator.journal.count() == 0


@pytest.mark.parametrize(
    ("arguments", "fields", "note"),
    [
        ({"to": ["ada@example.com", "no address", ""]}, {}, "to[1].email: is not an email address"),
        ({"cc": "who@where"}, {"to": ADA}, "cc[0].email: is not an email address"),
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
        ({"sender_mail": "no address"}, {"senderName": "Airflow"}, "sender_mail: is not an email address"),
        ({"sender_mail": "=?x?q?a?= <news@example.com>"}, {}, "sender_mail: the name cannot be decoded"),
        ({"to": "=?utf-8?b?a?= <ada@example.com>"}, {}, "to[0]: the name cannot be decoded"),
        ({"to": "ada@example.com, ada\u200b@example.com"}, {}, "to[1].email: is not an email address: it "),
        ({"subject": None}, {"subject": "Deadline missed: orders"}, ""),
        ({"subject": "None"}, {"subject": "Deadline missed: orders"}, "subject: is None"),
        ({"subject": "\x07"}, {"subject": "Deadline missed: orders"}, ""),
        ({"subject": "bell\x07 \ud800"}, {"subject": "bell ?"}, ""),
        ({"content": " "}, {}, "content: is blank"),
        ({"content": "report.html"}, {}, "content: is only the name of a file"),
        ({"files": ["\0", 7]}, {}, "files[1]: is not a path"),
        ({"files": ["/no/such/file.csv"]}, {}, "files[0]: No such file or directory"),
    ],
    ids=str,
)
def test_a_part_that_cannot_be_used_is_left_out(
    emulator: Emulator, caplog: pytest.LogCaptureFixture, arguments: dict[str, Any], fields: dict[str, Any], note: str
) -> None:
    body = sent(emulator, **arguments)
    assert len(emulator.messages()) == 1
    optional = dict.fromkeys(("replyTo", "category", "senderName", "attachment"))
    assert {name: body.get(name) for name in (optional | fields)} == optional | fields
    assert ("Mail: skipped: " in caplog.text) == bool(note)
    assert note in caplog.text
    _, left_out, parts = html.unescape(body["content"]).partition("<p>Left out of this message: ")
    assert (bool(left_out), note in parts) == (bool(note), True)
    content = sent(emulator, category="-", content="<html><body>Hi</body></html>")["content"]
    assert content.startswith("<html><body>Hi<p>Left out of this message: category: ")
    assert content.endswith("</p></body></html>")


def test_subjects_are_short_and_without_tags(emulator: Emulator) -> None:
    task = "id=UUID('0199') task_id='load' dag_id='orders' run_id='manual' try_number=2 " + "x" * 400
    for subject, short in [
        ("Hello", "Hello"),
        ("  two\n lines ", "two lines"),
        ("", "(no subject)"),
        ("x" * 151, "x" * 148 + " …"),
        (f"Airflow alert: {task}", "Airflow alert: orders.load, try 2"),
        ("{{ dag }} and {{task}}", "{ { dag }} and { {task}}"),
    ]:
        send_email("ada@example.com, bob@example.com", subject, "<pre>{{name}} is missing</pre>")
        message = emulator.messages()[-1]
        assert message["subject"] == short
        assert message["content"].startswith("<pre>&#123;&#123;name}} is missing</pre>")


def test_one_file_is_attached_as_it_is_several_as_an_archive(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    contents = {"report.csv": b"a;b\n\xff", "more/report.csv": b"2", "log.txt": b"3", "empty.csv": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    report = {"fileName": "report.csv", "fileData": base64.b64encode(b"a;b\n\xff").decode()}
    assert sent(emulator, files=str(tmp_path / "report.csv"))["attachment"] == report
    body = sent(emulator, files=[tmp_path / "empty.csv", tmp_path / "report.csv"])
    assert body["attachment"] == report
    assert "files[0]: is empty" in body["content"]
    attachment = sent(emulator, files=[str(tmp_path / name) for name in contents if name != "empty.csv"])["attachment"]
    assert attachment["fileName"] == "attachments.zip"
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(attachment["fileData"]))) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert found == {"report.csv": b"a;b\n\xff", "1-report.csv": b"2", "log.txt": b"3"}


def test_equal_messages_about_an_event_have_one_id(emulator: Emulator, tmp_path: Path) -> None:
    def identity(**arguments: Any) -> str:
        return str(sent(emulator, **{"to": "ada@example.com, bob@example.com"} | arguments)["uniqueMsgID"])

    files = [str(tmp_path / "one.csv"), str(tmp_path / "two.csv")]
    for path in files:
        Path(path).write_text(path)
    assert identity() == identity(to=["bob@example.com", "ADA@example.com"])
    assert identity(files=files) == identity(files=files)
    different: list[dict[str, Any]] = [
        {},
        *({name: "another"} for name in ("subject", "content", "sender_name", "category")),
        {"to": "ada@example.com"},
        {"to": "ada@example.com", "cc": "bob@example.com"},
        {"to": "Ada <ada@example.com>, bob@example.com"},
        {"reply_to": "another@example.com"},
        *({"files": some} for some in (files, files[:1], files[1:])),
    ]
    assert len({identity(**each) for each in different}) == len(different)
