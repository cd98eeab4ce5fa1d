"""The specification's resources, and the event object, with their fields as they are read."""

from __future__ import annotations

from tests.document.fact_types import Fact, facts

EVENT_TYPES = facts(
    "dropped boolean, bounced boolean, delivered boolean, spamReport boolean, opened boolean, clicked boolean, "
    "unsubscribed boolean"
)
RESOURCES: dict[str, tuple[Fact, ...]] = {
    "Contact": facts(
        "id string, name string, email string, phoneNumber string, properties object, createDate string iso8601, "
        "modifyTime string iso8601, createUserId integer"
    ),
    # The example response spells ListName "listName".
    "Contact list": facts(
        "Id integer, TeamId integer, ListName string, ListStatus integer, ListType integer enum=0|1, "
        "ListFilters string, CreateUserId integer, CreateDate string iso8601, ModifyDate string iso8601"
    ),
    # editorType is accepted on creation only and therefore not among the fields that are read.
    "Email template": facts(
        "templateName string max_length=250, templateContent string, templateSubject string, "
        "createDate string milliseconds"
    ),
    "Campaign send task": facts(
        "mailName string max_bytes=200, subject string, mailContent string, senderName string, senderMail string, "
        "replyTo string, rcptEmails [string], repelEmails [string], rcptListNames [string], repelListNames [string], "
        "sendByDateTime integer epoch_ms, taskType string enum=MailList|ABTest, mailStatus integer enum=-1|1|2|4, "
        "guid string, teamName string, languageCode string, marketName string, subscriptName string, "
        "projectCode string, reviewerName string, mailStats object resource=mailStats"
    ),
    "mailStats": facts(
        "sentCount integer, deliveredCount integer, openCount integer, clickCount integer, hardBounce integer, "
        "softBounce integer, unsentCount integer, unsubscribeCount integer"
    ),
    "Campaign statistics record": facts(
        "mailName string, mailSendDate integer epoch_ms, sentCount integer, openCount integer, clickCount integer, "
        "hardBounce integer, softBounce integer, unsentCount integer, unsubscribeCount integer"
    ),
    "Transactional daily statistics record": facts(
        "statsDate string date, sentCount integer, openCount integer, clickCount integer, bounceCount integer, "
        "unsentCount integer, unsubscribeCount integer"
    ),
    "Verified sender": facts(
        "fromDomain string, mxStatus integer enum=0|1, spfStatus integer enum=0|1, dkimStatus integer enum=0|1, "
        "dmarcStatus integer enum=0|1, isValidate integer enum=0|1, isServiceDomain integer enum=0|1, "
        "senderType integer enum=1|2"
    ),
    "Webhook configuration": facts(
        "transEvent object nullable fields=types, transCallbackUrl string nullable, "
        "transCallbackUrlExtra [object] nullable fields=extra, transEnable boolean nullable",
        types=EVENT_TYPES,
        extra=facts("sender string, url string"),
    ),
    "OAuth token": facts("accessToken string max_bytes=512, expiresIn integer"),
    "Event": facts(
        "EventCode string, Email string, EventType string, SenderEmail string, SentMailListName string, "
        "SubmitDateTimeV2 string iso8601, Guid string, MailName string, TriggeredDateTimeV2 string iso8601, "
        "UniqueMsgID string, ReceiveServer string, IP string, Platform string, BrowserType string"
    ),
}
