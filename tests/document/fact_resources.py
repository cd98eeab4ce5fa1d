"""The specification's resources, and the event object, with their fields as they are read."""

from __future__ import annotations

from tests.document.fact_types import Fact, same

EVENT_KEYS = ("dropped", "bounced", "delivered", "spamReport", "opened", "clicked", "unsubscribed")
TRANS_EVENT = Fact("transEvent", "object", fields=tuple(Fact(key, "boolean") for key in EVENT_KEYS))

RESOURCES: dict[str, tuple[Fact, ...]] = {
    "Contact": (
        Fact("id", "string"),
        Fact("name", "string", note="defaults to the email when not supplied on upsert"),
        Fact("email", "string"),
        Fact("phoneNumber", "string"),
        Fact("properties", "object", note="map of string keys to string values"),
        Fact("createDate", "string", format="iso8601"),
        Fact("modifyTime", "string", format="iso8601"),
        Fact("createUserId", "integer"),
    ),
    "Contact list": (
        Fact("Id", "integer"),
        Fact("TeamId", "integer"),
        Fact("ListName", "string", note="the example response spells this key listName"),
        Fact("ListStatus", "integer", note="1 = normal"),
        Fact("ListType", "integer", enum=(0, 1), note="0 = dynamic list, 1 = static list"),
        Fact("ListFilters", "string"),
        Fact("CreateUserId", "integer"),
        Fact("CreateDate", "string", format="iso8601"),
        Fact("ModifyDate", "string", format="iso8601"),
    ),
    # editorType is accepted on creation only and therefore not among the fields that are read.
    "Email template": (
        Fact("templateName", "string", max_length=250),
        Fact("templateContent", "string"),
        Fact("templateSubject", "string"),
        Fact("createDate", "string", format="YYYY-MM-DD hh:mm:ss.mmm"),
    ),
    "Campaign send task": (
        Fact("mailName", "string", max_bytes=200),
        *same("string", "subject", "mailContent", "senderName", "senderMail", "replyTo"),
        *same("array of string", "rcptEmails", "repelEmails", "rcptListNames", "repelListNames"),
        Fact("sendByDateTime", "integer", format="epoch_ms"),
        Fact("taskType", "string", enum=("MailList", "ABTest")),
        Fact("mailStatus", "integer", enum=(-1, 1, 2, 4)),
        *same("string", "guid", "teamName", "languageCode", "marketName", "subscriptName", "projectCode"),
        *same("string", "reviewerName"),
        Fact("mailStats", "object", resource="mailStats", note="returned only when mailStatus = 2"),
    ),
    "mailStats": same(
        "integer", "sentCount", "deliveredCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount",
        "unsubscribeCount",
    ),
    "Campaign statistics record": (
        Fact("mailName", "string"),
        Fact("mailSendDate", "integer", format="epoch_ms"),
        *same("integer", "sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount"),
        *same("integer", "unsubscribeCount"),
    ),
    "Transactional daily statistics record": (
        Fact("statsDate", "string", format="date"),
        *same("integer", "sentCount", "openCount", "clickCount", "bounceCount", "unsentCount", "unsubscribeCount"),
    ),
    "Verified sender": (
        Fact("fromDomain", "string"),
        *(
            Fact(name, "integer", enum=(0, 1))
            for name in ("mxStatus", "spfStatus", "dkimStatus", "dmarcStatus", "isValidate", "isServiceDomain")
        ),
        Fact("senderType", "integer", enum=(1, 2)),
    ),
    "Webhook configuration": (
        Fact("transEvent", "object", fields=TRANS_EVENT.fields, nullable=True),
        Fact("transCallbackUrl", "string", nullable=True),
        Fact(
            "transCallbackUrlExtra",
            "array of object",
            fields=(Fact("sender", "string"), Fact("url", "string")),
            nullable=True,
        ),
        Fact("transEnable", "boolean", nullable=True),
    ),
    "OAuth token": (
        Fact("accessToken", "string", max_bytes=512),
        Fact("expiresIn", "integer", note="seconds; -1 = permanent"),
    ),
    "Event": tuple(
        Fact(name, "string", format="iso8601" if name.endswith("DateTimeV2") else "")
        for name in (
            "EventCode", "Email", "EventType", "SenderEmail", "SentMailListName", "SubmitDateTimeV2", "Guid",
            "MailName", "TriggeredDateTimeV2", "UniqueMsgID", "ReceiveServer", "IP", "Platform", "BrowserType",
        )
    ),
}  # fmt: skip
