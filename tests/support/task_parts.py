"""The private parts of imports and transactional mail that tests look into: only this module knows where they are."""

from __future__ import annotations

from airflow_provider_mail._task import waiting as task_waiting  # noqa: F401
from airflow_provider_mail._task.at_most_once import ChunkSpool, MailingState  # noqa: F401
from airflow_provider_mail._task.import_rows import RejectSpool  # noqa: F401
from airflow_provider_mail._task.imports import CHECKPOINT_KEY, StoredImportCheckpoint  # noqa: F401
from airflow_provider_mail._task.messages import Recipients, RowMessages  # noqa: F401
from airflow_provider_mail._task.progress import STATE_KEY as PROGRESS_KEY  # noqa: F401
from airflow_provider_mail._task.progress import ProgressLog  # noqa: F401
from airflow_provider_mail._task.storage import MEMORY_BYTES, sql_hook  # noqa: F401
from airflow_provider_mail.api._core.fields import address_key  # noqa: F401
from airflow_provider_mail.api._core.pacing import Workers  # noqa: F401
from airflow_provider_mail.api._core.responses import HttpResponse, parse_response  # noqa: F401
