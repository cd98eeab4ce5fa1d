"""The rows of the tables "Errors", "Limits" and "Events", and the ids of those of "States and transitions"."""

from __future__ import annotations

from collections import namedtuple

ErrorRow = namedtuple("ErrorRow", "id operation code condition")
LimitRow = namedtuple("LimitRow", "id item limit value")
"""``value`` holds the row's numbers in the specification's order."""
EventRow = namedtuple("EventRow", "id event_code toggle")
"""``toggle`` is the key in ``transEvent``; empty where the specification lists none."""


def _errors(prefix: str, operation: str, *rows: tuple[int, str]) -> tuple[ErrorRow, ...]:
    return tuple(ErrorRow(f"errors.{prefix}.{n}", operation, *row) for n, row in enumerate(rows, start=1))


ERRORS = (
    *_errors(
        "campaign",
        "campaigns.sends",
        (400, "A required parameter is missing."),
        (400, "`mailName` exceeds 200 bytes."),
        (400, "`sendDate` is not valid ISO 8601 UTC format."),
        (400, "`attachment` lacks `fileName` or `fileData`."),
        (400, "`sendListNames` empty while `onlySave` is not true."),
        (403, "A name in `sendListNames` matches no list."),
        (403, "A name in `repelListNames` matches no list."),
        (500, "Task creation failed."),
        (500, "Adding the attachment failed (the created task is kept)."),
        (500, "The task check failed (the created task is kept)."),
    ),
    *_errors(
        "transactional",
        "transactional.sends_customised",
        (400, "A required parameter is missing."),
        (400, "`sendDate` format incorrect."),
        (400, "`category`, `campaign` or `uniqueMsgID` exceeds its maximum length."),
        (400, "No recipient (`to`, or `to` in `messageVersions`)."),
        (400, "Recipient `email` empty."),
        (400, "Recipient `email` fails format validation (single form)."),
        (400, "A `templateName` inside `messageVersions` matches no template (batch form)."),
        (400, "`senderName` too long."),
        (403, "`senderMail` is not a sender configured for the account."),
        (400, "`replyTo` fails email format validation."),
        (400, "Neither `content` nor `templateName` given."),
        (403, "`templateName` matches no template."),
        (403, "The account has insufficient email credits."),
    ),
    # Said in the sentence above the two tables and in "Authentication"; it holds for every operation.
    *_errors("authentication", "*", (401, "A missing or invalid OAuth token.")),
)

_LIMITS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("Authorization code lifetime", "5 minutes, single use", (300,)),
    ("Token renewal window", "when fewer than 300 seconds remain", (300,)),
    ("accessToken length", "at most 512 bytes", (512,)),
    ("mailName (campaign)", "200 bytes", (200,)),
    ("templateName", "250", (250,)),
    ("senderName (batch)", "200 bytes", (200,)),
    ("Recipient, cc, bcc `name`", "100 bytes", (100,)),
    ("category, campaign (transactional)", "100 bytes, letters and digits", (100,)),
    ("uniqueMsgID", "50 bytes", (50,)),
    ("messageVersions per request", "100", (100,)),
    ("to, cc, bcc per version", "20 each", (20,)),
    ("contacts/list/get pageSize", "default 200, max 1000", (200, 1000)),
    ("pageSize default, campaign get, templates get, lists get", "10", (10,)),
    ("pageIndex default", "1 (one-based)", (1,)),
    ("Webhook events per push", "1000", (1000,)),
    ("Attachments", "one file per message or task", (1,)),
)

LIMITS = tuple(LimitRow(f"limits.{n}", item, limit, value) for n, (item, limit, value) in enumerate(_LIMITS, start=1))

EVENTS = tuple(
    EventRow(f"events.{n}", code, toggle)
    for n, (code, toggle) in enumerate(
        {
            "Dropped": "dropped", "Bounced": "bounced", "Delivered": "delivered", "Opened": "opened",
            "Clicked": "clicked", "Unsubscribed": "unsubscribed", "SpamReport": "spamReport", "TaskStatus": "",
        }.items(), start=1,
    )
)  # fmt: skip
EVENT_CARRIES = {
    "Delivered": ("SenderEmail", "SubmitDateTimeV2", "ReceiveServer"),
    "Opened": ("IP", "Platform", "BrowserType"),
}
"""What an event carries beyond the fields of every event, as seen in deliveries."""

MAIL_STATUS = {"DRAFT": -1, "SENDING": 1, "COMPLETE": 2, "FAILED": 4}

STATES = tuple(
    f"states.{of}.{n + 1}" for of, count in (("campaign", 5), ("oauth_code", 3), ("webhook", 2)) for n in range(count)
)
