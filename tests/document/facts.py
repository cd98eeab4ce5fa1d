"""The service's specification as plain data: its operations and their fields.

Written from the specification alone, never from the models, so that a comparison of the two can fail. The resources
are in ``fact_resources``; the rows of the tables "Errors", "Limits", "Events" and of "States and transitions" are in
``fact_rows``.
"""

from __future__ import annotations

from tests.document.fact_resources import EVENT_TYPES
from tests.document.fact_types import facts, operations

# The 100 bytes of a recipient's name are in the table "Limits" and hold for both forms. Only the single form is said to
# check the address format; an empty address is rejected in both.
BATCH_RECIPIENT = facts("email string required not_empty, name string max_bytes=100")

OPERATIONS = tuple(
    operations(
        """
oauth.authorize GET auth/oauth/authorize UNLISTED
    request: client_id string required, response_type string required enum=code, redirect_uri string required,
        scope string required enum=All
    minimal: {"client_id": "app", "response_type": "code", "redirect_uri": "https://client.example/back",
        "scope": "All"}

oauth.token GET auth/oauth/token UNLISTED
    request: grant_type string required enum=authorization_code, client_id string required,
        client_secret string required, code string required
    response: accessToken string max_bytes=512, expiresIn integer
    minimal: {"grant_type": "authorization_code", "client_id": "app", "client_secret": "s", "code": "c"}

contacts.upsert POST contacts/upsert REPEATABLE
    request: name string, email string conditional, phoneNumber string conditional, listName string,
        sandboxMode boolean
    minimal: {"email": "ada@example.com"}

contacts.imports POST contacts/imports REPEATABLE
    request: contactData [array] required, contactDataMapping [object] required fields=mapping,
        updateMode integer required enum=1|2|3, listName string, listDescription string, sandboxMode boolean
    minimal: {"contactData": [["ada@example.com"]],
        "contactDataMapping": [{"columnNum": 0, "propertyName": "email"}], "updateMode": 1}

contacts.get POST contacts/get READ
    request: email string required
    response: contact object resource=Contact
    minimal: {"email": "ada@example.com"}

contacts.list.get POST contacts/list/get READ
    request: listName string required, pageSize integer maximum=1000, pageIndex integer minimum=1, teamName string
    response: requestId string, contactList [object] resource=Contact, totalRecords integer
    minimal: {"listName": "customers"}

contacts.delete POST contacts/delete DELETE_OR_CANCEL
    request: email string required, sandboxMode boolean
    minimal: {"email": "ada@example.com"}

lists.add POST lists/add CREATE
    request: listName string required, listDescription string, sandboxMode boolean
    minimal: {"listName": "customers"}

lists.get POST lists/get READ
    request: search string, listType integer enum=0|1, sort string enum=CreateDate|ModifyDate, pageSize integer,
        pageIndex integer minimum=1
    response: lists [object] resource=Contact_list, totalRecords integer

lists.delete POST lists/delete DELETE_OR_CANCEL
    request: listName string required, sandboxMode boolean
    minimal: {"listName": "customers"}

templates.add POST campaign/mail/template/add CREATE
    request: templateName string required max_length=250, templateContent string required,
        templateSubject string required, editorType string enum=DRAG|CLASSIC
    minimal: {"templateName": "welcome", "templateContent": "<p>Hello {{name}}</p>", "templateSubject": "Hello"}

templates.get POST campaign/mail/template/get READ
    request: templateName string, pageSize integer, pageIndex integer minimum=1
    response: templateList [object] resource=Email_template, totalRecords integer

templates.delete POST campaign/mail/template/delete DELETE_OR_CANCEL
    request: templateName string required limited_elsewhere
    minimal: {"templateName": "welcome"}

campaigns.sends POST campaign/mail/sends CREATE
    request: mailName string required max_bytes=200, senderMail string required, senderName string, subject string,
        content string, sendDate string utc, onlySave boolean, sendListNames [string] conditional min_items=1,
        repelListNames [string], replyTo string, attachment object fields=attachment,
        languageCode string enum=zh-cn|en|ja|ko|de|tt|es|zh-tw|ar|pt-br|id|vi|th|fr, marketName string,
        subscriptName string, projectCode string, editorType string enum=DRAG|CLASSIC, sandboxMode boolean
    response: id integer, guid string
    minimal: {"mailName": "spring", "senderMail": "news@shop.example", "sendListNames": ["customers"]}

campaigns.cancel POST campaign/mail/cancel DELETE_OR_CANCEL
    request: mailName string required limited_elsewhere, sandboxMode boolean
    minimal: {"mailName": "spring"}

campaigns.get POST campaign/mail/get READ
    request: mailName string, subject string, senderMail string, type string enum=MailList|ABTest, allTeam boolean,
        mailStatus [integer] enum=-1|1|2|4, pageSize integer, pageIndex integer minimum=1
    response: mailList [object] resource=Campaign_send_task, totalRecords integer

campaigns.delete POST campaign/mail/delete DELETE_OR_CANCEL
    request: mailName string required limited_elsewhere, sandboxMode boolean
    minimal: {"mailName": "spring"}

campaigns.stats.get POST campaign/mail/stats/get READ
    request: startDate string required date, endDate string required date, mailName string,
        type string enum=MailList|ABTest
    response: mailStatsList [object] resource=Campaign_statistics_record, totalRecords integer
    minimal: {"startDate": "2026-01-01", "endDate": "2026-01-31"}

transactional.sends_customised.single POST transactional/mail/sends_customised SEND
    request: subject string required, content string required, senderMail string required, senderName string,
        to object required fields=recipient, replyTo string email, sendDate string utc,
        category string max_bytes=100 alphanumeric, campaign string max_bytes=100 alphanumeric, trackOpen integer,
        trackClick integer, uniqueMsgID string max_bytes=50, attachment object fields=attachment, sandboxMode boolean
    minimal: {"subject": "Receipt", "content": "<p>Thank you</p>", "senderMail": "shop@shop.example",
        "to": {"email": "ada@example.com"}}

transactional.sends_customised.batch POST transactional/mail/sends_customised SEND
    request: subject string conditional, content string conditional, templateName string conditional, params object,
        senderMail string required, senderName string max_bytes=200, replyTo string email, sendDate string utc,
        category string max_bytes=100 alphanumeric, campaign string max_bytes=100 alphanumeric, trackOpen integer,
        trackClick integer, uniqueMsgID string max_bytes=50, attachment object fields=attachment, sandboxMode boolean,
        messageVersions [object] required min_items=1 max_items=100 fields=version
    minimal: {"subject": "Receipt", "content": "<p>Thank you</p>", "senderMail": "shop@shop.example",
        "messageVersions": [{"to": [{"email": "ada@example.com"}], "cc": [], "bcc": []}]}

transactional.stats.get POST transactional/mail/stats/get READ
    request: startDate string required date, endDate string required date
    response: mailStatsList [object] resource=Transactional_daily_statistics_record
    minimal: {"startDate": "2026-01-01", "endDate": "2026-01-31"}

senders.get POST verified_senders/get READ
    request: senderEmail string
    response: mailFromDomains [object] resource=Verified_sender

senders.add POST verified_senders/add CREATE
    request: senderEmail string required not_a_top_level_domain, senderType string required enum=1|2,
        sandboxMode boolean
    minimal: {"senderEmail": "shop.example", "senderType": "1"}

senders.verify POST verified_senders/verify READ
    request: fromDomain string required, selector string required
    response: valid boolean, goodMX boolean, goodSPF boolean, goodDKIM boolean, goodDMARC boolean
    minimal: {"fromDomain": "shop.example", "selector": "mail"}

senders.delete POST verified_senders/delete DELETE_OR_CANCEL
    request: senderEmail string required, sandboxMode boolean
    minimal: {"senderEmail": "shop.example"}

webhook.get POST webhook/get READ
    response: transEvent object nullable fields=types, transCallbackUrl string nullable,
        transCallbackUrlExtra [object] nullable fields=read_extra, transEnable boolean nullable

webhook.save POST webhook/save REPEATABLE
    request: transEvent object fields=types, transCallbackUrl string http_url,
        transCallbackUrlExtra [object] fields=extra, transCallbackUrlExtraUpdateMode string enum=save|replace,
        transEnable boolean
""",
        types=EVENT_TYPES,
        extra=facts("sender string required, url string http_url_or_empty"),
        read_extra=facts("sender string, url string"),
        mapping=facts("columnNum integer required minimum=0, propertyName string required"),
        attachment=facts("fileName string required, fileData string required base64"),
        recipient=facts("email string required email, name string max_bytes=100"),
        # "cc" and "bcc" are listed as required.
        version=facts(
            "to [object] required min_items=1 max_items=20 fields=r, cc [object] required max_items=20 fields=r, "
            "bcc [object] required max_items=20 fields=r, subject string, content string, templateName string, "
            "params object",
            r=BATCH_RECIPIENT,
        ),
    )
)

(LANGUAGES,) = (fact.enum for operation in OPERATIONS for fact in operation.request if fact.wire == "languageCode")
