"""The service's specification as plain data: its operations and their fields.

Written from the specification alone, never from the models, so that a comparison of the two can fail. The resources
are in ``fact_resources``; the rows of the tables "Errors", "Limits", "Events" and of "States and transitions" are in
``fact_rows``.
"""

from __future__ import annotations

from tests.document.fact_resources import RESOURCES, TRANS_EVENT
from tests.document.fact_types import (
    CONDITIONAL,
    CREATE,
    DELETE_OR_CANCEL,
    READ,
    REPEATABLE,
    SEND,
    UNLISTED,
    YES,
    Fact,
    Operation,
)

# Fields that several operations share.

SANDBOX = Fact("sandboxMode", "boolean", default=False)
LIST_NAME = Fact("listName", "string", YES)
TYPE = Fact("type", "string", enum=("MailList", "ABTest"), inferred=True, note="omitted = all")
START_DATE = Fact("startDate", "string", YES, format="date", inferred=True, note="inclusive")
END_DATE = Fact("endDate", "string", YES, format="date", inferred=True, note="inclusive")
TOTAL = Fact("totalRecords", "integer")
EDITOR_TYPE = Fact("editorType", "string", enum=("DRAG", "CLASSIC"), default="DRAG")
SEND_DATE = Fact("sendDate", "string", format="utc", note="default now")
DAY = {"startDate": "2026-01-01", "endDate": "2026-01-31"}

PAGE_SIZE = Fact("pageSize", "integer", default=10, inferred=True, note="maximum not shown")
PAGE_INDEX = Fact("pageIndex", "integer", default=1, minimum=1, inferred=True, note="one-based")
TEMPLATE_NAME = Fact("templateName", "string", YES, max_length=250, inferred=True, note="max 250 bytes/characters")

ATTACHMENT = Fact(
    "attachment",
    "object",
    note="one file",
    fields=(Fact("fileName", "string", YES), Fact("fileData", "string", YES, format="base64")),
)

LANGUAGES = ("zh-cn", "en", "ja", "ko", "de", "tt", "es", "zh-tw", "ar", "pt-br", "id", "vi", "th", "fr")

# The 100 bytes of a recipient's name are in the table "Limits" and hold for both forms.
RECIPIENT_NAME = Fact("name", "string", max_bytes=100)
SINGLE_RECIPIENT = (Fact("email", "string", YES, format="email"), RECIPIENT_NAME)
# Only the single form is said to check the address format; an empty address is rejected in both.
BATCH_RECIPIENT = (Fact("email", "string", YES, format="not_empty"), RECIPIENT_NAME)

TRANSACTIONAL_OPTIONS = (
    Fact("replyTo", "string", format="email"),
    SEND_DATE,
    Fact("category", "string", max_bytes=100, format="alphanumeric"),
    Fact("campaign", "string", max_bytes=100, format="alphanumeric"),
    Fact("trackOpen", "integer", note="1 tracks; any other value does not"),
    Fact("trackClick", "integer", note="1 tracks; any other value does not"),
    Fact("uniqueMsgID", "string", max_bytes=50),
    ATTACHMENT,
    SANDBOX,
)

MESSAGE_VERSION = (
    Fact("to", "array of object", YES, fields=BATCH_RECIPIENT, min_items=1, max_items=20),
    Fact("cc", "array of object", YES, fields=BATCH_RECIPIENT, max_items=20, note="listed as required"),
    Fact("bcc", "array of object", YES, fields=BATCH_RECIPIENT, max_items=20, note="listed as required"),
    Fact("subject", "string", inferred=True),
    Fact("content", "string", inferred=True),
    Fact("templateName", "string", inferred=True),
    Fact("params", "object", inferred=True),
)


def get(key: str, path: str, effect: str) -> tuple[str, str, str, str]:
    return key, "GET", f"/v5/{path}", effect


def post(key: str, path: str, effect: str) -> tuple[str, str, str, str]:
    return key, "POST", f"/v5/{path}", effect


# Operations.

OAUTH = (
    Operation(
        *get("oauth.authorize", "auth/oauth/authorize", UNLISTED), request=(
            Fact("client_id", "string", YES), Fact("response_type", "string", YES, enum=("code",)),
            Fact("redirect_uri", "string", YES, note="URL-encoded; must exactly match the registered value"),
            Fact("scope", "string", YES, enum=("All",)),
        ),
        minimal={
            "client_id": "app", "response_type": "code", "redirect_uri": "https://client.example/back", "scope": "All",
        },
    ),
    Operation(
        *get("oauth.token", "auth/oauth/token", UNLISTED), request=(
            Fact("grant_type", "string", YES, enum=("authorization_code",), inferred=True),
            Fact("client_id", "string", YES, inferred=True), Fact("client_secret", "string", YES, inferred=True),
            Fact("code", "string", YES, inferred=True),
        ),
        response=RESOURCES["OAuth token"],
        minimal={"grant_type": "authorization_code", "client_id": "app", "client_secret": "s", "code": "c"},
    ),
)  # fmt: skip

CONTACTS = (
    Operation(
        *post("contacts.upsert", "contacts/upsert", REPEATABLE), request=(
            Fact("name", "string", note="defaults to email"),
            Fact("email", "string", CONDITIONAL, "required unless phoneNumber is given"),
            Fact("phoneNumber", "string", CONDITIONAL, "required unless email is given"),
            Fact("listName", "string", note="existing list"), SANDBOX,
        ),
        minimal={"email": "ada@example.com"},
    ),
    Operation(
        *post("contacts.imports", "contacts/imports", REPEATABLE), request=(
            Fact("contactData", "array of array", YES),
            Fact(
                "contactDataMapping", "array of object", YES,
                fields=(Fact("columnNum", "integer", YES, minimum=0), Fact("propertyName", "string", YES)),
                note="email and phoneNumber must not both be absent",
            ),
            Fact("updateMode", "integer", YES, enum=(1, 2, 3)),
            Fact("listName", "string", note="created if it does not exist"),
            Fact("listDescription", "string", note="used only when listName is given"), SANDBOX,
        ),
        minimal={
            "contactData": [["ada@example.com"]], "contactDataMapping": [{"columnNum": 0, "propertyName": "email"}],
            "updateMode": 1,
        },
    ),
    Operation(
        *post("contacts.get", "contacts/get", READ), request=(Fact("email", "string", YES),),
        response=(Fact("contact", "object", resource="Contact"),), minimal={"email": "ada@example.com"},
    ),
    Operation(
        *post("contacts.list.get", "contacts/list/get", READ), request=(
            LIST_NAME, Fact("pageSize", "integer", default=200, maximum=1000),
            Fact("pageIndex", "integer", default=1, minimum=1, note="one-based"),
            Fact("teamName", "string", note="default is the current team"),
        ),
        response=(Fact("requestId", "string"), Fact("contactList", "array of object", resource="Contact"), TOTAL),
        minimal={"listName": "customers"},
    ),
    Operation(
        *post("contacts.delete", "contacts/delete", DELETE_OR_CANCEL), request=(Fact("email", "string", YES), SANDBOX),
        minimal={"email": "ada@example.com"},
    ),
)  # fmt: skip

LISTS = (
    Operation(
        *post("lists.add", "lists/add", CREATE), request=(LIST_NAME, Fact("listDescription", "string"), SANDBOX),
        minimal={"listName": "customers"},
    ),
    Operation(
        *post("lists.get", "lists/get", READ), request=(
            Fact("search", "string"), Fact("listType", "integer", enum=(0, 1), inferred=True),
            Fact("sort", "string", enum=("CreateDate", "ModifyDate"), inferred=True), PAGE_SIZE, PAGE_INDEX,
        ),
        response=(Fact("lists", "array of object", resource="Contact list"), TOTAL),
    ),
    Operation(
        *post("lists.delete", "lists/delete", DELETE_OR_CANCEL), request=(LIST_NAME, SANDBOX),
        minimal={"listName": "customers"},
    ),
)  # fmt: skip

TEMPLATES = (
    Operation(
        *post("templates.add", "campaign/mail/template/add", CREATE), request=(
            TEMPLATE_NAME, Fact("templateContent", "string", YES, inferred=True),
            Fact("templateSubject", "string", YES, inferred=True), EDITOR_TYPE,
        ),
        minimal={"templateName": "welcome", "templateContent": "<p>Hello {{name}}</p>", "templateSubject": "Hello"},
    ),
    Operation(
        *post("templates.get", "campaign/mail/template/get", READ),
        request=(Fact("templateName", "string", inferred=True, note="name contains"), PAGE_SIZE, PAGE_INDEX),
        response=(Fact("templateList", "array of object", resource="Email template"), TOTAL),
    ),
    Operation(
        *post("templates.delete", "campaign/mail/template/delete", DELETE_OR_CANCEL),
        request=(Fact("templateName", "string", YES, inferred=True, limited_elsewhere=True),),
        minimal={"templateName": "welcome"},
    ),
)  # fmt: skip

CAMPAIGNS = (
    Operation(
        *post("campaigns.sends", "campaign/mail/sends", CREATE), request=(
            Fact("mailName", "string", YES, max_bytes=200, note="unique within the team"),
            Fact("senderMail", "string", YES, note="a verified sender of the account"),
            Fact("senderName", "string", note="defaults to senderMail"), Fact("subject", "string"),
            Fact("content", "string"), SEND_DATE, Fact("onlySave", "boolean", default=False),
            Fact("sendListNames", "array of string", CONDITIONAL, "required unless onlySave is true", min_items=1),
            Fact("repelListNames", "array of string"), Fact("replyTo", "string", note="defaults to senderMail"),
            ATTACHMENT, Fact("languageCode", "string", enum=LANGUAGES), Fact("marketName", "string"),
            Fact("subscriptName", "string", note="must already exist"), Fact("projectCode", "string"), EDITOR_TYPE,
            SANDBOX,
        ),
        response=(Fact("id", "integer", note="long"), Fact("guid", "string")),
        minimal={"mailName": "spring", "senderMail": "news@shop.example", "sendListNames": ["customers"]},
    ),
    Operation(
        *post("campaigns.cancel", "campaign/mail/cancel", DELETE_OR_CANCEL),
        request=(Fact("mailName", "string", YES, inferred=True, limited_elsewhere=True), SANDBOX),
        minimal={"mailName": "spring"},
    ),
    Operation(
        *post("campaigns.get", "campaign/mail/get", READ), request=(
            Fact("mailName", "string", inferred=True, note="name contains"),
            Fact("subject", "string", inferred=True, note="contains"), Fact("senderMail", "string", inferred=True),
            TYPE, Fact("allTeam", "boolean", default=False),
            Fact("mailStatus", "array of integer", enum=(-1, 1, 2, 4), note="omitted = all"), PAGE_SIZE, PAGE_INDEX,
        ),
        response=(Fact("mailList", "array of object", resource="Campaign send task"), TOTAL),
    ),
    Operation(
        *post("campaigns.delete", "campaign/mail/delete", DELETE_OR_CANCEL),
        request=(Fact("mailName", "string", YES, inferred=True, limited_elsewhere=True), SANDBOX),
        minimal={"mailName": "spring"},
    ),
    Operation(
        *post("campaigns.stats.get", "campaign/mail/stats/get", READ),
        request=(START_DATE, END_DATE, Fact("mailName", "string", inferred=True), TYPE),
        response=(Fact("mailStatsList", "array of object", resource="Campaign statistics record"), TOTAL), minimal=DAY,
    ),
)  # fmt: skip

TRANSACTIONAL = (
    Operation(
        *post("transactional.sends_customised.single", "transactional/mail/sends_customised", SEND), request=(
            Fact("subject", "string", YES), Fact("content", "string", YES), Fact("senderMail", "string", YES),
            # Without a limit in the form; the table "Errors" has a row "senderName too long" for both forms.
            Fact("senderName", "string"), Fact("to", "object", YES, fields=SINGLE_RECIPIENT), *TRANSACTIONAL_OPTIONS,
        ),
        minimal={
            "subject": "Receipt", "content": "<p>Thank you</p>", "senderMail": "shop@shop.example",
            "to": {"email": "ada@example.com"},
        },
    ),
    Operation(
        *post("transactional.sends_customised.batch", "transactional/mail/sends_customised", SEND), request=(
            Fact("subject", "string", CONDITIONAL, "one of subject / template subject"),
            Fact("content", "string", CONDITIONAL, "one of content / templateName"),
            Fact("templateName", "string", CONDITIONAL, "one of content / templateName; templateName wins"),
            Fact("params", "object"), Fact("senderMail", "string", YES), Fact("senderName", "string", max_bytes=200),
            *TRANSACTIONAL_OPTIONS,
            Fact("messageVersions", "array of object", YES, fields=MESSAGE_VERSION, min_items=1, max_items=100),
        ),
        minimal={
            "subject": "Receipt", "content": "<p>Thank you</p>", "senderMail": "shop@shop.example",
            "messageVersions": [{"to": [{"email": "ada@example.com"}], "cc": [], "bcc": []}],
        },
    ),
    Operation(
        *post("transactional.stats.get", "transactional/mail/stats/get", READ), request=(START_DATE, END_DATE),
        response=(Fact("mailStatsList", "array of object", resource="Transactional daily statistics record"),),
        minimal=DAY,
    ),
)  # fmt: skip

SENDERS = (
    Operation(
        *post("senders.get", "verified_senders/get", READ),
        request=(Fact("senderEmail", "string", inferred=True, note="omitted returns all senders of the user"),),
        response=(Fact("mailFromDomains", "array of object", resource="Verified sender"),),
    ),
    Operation(
        *post("senders.add", "verified_senders/add", CREATE), request=(
            Fact("senderEmail", "string", YES, format="not_a_top_level_domain", inferred=True),
            Fact("senderType", "string", YES, enum=("1", "2")), SANDBOX,
        ),
        minimal={"senderEmail": "shop.example", "senderType": "1"},
    ),
    Operation(
        *post("senders.verify", "verified_senders/verify", READ),
        request=(Fact("fromDomain", "string", YES, inferred=True), Fact("selector", "string", YES, inferred=True)),
        response=tuple(Fact(name, "boolean") for name in ("valid", "goodMX", "goodSPF", "goodDKIM", "goodDMARC")),
        minimal={"fromDomain": "shop.example", "selector": "mail"},
    ),
    Operation(
        *post("senders.delete", "verified_senders/delete", DELETE_OR_CANCEL),
        request=(Fact("senderEmail", "string", YES, inferred=True), SANDBOX), minimal={"senderEmail": "shop.example"},
    ),
)  # fmt: skip

WEBHOOKS = (
    Operation(*post("webhook.get", "webhook/get", READ), response=RESOURCES["Webhook configuration"]),
    Operation(
        *post("webhook.save", "webhook/save", REPEATABLE), request=(
            TRANS_EVENT, Fact("transCallbackUrl", "string", format="http_url"),
            Fact(
                "transCallbackUrlExtra", "array of object",
                fields=(Fact("sender", "string", YES), Fact("url", "string", format="http_url_or_empty")),
            ),
            Fact("transCallbackUrlExtraUpdateMode", "string", enum=("save", "replace"), default="save"),
            Fact("transEnable", "boolean"),
        ),
    ),
)  # fmt: skip

OPERATIONS = OAUTH + CONTACTS + LISTS + TEMPLATES + CAMPAIGNS + TRANSACTIONAL + SENDERS + WEBHOOKS
