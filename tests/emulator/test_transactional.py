"""Transactional email: both forms, the table of errors, statistics."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.emulator.conftest import Api

SEND = "transactional/mail/sends_customised"
FILE = base64.b64encode(b"invoice").decode()
SINGLE: dict[str, Any] = {
    "subject": "Your order",
    "content": "<p>Thanks</p>",
    "senderMail": "news@example.com",
    "to": {"email": "ann@example.com", "name": "Ann"},
}
BATCH: dict[str, Any] = {
    "subject": "Your order",
    "content": "<p>Thanks, {{name}}</p>",
    "senderMail": "news@example.com",
    "messageVersions": [{"to": [{"email": "ann@example.com"}], "cc": [], "bcc": []}],
}


def version(**changes: Any) -> dict[str, Any]:
    return {"to": [{"email": "ann@example.com"}], "cc": [], "bcc": [], **changes}


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


class TestSingleForm:
    def test_is_sent_as_given(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        answer = api(
            SEND, **SINGLE, senderName="Shop", replyTo="re@example.com", sendDate="2026-03-01T13:00:00Z",
            category="Orders", campaign="Spring1", trackOpen=1, trackClick=0, uniqueMsgID="order-1",
            attachment={"fileName": "invoice.pdf", "fileData": FILE},
        )  # fmt: skip
        assert answer == {"code": 200, "message": ""}
        assert api.emulator.messages("order-1") == [
            {
                "batch": 1, "version": 0, "unique_msg_id": "order-1", "form": "single", "sender": "news@example.com",
                "sender_name": "Shop", "reply_to": "re@example.com", "subject": "Your order",
                "content": "<p>Thanks</p>", "template": None, "category": "Orders", "campaign": "Spring1",
                "attachment_name": "invoice.pdf", "attachment_bytes": 7, "created": "2026-03-01T12:00:00Z",
                "send_date": "2026-03-01T13:00:00Z",
                "recipients": [
                    {"role": "to", "email": "ann@example.com", "name": "Ann", "dropped": None, "bounce": None}
                ],
            }
        ]  # fmt: skip

    def test_may_accept_a_template(self, api: Api) -> None:
        api.emulator.add_template("order", subject="From the template", content="<p>{{x}}</p>")
        body = {**without(SINGLE, "content"), "templateName": "order"}
        assert "templateName" in api.refused(400, SEND, **body)
        api.emulator.change_settings(single_form_template=True)
        api.ok(SEND, **body)
        assert api.emulator.messages()[0]["template"] == "order"


class TestBatchForm:
    def test_a_version_overrides_what_all_share(self, api: Api) -> None:
        api.emulator.add_template("global", subject="Global template", content="global {{name}} {{town}}")
        api.emulator.add_template("own", subject="Own template", content="own {{name}}")
        api.ok(
            SEND,
            **without(BATCH, "subject", "content", "messageVersions"),
            content="shared {{name}}",
            templateName="global",
            params={"name": "you", "town": "Rome"},
            messageVersions=[
                version(),
                version(params={"name": "Ann"}),
                version(content="mine {{name}}", subject="Mine {{name}}"),
                version(templateName="own", content="ignored"),
            ],
        )
        said = [(message["subject"], message["content"], message["template"]) for message in api.emulator.messages()]
        assert said == [
            ("Global template", "global you Rome", "global"),
            ("Global template", "global Ann Rome", "global"),
            ("Mine you", "mine you", None),
            ("Own template", "own you", "own"),
        ]

    def test_the_subject_given_wins_over_the_template(self, api: Api) -> None:
        api.emulator.add_template("t", subject="Template", content="c")
        api.ok(SEND, **without(BATCH, "content"), templateName="t")
        assert api.emulator.messages()[0]["subject"] == "Your order"

    def test_every_recipient_gets_it(self, api: Api) -> None:
        api.ok(
            SEND,
            **without(BATCH, "messageVersions"),
            messageVersions=[
                version(cc=[{"email": "cc@example.com", "name": "C"}], bcc=[{"email": "bcc@example.com"}]),
                version(to=[{"email": "ann@example.com"}, {"email": "bob@example.com"}]),
            ],
        )
        found = [[(one["role"], one["email"]) for one in each["recipients"]] for each in api.emulator.messages()]
        assert found == [
            [("to", "ann@example.com"), ("cc", "cc@example.com"), ("bcc", "bcc@example.com")],
            [("to", "ann@example.com"), ("to", "bob@example.com")],
        ]
        assert len(api.emulator.mails_to("ANN@example.com")) == 2
        assert [one["version"] for one in api.emulator.messages(recipient="bob@example.com")] == [1]

    @pytest.mark.parametrize("missing", ["cc", "bcc"])
    def test_cc_and_bcc_are_listed_as_required(self, api: Api, missing: str) -> None:
        body = {**BATCH, "messageVersions": [without(version(), missing)]}
        assert f"messageVersions[0].{missing}" in api.refused(400, SEND, **body)
        api.emulator.change_settings(cc_bcc_required=False)
        api.ok(SEND, **body)

    def test_a_tag_without_value_stays(self, api: Api) -> None:
        api.ok(SEND, **BATCH)
        assert api.emulator.messages()[0]["content"] == "<p>Thanks, {{name}}</p>"


class TestErrors:
    """The document's table of errors of transactional sending, row by row."""

    def refused(self, api: Api, code: int, body: dict[str, Any]) -> str:
        message = api.refused(code, SEND, **body)
        assert api.refused(code, SEND, **body, sandboxMode=True) == message
        assert api.emulator.messages() == []
        return message

    @pytest.mark.parametrize("missing", ["subject", "content", "senderMail", "to"])
    def test_400_required_parameter_missing_single(self, api: Api, missing: str) -> None:
        assert missing in self.refused(api, 400, without(SINGLE, missing))

    @pytest.mark.parametrize("missing", ["subject", "content", "senderMail"])
    def test_400_required_parameter_missing_batch(self, api: Api, missing: str) -> None:
        assert missing in self.refused(api, 400, without(BATCH, missing))

    @pytest.mark.parametrize("body", [SINGLE, BATCH])
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("sendDate", "tomorrow"),
            ("sendDate", "2026-03-01T10:00:00+01:00"),
            ("category", "x" * 101),
            ("category", "has-dash"),
            ("category", "é"),
            ("campaign", "x" * 101),
            ("campaign", "two words"),
            ("uniqueMsgID", "x" * 51),
            ("uniqueMsgID", "é" * 26),
            ("replyTo", "nobody"),
            ("attachment", {"fileName": "a"}),
            ("attachment", {"fileData": FILE}),
            ("attachment", {"fileName": "a", "fileData": "%%%"}),
        ],
    )
    def test_400_wrong_values(self, api: Api, body: dict[str, Any], field: str, value: Any) -> None:
        assert field in self.refused(api, 400, {**body, field: value})

    @pytest.mark.parametrize(
        "body",
        [
            without(SINGLE, "to"),
            {**SINGLE, "to": {}},
            {**BATCH, "messageVersions": []},
            {**BATCH, "messageVersions": [version(to=[])]},
            {**BATCH, "messageVersions": [without(version(), "to")]},
        ],
    )
    def test_400_no_recipient(self, api: Api, body: dict[str, Any]) -> None:
        message = self.refused(api, 400, body)
        assert "to" in message or "recipient" in message

    @pytest.mark.parametrize("email", ["", None, "nobody", "a b@example.com"])
    def test_400_recipient_email_empty_or_wrong(self, api: Api, email: str | None) -> None:
        assert "to.email" in self.refused(api, 400, {**SINGLE, "to": {"email": email}})
        body = {**BATCH, "messageVersions": [version(), version(cc=[{"email": email}])]}
        assert "messageVersions[1].cc[0].email" in self.refused(api, 400, body)

    def test_the_batch_form_may_not_validate_addresses(self, api: Api) -> None:
        api.emulator.change_settings(batch_email_check=False)
        api.ok(SEND, **{**BATCH, "messageVersions": [version(to=[{"email": "nobody"}])]})
        assert "email" in self.refused_empty(api)

    def refused_empty(self, api: Api) -> str:
        return api.refused(400, SEND, **{**BATCH, "messageVersions": [version(to=[{"email": ""}])]})

    def test_400_a_template_inside_a_version_is_unknown(self, api: Api) -> None:
        body = {**BATCH, "messageVersions": [version(templateName="nowhere")]}
        assert "nowhere" in self.refused(api, 400, body)

    def test_403_template_name_matches_no_template(self, api: Api) -> None:
        assert "nowhere" in self.refused(api, 403, {**BATCH, "templateName": "nowhere"})

    def test_400_sender_name_too_long(self, api: Api) -> None:
        assert "senderName" in self.refused(api, 400, {**BATCH, "senderName": "é" * 101})
        api.ok(SEND, **{**BATCH, "senderName": "é" * 100})

    @pytest.mark.parametrize("body", [SINGLE, BATCH])
    def test_403_sender_is_not_configured(self, api: Api, body: dict[str, Any]) -> None:
        api.emulator.add_sender("campaigns@other.example", types=[1])
        for sender in ("who@example.org", "campaigns@other.example"):
            assert sender in self.refused(api, 403, {**body, "senderMail": sender})

    def test_403_sender_is_not_verified_only_when_set(self, api: Api) -> None:
        api.emulator.add_sender("new@new.example", verified=False)
        api.emulator.change_settings(transactional_needs_verified=True)
        self.refused(api, 403, {**SINGLE, "senderMail": "new@new.example"})
        api.emulator.change_settings(transactional_needs_verified=False)
        api.ok(SEND, **{**SINGLE, "senderMail": "new@new.example"})

    def test_400_neither_content_nor_template(self, api: Api) -> None:
        assert "content or templateName" in self.refused(api, 400, without(BATCH, "content"))

    def test_403_insufficient_credits(self, api: Api) -> None:
        api.emulator.change_settings(email_credits=2)
        three = {**BATCH, "messageVersions": [version(), version(), version()]}
        assert "credits" in self.refused(api, 403, three)
        api.ok(SEND, **SINGLE)
        api.ok(SEND, **SINGLE)
        api.refused(403, SEND, **SINGLE)

    def test_ids_seen_before_are_accepted_unless_set(self, api: Api) -> None:
        for _ in range(2):
            api.ok(SEND, **SINGLE, uniqueMsgID="once")
        api.emulator.change_settings(duplicate_unique_msg_id_code=409)
        api.refused(409, SEND, **SINGLE, uniqueMsgID="once")
        assert len(api.emulator.messages("once")) == 2


class TestSandbox:
    @pytest.mark.parametrize("body", [SINGLE, BATCH])
    def test_sends_nothing(self, api: Api, body: dict[str, Any]) -> None:
        assert api(SEND, **body, sandboxMode=True) == {"code": 200, "message": ""}
        assert api.emulator.messages() == []
        assert api.emulator.mails_to("ann@example.com") == []


class TestStatistics:
    def days(self, api: Api, start: str, end: str) -> list[dict[str, Any]]:
        return api.ok("transactional/mail/stats/get", startDate=start, endDate=end)["mailStatsList"]

    def send(self, api: Api, count: int, **body: Any) -> None:
        people = [version(to=[{"email": f"{number}@example.com"}]) for number in range(count)]
        api.ok(SEND, **{**BATCH, "messageVersions": people, **body})

    def test_one_record_per_calendar_day(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-02T12:00:00Z")
        self.send(api, 3)
        assert self.days(api, "2026-03-01", "2026-03-05") == [
            {
                "statsDate": day, "sentCount": sent, "openCount": 0, "clickCount": 0, "bounceCount": 0,
                "unsentCount": 0, "unsubscribeCount": 0,
            }
            for day, sent in (("2026-03-01", 0), ("2026-03-02", 3))
        ]  # fmt: skip
        api.emulator.change_settings(stats_empty_days=False)
        assert [day["statsDate"] for day in self.days(api, "2026-03-01", "2026-03-05")] == ["2026-03-02"]

    def test_counts_grow_and_need_tracking(self, api: Api) -> None:
        api.emulator.change_settings(open_rate=0.8, click_rate=0.5)
        api.emulator.clock.freeze("2026-03-02T12:00:00Z")
        self.send(api, 100, trackOpen=1, trackClick=1)
        (first,) = self.days(api, "2026-03-02", "2026-03-02")
        api.emulator.clock.advance(days=8)
        (last,) = self.days(api, "2026-03-02", "2026-03-02")
        assert first["openCount"] == first["clickCount"] == 0
        assert 50 < last["openCount"] < 100
        assert 0 < last["clickCount"] < last["openCount"]
        self.send(api, 100, trackOpen=0)
        self.send(api, 100)
        self.send(api, 100, trackOpen="1", trackClick=True)
        api.emulator.clock.advance(days=8)
        (untracked,) = self.days(api, "2026-03-10", "2026-03-10")
        assert (untracked["sentCount"] > 200, untracked["openCount"], untracked["clickCount"]) == (True, 0, 0)

    def test_opens_count_on_the_day_of_the_send_or_of_the_open(self, api: Api) -> None:
        api.emulator.change_settings(open_rate=1.0)
        api.emulator.clock.freeze("2026-03-02T12:00:00Z")
        self.send(api, 100, trackOpen=1)
        api.emulator.clock.advance(days=8)
        by_send = self.days(api, "2026-03-02", "2026-03-10")
        api.emulator.change_settings(stats_day="event")
        by_event = self.days(api, "2026-03-02", "2026-03-10")
        assert [day["openCount"] > 0 for day in by_send] == [True] + [False] * 8
        assert sum(day["openCount"] > 0 for day in by_event) > 3
        assert sum(day["openCount"] for day in by_send) == sum(day["openCount"] for day in by_event)

    def test_bounces_and_suppressed(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-02T12:00:00Z")
        api.emulator.change_settings(soft_bounce_rate=1.0, hard_bounce_rate=0.0)
        api.emulator.suppress("ann@example.com")
        api.ok(SEND, **SINGLE)
        self.send(api, 2)
        (day,) = self.days(api, "2026-03-02", "2026-03-02")
        assert (day["sentCount"], day["bounceCount"], day["unsentCount"]) == (2, 2, 1)
        assert api.emulator.mails_to("ann@example.com") == []

    def test_scheduled_mail_counts_when_it_goes_out(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-02T12:00:00Z")
        self.send(api, 2, sendDate="2026-03-03T00:00:00Z")
        assert sum(day["sentCount"] for day in self.days(api, "2026-03-01", "2026-03-05")) == 0
        api.emulator.clock.advance(hours=12)
        assert self.days(api, "2026-03-03", "2026-03-03")[0]["sentCount"] == 2

    def test_fixed_days(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-02T12:00:00Z")
        api.emulator.set_transactional_day("2026-03-02", sentCount=10, openCount=4)
        (day,) = self.days(api, "2026-03-02", "2026-03-02")
        assert (day["sentCount"], day["openCount"], day["clickCount"]) == (10, 4, 0)
