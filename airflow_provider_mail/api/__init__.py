"""The email service, without Airflow: one module per resource, two clients over one core.

The public names can be imported from here. Each is loaded from its module at first use, so that
``airflow_provider_mail.api.errors`` costs nothing in a DAG file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_mail.api._core.requests import MailRequest, MailResponse
    from airflow_provider_mail.api.campaigns import (
        Attachment,
        Campaign,
        CampaignStats,
        CancelCampaign,
        CreateCampaign,
        DeleteCampaign,
        GetCampaigns,
        GetCampaignStats,
        MailStats,
        MailStatus,
        find_campaign,
    )
    from airflow_provider_mail.api.client import AsyncMailClient, MailClient
    from airflow_provider_mail.api.config import ClientConfig, RetryRule
    from airflow_provider_mail.api.contacts import (
        ColumnMapping,
        Contact,
        DeleteContact,
        GetContact,
        GetListContacts,
        ImportContacts,
        UpdateMode,
        UpsertContact,
    )
    from airflow_provider_mail.api.errors import (
        MailAmbiguousSendError,
        MailAnswerError,
        MailAnswerLostError,
        MailAuthError,
        MailConfigError,
        MailConflictError,
        MailConnectError,
        MailError,
        MailIncompleteCampaignError,
        MailIncompleteError,
        MailInterruptedError,
        MailMissingError,
        MailPendingCampaignError,
        MailRateLimitError,
        MailRejectedError,
        MailSandboxError,
        MailServerError,
        MailServiceError,
        MailValidationError,
    )
    from airflow_provider_mail.api.events import EventCode, MailEvent, parse_push
    from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
    from airflow_provider_mail.api.flows.configure_webhook import configure_webhook
    from airflow_provider_mail.api.flows.create_campaign import create_campaign
    from airflow_provider_mail.api.flows.import_contacts import import_contacts
    from airflow_provider_mail.api.flows.import_plan import ImportPlan, Progress
    from airflow_provider_mail.api.flows.statistics import campaign_stats, transactional_stats
    from airflow_provider_mail.api.flows.validate_rows import Reject
    from airflow_provider_mail.api.lists import AddList, ContactList, DeleteList, GetLists, find_list
    from airflow_provider_mail.api.oauth import GetToken, authorize_url
    from airflow_provider_mail.api.senders import (
        AddSender,
        DeleteSender,
        GetSenders,
        Sender,
        VerifySender,
        find_sender,
    )
    from airflow_provider_mail.api.templates import AddTemplate, DeleteTemplate, GetTemplates, Template, find_template
    from airflow_provider_mail.api.transactional import (
        GetTransactionalStats,
        MessageVersion,
        Recipient,
        SendBatch,
        SendMail,
        TransactionalStats,
    )
    from airflow_provider_mail.api.webhooks import EventToggles, GetWebhook, SaveWebhook, SenderCallback

# The same names for __getattr__, since the imports above are not executed; a test compares the three lists.
_NAMES = {
    "_core.requests": "MailRequest MailResponse",
    "campaigns": (
        "Attachment Campaign CampaignStats CancelCampaign CreateCampaign DeleteCampaign GetCampaigns "
        "GetCampaignStats MailStats MailStatus find_campaign"
    ),
    "flows.cancel_campaign": "cancel_campaign",
    "client": "AsyncMailClient MailClient",
    "config": "ClientConfig RetryRule",
    "flows.import_contacts": "import_contacts",
    "flows.import_plan": "ImportPlan Progress",
    "flows.validate_rows": "Reject",
    "contacts": (
        "ColumnMapping Contact DeleteContact GetContact GetListContacts ImportContacts UpdateMode UpsertContact"
    ),
    "flows.configure_webhook": "configure_webhook",
    "flows.create_campaign": "create_campaign",
    "errors": (
        "MailAmbiguousSendError MailAnswerError MailAnswerLostError MailAuthError MailConfigError MailConflictError "
        "MailConnectError MailError MailIncompleteCampaignError MailIncompleteError MailMissingError "
        "MailInterruptedError MailPendingCampaignError MailRateLimitError MailRejectedError MailSandboxError "
        "MailServerError MailServiceError MailValidationError"
    ),
    "events": "EventCode MailEvent parse_push",
    "lists": "AddList ContactList DeleteList GetLists find_list",
    "oauth": "GetToken authorize_url",
    "senders": "AddSender DeleteSender GetSenders Sender VerifySender find_sender",
    "flows.statistics": "campaign_stats transactional_stats",
    "templates": "AddTemplate DeleteTemplate GetTemplates Template find_template",
    "transactional": "GetTransactionalStats MessageVersion Recipient SendBatch SendMail TransactionalStats",
    "webhooks": "EventToggles GetWebhook SaveWebhook SenderCallback",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "AddList",
    "AddSender",
    "AddTemplate",
    "AsyncMailClient",
    "Attachment",
    "Campaign",
    "CampaignStats",
    "CancelCampaign",
    "ClientConfig",
    "ColumnMapping",
    "Contact",
    "ContactList",
    "CreateCampaign",
    "DeleteCampaign",
    "DeleteContact",
    "DeleteList",
    "DeleteSender",
    "DeleteTemplate",
    "EventCode",
    "EventToggles",
    "GetCampaignStats",
    "GetCampaigns",
    "GetContact",
    "GetListContacts",
    "GetLists",
    "GetSenders",
    "GetTemplates",
    "GetToken",
    "GetTransactionalStats",
    "GetWebhook",
    "ImportContacts",
    "ImportPlan",
    "MailAmbiguousSendError",
    "MailAnswerError",
    "MailAnswerLostError",
    "MailAuthError",
    "MailClient",
    "MailConfigError",
    "MailConflictError",
    "MailConnectError",
    "MailError",
    "MailEvent",
    "MailIncompleteCampaignError",
    "MailIncompleteError",
    "MailInterruptedError",
    "MailMissingError",
    "MailPendingCampaignError",
    "MailRateLimitError",
    "MailRejectedError",
    "MailRequest",
    "MailResponse",
    "MailSandboxError",
    "MailServerError",
    "MailServiceError",
    "MailStats",
    "MailStatus",
    "MailValidationError",
    "MessageVersion",
    "Progress",
    "Recipient",
    "Reject",
    "RetryRule",
    "SaveWebhook",
    "SendBatch",
    "SendMail",
    "Sender",
    "SenderCallback",
    "Template",
    "TransactionalStats",
    "UpdateMode",
    "UpsertContact",
    "VerifySender",
    "authorize_url",
    "campaign_stats",
    "cancel_campaign",
    "configure_webhook",
    "create_campaign",
    "find_campaign",
    "find_list",
    "find_sender",
    "find_template",
    "import_contacts",
    "parse_push",
    "transactional_stats",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # from now on it is found without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
