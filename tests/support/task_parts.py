"""The private parts of imports and transactional mail that tests look into: only this module knows where they are."""

from __future__ import annotations

from airflow_provider_mail._task.at_most_once import MEMORY_BYTES, ChunkSpool, MailingState
from airflow_provider_mail._task.import_checkpoint import KEY as CHECKPOINT_KEY
from airflow_provider_mail._task.import_checkpoint import StoredImportCheckpoint
from airflow_provider_mail._task.messages import RowMessages
from airflow_provider_mail._task.progress import STATE_KEY as PROGRESS_KEY
from airflow_provider_mail._task.progress import ProgressLog, TaskProgress
from airflow_provider_mail._task.recipients import Recipients
from airflow_provider_mail._task.rejects import RejectSpool
from airflow_provider_mail._task.sql import sql_hook
from airflow_provider_mail.api._core.addresses import address_key
from airflow_provider_mail.api._core.interrupt import Workers
from airflow_provider_mail.api._core.responses import HttpResponse, parse_response

__all__ = [
    "CHECKPOINT_KEY",
    "MEMORY_BYTES",
    "PROGRESS_KEY",
    "ChunkSpool",
    "HttpResponse",
    "MailingState",
    "ProgressLog",
    "Recipients",
    "RejectSpool",
    "RowMessages",
    "StoredImportCheckpoint",
    "TaskProgress",
    "Workers",
    "address_key",
    "parse_response",
    "sql_hook",
]
