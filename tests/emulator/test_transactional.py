"""Transactional email: both forms, the table of errors, statistics; and the specification's table "Limits"."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.emulator.conftest import BATCH, SEND, SINGLE, Api, batch, version

FILE = base64.b64encode(b"invoice").decode()
NOON = "2026-03-02T12:00:00Z"


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def test_the_single_form_is_sent_as_given(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-01T12:00:00Z")
    response = api(
        SEND, **SINGLE, senderName="Shop", replyTo="re@example.com", sendDate="2026-03-01T13:00:00Z",
        category="Orders", campaign="Spring1", trackOpen=1, trackClick=0, uniqueMsgID="order-1",
        attachment={"fileName": "invoice.pdf", "fileData": FILE},
    )  # fmt: skip
    assert response == {"code": 200, "message": ""}
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


def test_a_version_overrides_what_all_share(api: Api) -> None:
    api.emulator.add_template("global", subject="Global template", content="global {{name}} {{town}} {{other}}")
    api.emulator.add_template("own", subject="Own template", content="own {{name}}")
    shared: dict[str, Any] = {"templateName": "global", "params": {"name": "you", "town": "Rome"}}
    versions = [
        version(),
        version(params={"name": "Ann"}),
        version(content="mine {{name}}", subject="Mine {{name}}"),
        version(templateName="own", content="ignored"),
    ]
    api.ok(SEND, **without(batch(*versions), "subject"), **shared)
    api.ok(SEND, **without(BATCH, "content"), templateName="global")
    assert [(each["subject"], each["content"], each["template"]) for each in api.emulator.messages()] == [
        ("Global template", "global you Rome {{other}}", "global"),
        ("Global template", "global Ann Rome {{other}}", "global"),
        ("Mine you", "mine you", None),
        ("Own template", "own you", "own"),
        ("Your order", "global {{name}} {{town}} {{other}}", "global"),
    ]


def test_each_recipient_of_each_version_gets_it(api: Api) -> None:
    copies = version(cc=[{"email": "cc@example.com", "name": "C"}], bcc=[{"email": "bcc@example.com"}])
    api.ok(SEND, **batch(copies, version(to=[{"email": "ann@example.com"}, {"email": "bob@example.com"}])))
    assert [[(each["role"], each["email"]) for each in mail["recipients"]] for mail in api.emulator.messages()] == [
        [("to", "ann@example.com"), ("cc", "cc@example.com"), ("bcc", "bcc@example.com")],
        [("to", "ann@example.com"), ("to", "bob@example.com")],
    ]
    assert len(api.emulator.mails_to("ANN@example.com")) == 2
    assert [each["version"] for each in api.emulator.messages(recipient="bob@example.com")] == [1]


BOTH: list[tuple[int, str, dict[str, Any]]] = [
    (400, "subject", {"subject": None}),
    (400, "content", {"content": None}),
    (400, "senderMail", {"senderMail": None}),
    (400, "sendDate", {"sendDate": "tomorrow"}),
    (400, "sendDate", {"sendDate": "2026-03-01T10:00:00+01:00"}),
    (400, "uniqueMsgID", {"uniqueMsgID": "é" * 26}),
    (400, "replyTo", {"replyTo": "nobody"}),
    (400, "attachment", {"attachment": {"fileName": "a"}}),
    (400, "attachment", {"attachment": {"fileData": FILE}}),
    (400, "attachment", {"attachment": {"fileName": "a", "fileData": "%%%"}}),
    (403, "who@example.org", {"senderMail": "who@example.org"}),
    (403, "campaigns@other.example", {"senderMail": "campaigns@other.example"}),
]
ERRORS = [
    *((code, words, form | changes) for code, words, changes in BOTH for form in (SINGLE, BATCH)),
    (400, "to", without(SINGLE, "to")),
    (400, "to", SINGLE | {"to": {}}),
    (400, "recipient", BATCH | {"messageVersions": []}),
    (400, "to", batch(version(to=[]))),
    (400, "to", batch(without(version(), "to"))),
    *((400, "to.email", SINGLE | {"to": {"email": email}}) for email in ("", None, "nobody", "a b@example.com")),
    *((400, "messageVersions[1].cc[0].email", batch(version(), version(cc=[{"email": email}])))
      for email in ("", None, "nobody", "a b@example.com")),
    (400, "content or templateName", without(BATCH, "content")),
    (400, "nowhere", batch(version(templateName="nowhere"))),
    (403, "nowhere", BATCH | {"templateName": "nowhere"}),
    (403, "credits", batch(version(), version(), version())),
]  # fmt: skip
"""The specification's table of errors."""


def test_errors(api: Api) -> None:
    api.emulator.add_sender("campaigns@other.example", types=[1])
    api.emulator.change_settings(email_credits=2)
    for code, words, body in ERRORS:
        message = api.rejected(code, SEND, words, **body)
        assert api.rejected(code, SEND, **body, sandboxMode=True) == message
    assert api.emulator.messages() == []
    for _ in range(2):
        api.ok(SEND, **SINGLE)
    api.rejected(403, SEND, "credits", **SINGLE)


def test_rules_that_settings_change(api: Api) -> None:
    api.emulator.add_sender("new@new.example", verified=False)
    api.emulator.add_template("order", subject="From the template", content="<p>{{x}}</p>")
    templated = without(SINGLE, "content") | {"templateName": "order"}
    api.rejected(400, SEND, "templateName", **templated)
    for missing in ("cc", "bcc"):
        api.rejected(400, SEND, f"messageVersions[0].{missing}", **batch(without(version(), missing)))
    for body in (SINGLE | {"senderMail": "new@new.example"}, *[SINGLE | {"uniqueMsgID": "once"}] * 2):
        api.ok(SEND, **body)
    api.emulator.change_settings(
        single_form_template=True, cc_bcc_required=False, batch_email_check=False, transactional_needs_verified=True,
        duplicate_unique_msg_id_code=409,
    )  # fmt: skip
    for body in (templated, batch(without(version(), "cc", "bcc")), batch(version(to=[{"email": "nobody"}]))):
        api.ok(SEND, **body)
    assert "order" in [message["template"] for message in api.emulator.messages()]
    api.rejected(400, SEND, "email", **batch(version(to=[{"email": ""}])))
    api.rejected(403, SEND, **SINGLE | {"senderMail": "new@new.example"})
    api.rejected(409, SEND, **SINGLE, uniqueMsgID="once")
    assert len(api.emulator.messages("once")) == 2


class TestStatistics:
    def days(self, api: Api, start: str = "2026-03-02", end: str = "2026-03-02") -> list[dict[str, Any]]:
        return api.ok("transactional/mail/stats/get", startDate=start, endDate=end)["mailStatsList"]

    @pytest.fixture(autouse=True)
    def _noon(self, api: Api) -> None:
        api.emulator.clock.freeze(NOON)

    def test_one_record_for_each_day_until_today(self, api: Api) -> None:
        api.send(3)
        assert self.days(api, "2026-03-01", "2026-03-05") == [
            {
                "statsDate": day, "sentCount": sent, "openCount": 0, "clickCount": 0, "bounceCount": 0,
                "unsentCount": 0, "unsubscribeCount": 0,
            }
            for day, sent in (("2026-03-01", 0), ("2026-03-02", 3))
        ]  # fmt: skip
        api.emulator.change_settings(stats_empty_days=False)
        assert [day["statsDate"] for day in self.days(api, "2026-03-01", "2026-03-05")] == ["2026-03-02"]
        api.emulator.set_transactional_day("2026-03-02", sentCount=10, openCount=4)
        (day,) = self.days(api)
        assert (day["sentCount"], day["openCount"], day["clickCount"]) == (10, 4, 0)

    def test_counts_grow_and_need_tracking(self, api: Api) -> None:
        api.emulator.change_settings(open_rate=0.8, click_rate=0.5)
        api.send(100)
        (first,) = self.days(api)
        api.emulator.clock.advance(days=8)
        (last,) = self.days(api)
        assert first["openCount"] == first["clickCount"] == 0
        assert 50 < last["openCount"] < 100
        assert 0 < last["clickCount"] < last["openCount"]
        api.emulator.change_settings(stats_day="event")
        by_event = [day["openCount"] for day in self.days(api, end="2026-03-10")]
        assert (sum(by_event), sum(count > 0 for count in by_event) > 3) == (last["openCount"], True)
        api.emulator.change_settings(stats_day="send")
        for tracking in ({"trackOpen": 0}, {"trackOpen": None, "trackClick": None}, {"trackOpen": "1"}):
            api.send(100, **{"trackClick": True} | tracking)
        api.emulator.clock.advance(days=8)
        (untracked,) = self.days(api, "2026-03-10", "2026-03-10")
        assert (untracked["sentCount"] > 200, untracked["openCount"], untracked["clickCount"]) == (True, 0, 0)

    def test_bounced_suppressed_and_scheduled_mail(self, api: Api) -> None:
        api.emulator.change_settings(soft_bounce_rate=1.0, hard_bounce_rate=0.0)
        api.emulator.suppress("ann@example.com")
        api.ok(SEND, **SINGLE)
        api.send(2)
        api.send(3, sendDate="2026-03-03T00:00:00Z")
        names = ("sentCount", "bounceCount", "unsentCount")
        for expected in ([[2, 2, 1]], [[2, 2, 1], [3, 3, 0]]):
            assert [[day[name] for name in names] for day in self.days(api, end="2026-03-03")] == expected
            api.emulator.clock.advance(hours=12)
        assert api.emulator.mails_to("ann@example.com") == []


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
