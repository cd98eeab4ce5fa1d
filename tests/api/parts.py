"""The private parts of the client that these tests look into: only this module knows where they are."""

# ruff: noqa: F401

from __future__ import annotations

from airflow_provider_mail.api._core import pacing, pagination, transport
from airflow_provider_mail.api._core.fields import ADDRESS_PATTERN, address_key, address_problem, check_lengths
from airflow_provider_mail.api._core.pacing import (
    MAX_OFFSET,
    Interrupt,
    ServiceClock,
    Throttle,
    Workers,
    http_date,
    retry_after_seconds,
)
from airflow_provider_mail.api._core.pagination import Changes, Pager, next_page, next_pages
from airflow_provider_mail.api._core.requests import Effect, MailRequest, MailResponse, PagedRequest, Resource
from airflow_provider_mail.api._core.responses import HttpResponse, exceeds_memory, parse_response
from airflow_provider_mail.api._core.shared_rate import Slot
from airflow_provider_mail.api._core.transport import transport_error
from airflow_provider_mail.api.client import MAX_MISSED, Call, MailClient, RequestAttempt
from airflow_provider_mail.api.config import CONNECT_MESSAGES, PROXY_MESSAGES, explain
