"""Campaign send tasks: creation with its table of errors, get, cancel, delete, and the states of the document."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from tests.emulator.conftest import Api

FILE = base64.b64encode(b"price list").decode()


@pytest.fixture(autouse=True)
def _readers(emulator: Emulator) -> None:
    emulator.add_list("Readers", count=100)


class TestErrorsOfCreation:
    """The document's table of errors of /v5/campaign/mail/sends, row by row."""

    def refused(self, api: Api, code: int, **body: Any) -> str:
        whole = {"mailName": "m", "senderMail": "news@example.com", "sendListNames": ["Readers"], **body}
        whole = {name: value for name, value in whole.items() if value is not ...}
        message = api.refused(code, "campaign/mail/sends", **whole)
        assert api.emulator.campaigns() == []
        # In sandbox mode the same is found out.
        assert api.refused(code, "campaign/mail/sends", **whole, sandboxMode=True) == message
        return message

    @pytest.mark.parametrize("missing", ["mailName", "senderMail", "sendListNames"])
    def test_400_required_parameter_missing(self, api: Api, missing: str) -> None:
        assert missing in self.refused(api, 400, **{missing: ...})

    @pytest.mark.parametrize("name", ["x" * 201, "é" * 101, "名" * 67])
    def test_400_mail_name_exceeds_200_bytes(self, api: Api, name: str) -> None:
        assert "mailName exceeds 200 bytes" in self.refused(api, 400, mailName=name)

    @pytest.mark.parametrize(
        "moment",
        ["2026-03-01", "2026-03-01T10:00:00", "2026-03-01T10:00:00+00:00", "2026-03-01T10:00:00.000Z",
         "2026-02-30T10:00:00Z", "2026-03-01 10:00:00Z", 1772359200, "2026-03-01T24:00:00Z", "٢٠٢٦-03-01T10:00:00Z"],
    )  # fmt: skip
    def test_400_send_date_is_not_iso_8601_utc(self, api: Api, moment: object) -> None:
        assert "sendDate" in self.refused(api, 400, sendDate=moment)

    @pytest.mark.parametrize(
        ("attachment", "names"),
        [({"fileData": FILE}, "fileName"), ({"fileName": "a.pdf"}, "fileData"), ({"fileName": "", "fileData": FILE},
         "fileName"), ([], "attachment")],
    )  # fmt: skip
    def test_400_attachment_lacks_name_or_data(self, api: Api, attachment: Any, names: str) -> None:
        assert names in self.refused(api, 400, attachment=attachment)

    def test_400_lists_empty_while_only_save_is_not_true(self, api: Api) -> None:
        for only_save in (False, None, ...):
            assert "sendListNames" in self.refused(api, 400, sendListNames=[], onlySave=only_save)

    @pytest.mark.parametrize("field", ["sendListNames", "repelListNames"])
    def test_403_a_name_matches_no_list(self, api: Api, field: str) -> None:
        message = self.refused(api, 403, **{field: ["Readers", "Nowhere"]})
        assert field in message
        assert "Nowhere" in message

    @pytest.mark.parametrize("kind", ["task_check_failed", "attachment_failed"])
    def test_500_and_the_task_is_kept(self, api: Api, kind: str) -> None:
        api.emulator.faults.add(kind, "campaign/mail/sends")
        answer = api.campaign("m")
        assert answer["code"] == 500
        assert "id" not in answer
        (kept,) = api.emulator.campaigns("m")
        assert (kept["state"], kept["keptBecause"]) == ("draft", answer["message"])
        assert api.status("m") == -1
        assert api.emulator.journal.processed("campaign/mail/sends")
        # Its name is taken.
        assert api.campaign("m")["code"] == 400

    def test_500_a_kept_task_may_go_out_all_the_same(self, api: Api) -> None:
        api.emulator.clock.freeze()
        api.emulator.change_settings(kept_task_state="scheduled")
        api.emulator.faults.add("task_check_failed")
        assert api.campaign("m")["code"] == 500
        assert api.status("m") == 1

    def test_500_an_attachment_that_is_no_base64(self, api: Api) -> None:
        answer = api.campaign("m", attachment={"fileName": "a.pdf", "fileData": "%%%"})
        assert answer["code"] == 500
        assert "attachment" in answer["message"]
        assert len(api.emulator.campaigns("m")) == 1

    def test_500_task_creation_failed(self, api: Api) -> None:
        api.emulator.faults.add("code_before", code=500, message="task creation failed")
        assert api.campaign("m")["code"] == 500
        assert api.emulator.campaigns() == []

    def test_an_unverified_sender(self, api: Api) -> None:
        api.emulator.add_sender("new@new.example", verified=False)
        api.emulator.add_sender("receipts@shop.example", types=[2])
        for sender in ("new@new.example", "receipts@shop.example", "who@example.org"):
            assert sender in self.refused(api, 403, senderMail=sender)
        api.emulator.change_settings(unverified_sender_code=400)
        self.refused(api, 400, senderMail="new@new.example")

    def test_an_unknown_subscription(self, api: Api) -> None:
        assert "subscriptName" in self.refused(api, 403, subscriptName="Offers")
        api.emulator.add_subscription("Offers")
        assert api.campaign("m", subscriptName="Offers")["code"] == 200

    @pytest.mark.parametrize(
        "wrong", [{"languageCode": "EN"}, {"editorType": "classic"}, {"onlySave": "yes"}, {"sendListNames": "Readers"},
                  {"repelListNames": [1]}, {"content": 1}]
    )  # fmt: skip
    def test_values_that_the_document_does_not_list(self, api: Api, wrong: dict[str, Any]) -> None:
        assert next(iter(wrong)) in self.refused(api, 400, **wrong)


class TestNames:
    def test_are_unique_within_the_team(self, api: Api) -> None:
        api.campaign("m")
        assert api.campaign("m")["code"] == 400
        api.emulator.change_settings(duplicate_mail_name_code=500)
        assert api.campaign("m")["code"] == 500
        assert len(api.emulator.campaigns("m")) == 1

    def test_uniqueness_may_be_left_to_the_client(self, api: Api) -> None:
        api.emulator.change_settings(enforce_unique_mail_name=False)
        assert api.campaign("m")["guid"] != api.campaign("m")["guid"]
        assert len(api.emulator.campaigns("m")) == 2

    def test_of_a_removed_task_are_free_again_and_both_are_remembered(self, api: Api) -> None:
        api.campaign("m")
        api.ok("campaign/mail/delete", mailName="m")
        api.campaign("m")
        assert [task["removed"] for task in api.emulator.campaigns("m")] == [True, False]

    @pytest.mark.parametrize("name", ["x" * 200, "é" * 100, "名" * 66])
    def test_may_have_200_bytes(self, api: Api, name: str) -> None:
        assert api.campaign(name)["code"] == 200


class TestGet:
    def test_shows_everything_the_document_lists(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        api.emulator.add_list("Staff", count=3)
        given = {
            "subject": "Hello {{name}}", "content": "<p>Hi</p>", "senderName": "News", "replyTo": "re@example.com",
            "sendDate": "2026-03-01T13:00:00Z", "repelListNames": ["Staff"], "languageCode": "zh-tw",
            "marketName": "Spring", "projectCode": "P1",
        }  # fmt: skip
        created = api.campaign("m", **given, attachment={"fileName": "a.pdf", "fileData": FILE}, editorType="CLASSIC")
        (task,) = api.ok("campaign/mail/get", mailName="m")["mailList"]
        assert task == {
            "mailName": "m", "subject": "Hello {{name}}", "mailContent": "<p>Hi</p>", "senderName": "News",
            "senderMail": "news@example.com", "replyTo": "re@example.com", "rcptEmails": [], "repelEmails": [],
            "rcptListNames": ["Readers"], "repelListNames": ["Staff"], "sendByDateTime": 1772370000000,
            "taskType": "MailList", "mailStatus": 1, "guid": created["guid"], "teamName": "Marketing",
            "languageCode": "zh-tw", "marketName": "Spring", "subscriptName": None, "projectCode": "P1",
            "reviewerName": None,
        }  # fmt: skip
        assert api.emulator.campaigns("m")[0]["attachmentBytes"] == len(b"price list")
        assert isinstance(created["id"], int)

    def test_defaults(self, api: Api) -> None:
        api.campaign("m")
        (task,) = api.ok("campaign/mail/get")["mailList"]
        assert task["senderName"] == task["replyTo"] == "news@example.com"

    def test_filters(self, api: Api) -> None:
        api.emulator.clock.freeze()
        api.emulator.add_campaign("Spring sale", subject="50% off", sender_mail="shop@example.com")
        api.emulator.add_campaign("Spring news", subject="News", type="ABTest", state="failed")
        api.emulator.add_campaign("Autumn news", subject="News", state="sending")
        api.emulator.add_campaign("Draft", subject="", state="draft")
        api.emulator.add_campaign("Foreign", team="Sales")

        def names(**body: Any) -> set[str]:
            found = api.ok("campaign/mail/get", **body)
            assert found["totalRecords"] == len(found["mailList"])
            return {task["mailName"] for task in found["mailList"]}

        assert names() == {"Spring sale", "Spring news", "Autumn news", "Draft"}
        assert names(mailName="spring") == {"Spring sale", "Spring news"}
        assert names(subject="0%") == {"Spring sale"}
        assert names(senderMail="SHOP@example.com") == {"Spring sale"}
        assert names(type="ABTest") == {"Spring news"}
        assert names(mailStatus=[2]) == {"Spring sale"}
        assert names(mailStatus=[1, 4]) == {"Spring news", "Autumn news"}
        assert names(mailStatus=[-1]) == {"Draft"}
        assert names(mailStatus=[]) == set()
        assert names(mailStatus=[2], mailName="news") == set()
        for wrong in ({"mailStatus": [3]}, {"mailStatus": 2}, {"type": "Other"}, {"allTeam": 1}):
            api.refused(400, "campaign/mail/get", **wrong)

    def test_all_teams_need_permission(self, api: Api) -> None:
        api.emulator.add_campaign("Foreign", team="Sales")
        api.refused(403, "campaign/mail/get", allTeam=True)
        api.emulator.change_settings(cross_team_permission=True)
        assert api.ok("campaign/mail/get", allTeam=True)["mailList"][0]["teamName"] == "Sales"
        assert api.ok("campaign/mail/get")["mailList"] == []

    def test_newest_first_or_last(self, api: Api) -> None:
        for name in "abc":
            api.emulator.add_campaign(name)
        assert [task["mailName"] for task in api.ok("campaign/mail/get")["mailList"]] == ["c", "b", "a"]
        api.emulator.change_settings(newest_first=False)
        assert [task["mailName"] for task in api.ok("campaign/mail/get")["mailList"]] == ["a", "b", "c"]


class TestStates:
    """The document's table "States and transitions"."""

    def test_none_to_draft_with_only_save(self, api: Api) -> None:
        assert api.campaign("m", onlySave=True)["code"] == 200
        api.emulator.clock.advance(days=1)
        assert api.status("m") == -1
        assert api.emulator.campaign_recipients("m") == []

    def test_none_to_sending_to_complete_after_a_time(self, api: Api) -> None:
        api.emulator.change_settings(sending_seconds=60.0)
        api.emulator.clock.freeze()
        api.campaign("m")
        assert api.status("m") == 1
        api.emulator.clock.advance(59)
        assert api.status("m") == 1
        api.emulator.clock.advance(1)
        assert api.status("m") == 2
        assert len(api.emulator.campaign_recipients("m")) == 100

    def test_sending_to_complete_after_a_number_of_looks(self, api: Api) -> None:
        api.emulator.change_settings(sending_looks=3)
        api.campaign("m")
        api.emulator.clock.advance(days=9)
        assert [api.status("m") for _ in range(5)] == [1, 1, 1, 2, 2]

    def test_sending_to_failed(self, api: Api) -> None:
        api.emulator.change_settings(campaign_outcome="failed", sending_looks=1)
        api.campaign("m")
        assert [api.status("m") for _ in range(3)] == [1, 4, 4]
        assert api.emulator.campaign_recipients("m") == []

    def test_a_campaign_may_have_plans_of_its_own(self, api: Api) -> None:
        api.emulator.clock.freeze()
        api.emulator.plan_campaign("quick", seconds=0)
        api.emulator.plan_campaign("broken", looks=1, outcome="failed")
        for name in ("quick", "broken", "slow"):
            api.campaign(name)
        api.emulator.plan_campaign("slow", seconds=3600)
        assert [api.status(name) for name in ("quick", "broken", "slow")] == [2, 1, 1]
        api.emulator.clock.advance(60)
        assert [api.status(name) for name in ("quick", "broken", "slow")] == [2, 4, 1]
        api.emulator.clock.advance(3600)
        assert api.status("slow") == 2

    def test_mail_stats_only_at_complete(self, api: Api) -> None:
        api.emulator.change_settings(sending_looks=1)
        api.campaign("m")
        sending, done = (api.ok("campaign/mail/get")["mailList"][0] for _ in range(2))
        assert "mailStats" not in sending
        assert set(done["mailStats"]) == {
            "sentCount", "deliveredCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount",
            "unsubscribeCount",
        }  # fmt: skip

    @pytest.mark.parametrize("status", [1, -1])
    def test_a_scheduled_task_waits_for_its_time(self, api: Api, status: int) -> None:
        api.emulator.change_settings(scheduled_status=status)
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        api.campaign("m", sendDate="2026-03-01T13:00:00Z")
        api.emulator.clock.set("2026-03-01T12:59:59Z")
        assert (api.status("m"), api.emulator.campaigns("m")[0]["state"]) == (status, "scheduled")
        api.emulator.clock.set("2026-03-01T13:00:00Z")
        assert (api.status("m"), api.emulator.campaigns("m")[0]["state"]) == (1, "sending")
        api.emulator.clock.set("2026-03-01T13:00:05Z")
        assert api.status("m") == 2

    def test_a_send_date_in_the_past_is_now(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        api.campaign("m", sendDate="2020-01-01T00:00:00Z")
        assert api.ok("campaign/mail/get")["mailList"][0]["sendByDateTime"] == 1772366400000

    @pytest.mark.parametrize(("after", "status"), [("draft", -1), ("failed", 4), ("removed", None)])
    def test_scheduled_to_cancelled(self, api: Api, after: str, status: int | None) -> None:
        api.emulator.change_settings(state_after_cancel=after)
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        api.campaign("m", sendDate="2026-03-01T13:00:00Z")
        api.ok("campaign/mail/cancel", mailName="m", sandboxMode=True)
        assert api.status("m") == 1
        api.ok("campaign/mail/cancel", mailName="m")
        assert api.status("m") == status
        api.emulator.clock.advance(days=1)
        assert api.status("m") == status
        assert api.emulator.campaigns("m")[0]["cancelled"]
        assert api.emulator.campaign_recipients("m") == []

    def test_a_task_whose_time_has_passed_cannot_be_cancelled(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        api.campaign("m", sendDate="2026-03-01T13:00:00Z")
        api.emulator.clock.advance(hours=1)
        assert "send time has passed" in api.refused(403, "campaign/mail/cancel", mailName="m")
        api.campaign("draft", onlySave=True)
        api.refused(403, "campaign/mail/cancel", mailName="draft")
        api.refused(404, "campaign/mail/cancel", mailName="nothing")

    @pytest.mark.parametrize("state", ["draft", "scheduled", "sending", "done", "failed"])
    def test_any_to_removed(self, api: Api, state: str) -> None:
        api.emulator.clock.freeze()
        api.campaign("m", sendDate="2099-01-01T00:00:00Z")
        api.emulator.set_campaign_state("m", state)
        api.emulator.change_settings(deletable_states=["draft"])
        if state != "draft":
            assert state in api.refused(403, "campaign/mail/delete", mailName="m")
        api.emulator.change_settings(deletable_states=[state])
        api.ok("campaign/mail/delete", mailName="m", sandboxMode=True)
        assert api.status("m") is not None
        api.ok("campaign/mail/delete", mailName="m")
        assert api.status("m") is None
        api.refused(404, "campaign/mail/delete", mailName="m")

    def test_a_created_task_may_appear_late(self, api: Api) -> None:
        api.emulator.clock.freeze()
        api.emulator.change_settings(visible_after_looks=2)
        api.campaign("looks")
        assert [api.status("looks") for _ in range(3)] == [None, None, 1]
        api.emulator.change_settings(visible_after_looks=0, visible_after_seconds=30.0)
        api.campaign("seconds")
        assert api.status("seconds") is None
        api.emulator.clock.advance(30)
        assert api.status("seconds") == 2

    def test_sandbox_creates_nothing(self, api: Api) -> None:
        answer = api.campaign("m", sandboxMode=True)
        assert (answer["code"], answer["message"]) == (200, "")
        assert isinstance(answer["id"], int)
        assert isinstance(answer["guid"], str)
        api.emulator.change_settings(sandbox_ids="null")
        assert api.campaign("m", sandboxMode=True)["id"] is None
        assert api.emulator.campaigns() == []


class TestRecipients:
    def test_every_contact_once_without_excluded_suppressed_and_addressless(self, api: Api) -> None:
        emulator = api.emulator
        emulator.add_list("A", ["one@example.com", "two@example.com", "three@example.com", "gone@example.com"])
        emulator.add_list("B", ["two@example.com", "four@example.com"])
        emulator.add_list("Staff", ["three@example.com"])
        emulator.add_contact(phone_number="+49 1", lists=["B"])
        emulator.suppress("gone@example.com")
        api.campaign("m", sendListNames=["A", "B"], repelListNames=["Staff"])
        assert emulator.campaign_recipients("m") == ["four@example.com", "one@example.com", "two@example.com"]
        emulator.clock.advance(5)
        stats = api.ok("campaign/mail/get")["mailList"][0]["mailStats"]
        # Seven entries in the lists: one duplicate, one excluded, one suppressed, one without an address.
        assert (stats["sentCount"], stats["unsentCount"]) == (3, 4)

    def test_are_those_of_the_moment_of_sending(self, api: Api) -> None:
        api.emulator.clock.freeze()
        api.emulator.add_list("A", ["one@example.com"])
        api.campaign("m", sendListNames=["A"], sendDate="2099-01-01T00:00:00Z")
        api.ok("contacts/upsert", email="two@example.com", listName="A")
        api.emulator.clock.set("2099-01-01T00:00:00Z")
        api.ok("contacts/upsert", email="late@example.com", listName="A")
        assert api.emulator.campaign_recipients("m") == ["one@example.com", "two@example.com"]

    def test_mails_to_an_address_tell_who_was_written_to_twice(self, api: Api) -> None:
        api.campaign("first")
        api.campaign("second")
        api.campaign("draft", onlySave=True, sendListNames=["Readers"])
        mails = api.emulator.mails_to("readers-1@example.com")
        assert [mail["mailName"] for mail in mails] == ["first", "second"]
