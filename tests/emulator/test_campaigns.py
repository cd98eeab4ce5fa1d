"""Campaign send tasks: creation with its table of errors, get, cancel, delete, and their states."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from mail_emulator import Emulator
from tests.emulator.conftest import Api

FILE = base64.b64encode(b"price list").decode()
NOON = "2026-03-01T12:00:00Z"
AT_ONE = {"sendDate": "2026-03-01T13:00:00Z"}
SENDS = "campaign/mail/sends"


@pytest.fixture(autouse=True)
def _readers(emulator: Emulator) -> None:
    emulator.clock.freeze(NOON)
    emulator.add_list("Readers", count=100)


@pytest.mark.parametrize(
    ("code", "words", "bodies"),
    [
        (400, "mailName", [{"mailName": None}]),
        (400, "mailName exceeds 200 bytes", [{"mailName": name} for name in ("x" * 201, "é" * 101, "名" * 67)]),
        (400, "senderMail", [{"senderMail": None}]),
        (400, "sendListNames", [{"sendListNames": None}, {"sendListNames": []}, {"sendListNames": "Readers"},
                                {"sendListNames": [], "onlySave": False}]),
        (400, "sendDate", [{"sendDate": moment} for moment in (
            "2026-03-01", "2026-03-01T10:00:00", "2026-03-01T10:00:00+00:00", "2026-03-01T10:00:00.000Z", 1772359200,
            "2026-02-30T10:00:00Z", "2026-03-01 10:00:00Z", "2026-03-01T24:00:00Z", "٢٠٢٦-03-01T10:00:00Z")]),
        (400, "fileName", [{"attachment": {"fileData": FILE}}, {"attachment": {"fileName": "", "fileData": FILE}}]),
        (400, "fileData", [{"attachment": {"fileName": "a.pdf"}}]),
        (400, "attachment", [{"attachment": []}, {"attachment": [{"fileName": "a", "fileData": FILE}] * 2}]),
        (400, "languageCode", [{"languageCode": "EN"}]),
        (400, "editorType", [{"editorType": "classic"}]),
        (400, "onlySave", [{"onlySave": "yes"}]),
        (400, "repelListNames", [{"repelListNames": [1]}]),
        (400, "content", [{"content": 1}]),
        (403, "Nowhere", [{"sendListNames": ["Readers", "Nowhere"]}, {"repelListNames": ["Nowhere"]}]),
        (403, "new@new.example", [{"senderMail": "new@new.example"}]),
        (403, "receipts@shop.example", [{"senderMail": "receipts@shop.example"}]),
        (403, "who@example.org", [{"senderMail": "who@example.org"}]),
        (403, "subscriptName", [{"subscriptName": "Offers"}]),
    ],
)  # fmt: skip
def test_errors_of_creation(api: Api, code: int, words: str, bodies: list[dict[str, Any]]) -> None:
    """Row by row as in the specification, and the same in sandbox mode."""
    api.emulator.add_sender("new@new.example", verified=False)
    api.emulator.add_sender("receipts@shop.example", types=[2])
    for body in bodies:
        whole = {"mailName": "m", "senderMail": "news@example.com", "sendListNames": ["Readers"], **body}
        message = api.rejected(code, SENDS, words, **whole)
        assert api.rejected(code, SENDS, **whole, sandboxMode=True) == message
    assert api.emulator.campaigns() == []


@pytest.mark.parametrize(("kind", "kept_as", "status"), [
    ("task_check_failed", "draft", -1), ("attachment_failed", "scheduled", 1),
])  # fmt: skip
def test_code_500_may_keep_the_task(api: Api, kind: str, kept_as: str, status: int) -> None:
    api.emulator.change_settings(kept_task_state=kept_as)
    api.emulator.faults.add(kind, SENDS)
    response = api.campaign("m")
    assert (response["code"], "id" in response) == (500, False)
    (kept,) = api.emulator.campaigns("m")
    assert kept["keptBecause"] == response["message"]
    assert api.status("m") == status
    assert api.emulator.journal.processed(SENDS)
    assert api.campaign("m")["code"] == 400  # its name is taken
    response = api.campaign("n", attachment={"fileName": "a.pdf", "fileData": "%%%"})
    assert (response["code"], "attachment" in response["message"]) == (500, True)
    assert len(api.emulator.campaigns("n")) == 1


def test_codes_and_rules_that_settings_change(api: Api) -> None:
    api.emulator.change_settings(unverified_sender_code=400, duplicate_mail_name_code=500)
    api.rejected(400, SENDS, mailName="m", senderMail="who@example.org", sendListNames=["Readers"])
    api.emulator.add_subscription("Offers")
    assert [api.campaign("m", subscriptName="Offers")["code"] for _ in range(2)] == [200, 500]
    assert api.campaign("m", sandboxMode=True)["code"] == 500
    api.emulator.change_settings(duplicate_mail_name_code=400)
    assert api.campaign("m")["code"] == 400
    api.emulator.change_settings(enforce_unique_mail_name=False)
    assert api.campaign("m")["guid"] != api.campaign("m")["guid"]
    assert len(api.emulator.campaigns("m")) == 3
    response = api.campaign("s", sandboxMode=True)
    assert (response["code"], type(response["id"]), type(response["guid"])) == (200, int, str)
    api.emulator.change_settings(sandbox_ids="null")
    assert api.campaign("s", sandboxMode=True)["id"] is None
    assert api.emulator.campaigns("s") == []


def test_get_shows_every_field_of_the_specification(api: Api) -> None:
    api.emulator.add_list("Staff", count=3)
    fields: dict[str, Any] = {
        "subject": "Hello {{name}}", "senderName": "News", "replyTo": "re@example.com", "repelListNames": ["Staff"],
        "languageCode": "zh-tw", "marketName": "Spring", "projectCode": "P1",
    }  # fmt: skip
    attached = {"attachment": {"fileName": "a.pdf", "fileData": FILE}, "editorType": "CLASSIC"}
    created = api.campaign("m", content="<p>Hi</p>", **AT_ONE, **attached, **fields)
    assert api.ok("campaign/mail/get", mailName="m")["mailList"] == [
        fields | {
            "mailName": "m", "mailContent": "<p>Hi</p>", "senderMail": "news@example.com", "rcptEmails": [],
            "repelEmails": [], "rcptListNames": ["Readers"], "sendByDateTime": 1772370000000, "taskType": "MailList",
            "mailStatus": 1, "guid": created["guid"], "teamName": "Marketing", "subscriptName": None,
            "reviewerName": None,
        }
    ]  # fmt: skip
    assert api.emulator.campaigns("m")[0]["attachmentBytes"] == len(b"price list")
    assert isinstance(created["id"], int)
    api.campaign("defaults", sendDate="2020-01-01T00:00:00Z")  # a time in the past is now
    (task,) = api.ok("campaign/mail/get", mailName="defaults")["mailList"]
    assert task["senderName"] == task["replyTo"] == "news@example.com"
    assert task["sendByDateTime"] == 1772366400000


def test_filters_of_get(api: Api) -> None:
    api.emulator.add_campaign("Spring sale", subject="50% off", sender_mail="shop@example.com")
    api.emulator.add_campaign("Spring news", subject="News", type="ABTest", state="failed")
    api.emulator.add_campaign("Autumn news", subject="News", state="sending")
    api.emulator.add_campaign("Draft", subject="", state="draft")
    api.emulator.add_campaign("Foreign", team="Sales")

    def names(**body: Any) -> list[str]:
        response = api.ok("campaign/mail/get", **body)
        assert response["totalRecords"] == len(response["mailList"])
        return [task["mailName"] for task in response["mailList"]]

    assert names() == ["Draft", "Autumn news", "Spring news", "Spring sale"]
    assert names(mailName="spring") == ["Spring news", "Spring sale"]
    assert names(subject="0%") == names(senderMail="SHOP@example.com") == names(mailStatus=[2]) == ["Spring sale"]
    assert names(type="ABTest") == ["Spring news"]
    assert names(mailStatus=[1, 4]) == ["Autumn news", "Spring news"]
    assert names(mailStatus=[-1]) == ["Draft"]
    assert names(mailStatus=[]) == names(mailStatus=[2], mailName="news") == []
    for wrong in ({"mailStatus": [3]}, {"mailStatus": 2}, {"type": "Other"}, {"allTeam": 1}):
        api.rejected(400, "campaign/mail/get", **wrong)
    api.rejected(403, "campaign/mail/get", allTeam=True)
    api.emulator.change_settings(cross_team_permission=True, newest_first=False)
    assert names(allTeam=True) == ["Spring sale", "Spring news", "Autumn news", "Draft", "Foreign"]
    assert names(mailName="foreign") == []


def test_sending_ends_after_a_time(api: Api) -> None:
    """A saved draft is never sent."""
    api.campaign("draft", onlySave=True)
    api.emulator.clock.advance(days=1)
    assert (api.status("draft"), api.emulator.campaign_recipients("draft")) == (-1, [])
    api.ok("campaign/mail/delete", mailName="draft")
    api.emulator.change_settings(sending_seconds=60.0)
    api.campaign("m")
    (sending,) = api.ok("campaign/mail/get")["mailList"]
    api.emulator.clock.advance(59)
    assert (sending["mailStatus"], "mailStats" in sending, api.status("m")) == (1, False, 1)
    api.emulator.clock.advance(1)
    (done,) = api.ok("campaign/mail/get")["mailList"]
    assert (done["mailStatus"], done["mailStats"]["sentCount"]) == (2, 100)
    assert len(api.emulator.campaign_recipients("m")) == 100


@pytest.mark.parametrize(("outcome", "looks", "statuses"), [("done", 3, [1, 1, 1, 2, 2]), ("failed", 1, [1, 4, 4])])
def test_sending_ends_after_a_number_of_polls(api: Api, outcome: str, looks: int, statuses: list[int]) -> None:
    api.emulator.change_settings(sending_looks=looks, campaign_outcome=outcome)
    api.campaign("m")
    api.emulator.clock.advance(days=9)
    assert [api.status("m") for _ in statuses] == statuses
    assert bool(api.emulator.campaign_recipients("m")) == (outcome == "done")


@pytest.mark.parametrize("status", [1, -1])
def test_a_scheduled_campaign_is_sent_at_its_time(api: Api, status: int) -> None:
    api.emulator.change_settings(scheduled_status=status)
    api.campaign("m", **AT_ONE)
    for time, *expected in (("12:59:59", status, "scheduled"), ("13:00:00", 1, "sending"), ("13:00:05", 2, "done")):
        api.emulator.clock.set(f"2026-03-01T{time}Z")
        assert [api.status("m"), api.emulator.campaigns("m")[0]["state"]] == expected


@pytest.mark.parametrize(("after", "status"), [("draft", -1), ("failed", 4), ("removed", None)])
def test_a_scheduled_campaign_can_be_cancelled(api: Api, after: str, status: int | None) -> None:
    api.emulator.change_settings(state_after_cancel=after)
    api.campaign("m", **AT_ONE)
    api.ok("campaign/mail/cancel", mailName="m", sandboxMode=True)
    assert api.status("m") == 1
    api.ok("campaign/mail/cancel", mailName="m")
    assert api.status("m") == status
    api.emulator.clock.advance(days=1)
    assert (api.status("m"), api.emulator.campaigns("m")[0]["cancelled"]) == (status, True)
    assert api.emulator.campaign_recipients("m") == []


def test_only_a_scheduled_campaign_can_be_cancelled(api: Api) -> None:
    api.campaign("m", **AT_ONE)
    api.emulator.clock.advance(hours=1)
    api.rejected(403, "campaign/mail/cancel", "send time has passed", mailName="m")
    api.campaign("draft", onlySave=True)
    api.rejected(403, "campaign/mail/cancel", mailName="draft")


@pytest.mark.parametrize("state", ["draft", "scheduled", "sending", "done", "failed"])
def test_which_states_can_be_deleted_is_a_setting(api: Api, state: str) -> None:
    api.campaign("m", **AT_ONE)
    api.emulator.set_campaign_state("m", state)
    api.emulator.change_settings(deletable_states=["scheduled" if state == "draft" else "draft"])
    api.rejected(403, "campaign/mail/delete", state, mailName="m")
    api.emulator.change_settings(deletable_states=[state])
    api.ok("campaign/mail/delete", mailName="m", sandboxMode=True)
    assert api.status("m") is not None
    api.ok("campaign/mail/delete", mailName="m")
    assert api.status("m") is None
    api.rejected(404, "campaign/mail/delete", mailName="m")
    api.campaign("m")  # its name is free
    assert [task["removed"] for task in api.emulator.campaigns("m")] == [True, False]


def test_a_created_campaign_may_appear_late(api: Api) -> None:
    api.emulator.change_settings(visible_after_looks=2)
    api.campaign("looks")
    assert [api.status("looks") for _ in range(3)] == [None, None, 1]
    api.emulator.change_settings(visible_after_looks=0, visible_after_seconds=30.0)
    api.campaign("seconds")
    assert api.status("seconds") is None
    api.emulator.clock.advance(30)
    assert api.status("seconds") == 2


def test_each_contact_gets_a_campaign_once(api: Api) -> None:
    """Without excluded, suppressed and addressless ones; as the lists are when it is sent."""
    emulator = api.emulator
    emulator.add_list("A", ["one@example.com", "two@example.com", "three@example.com", "gone@example.com"])
    emulator.add_list("B", ["two@example.com", "four@example.com"])
    emulator.add_list("Staff", ["three@example.com"])
    emulator.add_contact(phone_number="+49 1", lists=["B"])
    emulator.suppress("gone@example.com")
    api.campaign("m", sendListNames=["A", "B"], repelListNames=["Staff"], **AT_ONE)
    api.ok("contacts/upsert", email="new@example.com", listName="A")
    emulator.clock.advance(hours=1)
    api.ok("contacts/upsert", email="late@example.com", listName="A")
    people = ["four@example.com", "new@example.com", "one@example.com", "two@example.com"]
    assert emulator.campaign_recipients("m") == people
    emulator.clock.advance(5)
    stats = api.ok("campaign/mail/get")["mailList"][0]["mailStats"]
    # Eight entries in the lists: one duplicate, one excluded, one suppressed, one without an address.
    assert (stats["sentCount"], stats["unsentCount"]) == (4, 4)
    assert [mail["mailName"] for mail in emulator.mails_to("two@example.com")] == ["m"]
