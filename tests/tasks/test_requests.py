"""Requests and the operators that send them are written twice, as types and as signatures: here they are compared."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from airflow_provider_mail.api import campaigns, contacts, lists, senders, templates, transactional, webhooks
from airflow_provider_mail.api._core.requests import MailRequest
from tests.support.operator_parts import ARGUMENTS, declared
from tests.tasks.everything import OPERATORS
from tests.tasks.test_operators import NEEDED, arguments

# fmt: off
REQUESTS: dict[str, type[MailRequest[Any]]] = {
    "MailAddSenderOperator": senders.AddSender,
    "MailCampaignStatsToSqlOperator": campaigns.GetCampaignStats,
    "MailCampaignsToObjectStorageOperator": campaigns.GetCampaigns,
    "MailCampaignsToSqlOperator": campaigns.GetCampaigns,
    "MailCancelCampaignOperator": campaigns.CancelCampaign,
    "MailContactsToObjectStorageOperator": contacts.GetListContacts,
    "MailContactsToSqlOperator": contacts.GetListContacts,
    "MailCreateCampaignOperator": campaigns.CreateCampaign,
    "MailCreateListOperator": lists.AddList,
    "MailCreateTemplateOperator": templates.AddTemplate,
    "MailDeleteCampaignOperator": campaigns.DeleteCampaign,
    "MailDeleteContactOperator": contacts.DeleteContact,
    "MailDeleteListOperator": lists.DeleteList,
    "MailDeleteSenderOperator": senders.DeleteSender,
    "MailDeleteTemplateOperator": templates.DeleteTemplate,
    "MailImportContactsOperator": contacts.ImportContacts,
    "MailPreflightOperator": campaigns.CreateCampaign,
    "MailSaveWebhookOperator": webhooks.SaveWebhook,
    "MailSendBatchOperator": transactional.SendBatch,
    "MailSendOperator": transactional.SendMail,
    "MailTransactionalStatsToSqlOperator": transactional.GetTransactionalStats,
    "MailUpsertContactOperator": contacts.UpsertContact,
    "MailVerifySenderOperator": senders.VerifySender,
    "ObjectStorageToMailContactsOperator": contacts.ImportContacts,
    "SqlToMailBatchOperator": transactional.SendBatch,
    "SqlToMailContactsOperator": contacts.ImportContacts,
}

WITHOUT_REQUEST = {
    "MailCampaignSensor", "MailSenderSensor", "MailStatsSettledSensor", "MailStatsToObjectStorageOperator",
    "MailEventsReconcileOperator", "MailEventsToSqlOperator", "MailInboxSensor", "MailCreateStageTableOperator",
    "MailMergeStageTableOperator", "MailStatsGateOperator", "MailSendTestOperator",
    "MailCompareCampaignsOperator",
}
"""They have no request of which users give the fields."""

GIVEN_OTHERWISE = {
    campaigns.GetCampaignStats: {"start_date": "start_day", "end_date": "end_day"},
    campaigns.GetCampaigns: {"page_index": None},
    contacts.DeleteContact: {"email": "contact_email"},
    contacts.GetListContacts: {"page_index": None},
    contacts.ImportContacts: {"contact_data": None, "contact_data_mapping": None},
    contacts.UpsertContact: {"email": "contact_email"},
    transactional.GetTransactionalStats: {"start_date": "start_day", "end_date": "end_day"},
    transactional.SendBatch: {"message_versions": None, "params": "mail_params", "unique_msg_id": None},
}
"""The fields that are not arguments of their name, with the argument of another name, if there is one."""

OWN_MEANING = {
    "MailCreateTemplateOperator": {"sandbox_mode"},  # true fails the task
    "MailDeleteTemplateOperator": {"sandbox_mode"},
    "MailPreflightOperator": {"template_name"},  # the content is compared with it
}
"""Arguments with the name of a field that the request does not have."""

WITH_A_DEFAULT = {(campaigns.CreateCampaign, "mail_name"), (contacts.ImportContacts, "update_mode")}
"""Required fields whose argument has a default."""
# fmt: on

FIELDS = {
    name
    for module in (campaigns, contacts, lists, senders, templates, transactional, webhooks)
    for request in vars(module).values()
    if inspect.isclass(request) and issubclass(request, MailRequest)
    for name in request.model_fields
}
LIMITS = {rule.limit for rule in ARGUMENTS.values()} - {None}

every_request = pytest.mark.parametrize(("operator", "request_type"), REQUESTS.items(), ids=REQUESTS)


def test_every_operator_is_compared() -> None:
    assert REQUESTS.keys() | WITHOUT_REQUEST == {kind.__name__ for kind in NEEDED}


@every_request
def test_each_field_of_the_request_is_an_argument(operator: str, request_type: type[MailRequest[Any]]) -> None:
    fields, otherwise = request_type.model_fields, GIVEN_OTHERWISE.get(request_type, {})
    rules, parameters = declared(OPERATORS[operator]), arguments(OPERATORS[operator])
    assert fields.keys() - parameters.keys() == otherwise.keys()
    assert {name for name in otherwise.values() if name} <= parameters.keys()
    for name in fields.keys() & parameters.keys():
        is_required = parameters[name].default is inspect.Parameter.empty
        assert is_required == (fields[name].is_required() and (request_type, name) not in WITH_A_DEFAULT), name
        written = next(base.__annotations__[name] for base in request_type.__mro__ if name in base.__annotations__)
        for limit in LIMITS.intersection(re.findall(r"\w+", written)):
            assert rules[name].rule.limit == limit, name


@every_request
def test_each_argument_named_as_a_field_is_one(operator: str, request_type: type[MailRequest[Any]]) -> None:
    not_sent = FIELDS.intersection(arguments(OPERATORS[operator])) - request_type.model_fields.keys()
    assert not_sent == OWN_MEANING.get(operator, set())
