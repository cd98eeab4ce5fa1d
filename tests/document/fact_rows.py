"""Every row of the tables "Errors", "Limits", "Events" and of "States and transitions", with a stable id."""

from __future__ import annotations

from collections import namedtuple

CAMPAIGN_SENDS = "campaigns.sends"
SENDS_CUSTOMISED = "transactional.sends_customised"


ErrorRow = namedtuple("ErrorRow", "id operation code condition form", defaults=("",))
"""``form`` is ``single`` or ``batch`` where the specification names one form of ``sends_customised``."""
LimitRow = namedtuple("LimitRow", "id item limit value")
"""``value`` holds the row's numbers in the specification's order."""
EventRow = namedtuple("EventRow", "id event_code trigger toggle")
"""``toggle`` is the key in ``transEvent``; empty where the specification lists none."""
StateRow = namedtuple("StateRow", "id from_state trigger condition to_state also", defaults=("",))


def _errors(prefix: str, operation: str, rows: tuple[tuple[int, str, str], ...]) -> tuple[ErrorRow, ...]:
    return tuple(
        ErrorRow(f"errors.{prefix}.{n}", operation, code, condition, form)
        for n, (code, condition, form) in enumerate(rows, start=1)
    )


ERRORS = (
    *_errors(
        "campaign",
        CAMPAIGN_SENDS,
        (
            (400, "A required parameter is missing.", ""),
            (400, "`mailName` exceeds 200 bytes.", ""),
            (400, "`sendDate` is not valid ISO 8601 UTC format.", ""),
            (400, "`attachment` lacks `fileName` or `fileData`.", ""),
            (400, "`sendListNames` empty while `onlySave` is not true.", ""),
            (403, "A name in `sendListNames` matches no list.", ""),
            (403, "A name in `repelListNames` matches no list.", ""),
            (500, "Task creation failed.", ""),
            (500, "Adding the attachment failed (the created task is kept).", ""),
            (500, "The task check failed (the created task is kept).", ""),
        ),
    ),
    *_errors(
        "transactional",
        SENDS_CUSTOMISED,
        (
            (400, "A required parameter is missing.", ""),
            (400, "`sendDate` format incorrect.", ""),
            (400, "`category`, `campaign` or `uniqueMsgID` exceeds its maximum length.", ""),
            (400, "No recipient (`to`, or `to` in `messageVersions`).", ""),
            (400, "Recipient `email` empty.", ""),
            (400, "Recipient `email` fails format validation (single form).", "single"),
            (400, "A `templateName` inside `messageVersions` matches no template (batch form).", "batch"),
            (400, "`senderName` too long.", ""),
            (403, "`senderMail` is not a sender configured for the account.", ""),
            (400, "`replyTo` fails email format validation.", ""),
            (400, "Neither `content` nor `templateName` given.", ""),
            (403, "`templateName` matches no template.", ""),
            (403, "The account has insufficient email credits.", ""),
        ),
    ),
    # Said in the sentence above the two tables and in "Authentication"; it holds for every operation.
    ErrorRow("errors.authentication.1", "*", 401, "A missing or invalid OAuth token."),
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

_EVENTS = (
    ("Dropped", "Not sent because of a suppression filter (bounce, unsubscribe, complaint).", "dropped"),
    ("Bounced", "Delivery failed, hard (permanent) or soft (temporary).", "bounced"),
    ("Delivered", "Accepted by the recipient's mail server.", "delivered"),
    ("Opened", "Recipient opened the email; one event per open.", "opened"),
    ("Clicked", "Recipient clicked a tracked link; one event per click.", "clicked"),
    ("Unsubscribed", "Recipient used the unsubscribe link.", "unsubscribed"),
    ("SpamReport", "Recipient reported the email as spam.", "spamReport"),
    ("TaskStatus", "A campaign task changed status (Created or Completed).", ""),
)

EVENTS = tuple(EventRow(f"events.{n}", *row) for n, row in enumerate(_EVENTS, start=1))

# What an event carries beyond the fields of every event, as seen in deliveries.
EVENT_CARRIES = {
    "Delivered": ("SenderEmail", "SubmitDateTimeV2", "ReceiveServer"),
    "Opened": ("IP", "Platform", "BrowserType"),
}

NOT_SHOWN = "not shown"

MAIL_STATUS = {-1: "draft", 1: "sending", 2: "send complete", 4: "send failed"}

STATES = (
    StateRow("states.campaign.1", "(none)", "create send task", "onlySave = true", "-1 draft",
             "Task saved, nothing sent; sendListNames not required."),
    StateRow("states.campaign.2", "(none)", "create send task", "onlySave false or absent", NOT_SHOWN,
             "Sent at sendDate, or immediately when sendDate is absent."),
    StateRow("states.campaign.3", "scheduled task", "cancel", "send time has not yet passed", NOT_SHOWN,
             "A task whose send time has passed cannot be cancelled."),
    StateRow("states.campaign.4", "1 sending", "completion or failure", "", "2 or 4",
             "Transitions: not shown. mailStats returned only at 2."),
    StateRow("states.campaign.5", "any", "delete by name", "", "removed",
             "Restrictions of delete by state: not shown."),
    StateRow("states.oauth_code.1", "issued", "token exchange", "within 5 minutes, first use",
             "consumed; token issued"),
    StateRow("states.oauth_code.2", "issued", "5 minutes elapse", "", "expired"),
    StateRow("states.oauth_code.3", "consumed", "token exchange again", "", "rejected (code is single-use)"),
    StateRow("states.webhook.1", "enabled (transEnable true)", "save with transEnable false", "",
             "paused: no webhook notifications"),
    StateRow("states.webhook.2", "paused", "save with transEnable true", "", "enabled"),
)  # fmt: skip

# "States and transitions" says these two in prose.
TOKEN_PERMANENT = -1
TOKEN_RENEWAL_SECONDS = 300
