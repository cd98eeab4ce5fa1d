"""2,000 people in twenty requests, sent by a task that is killed."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from airflow.sdk import DAG

from airflow_provider_mail.operators.transactional import MailSendBatchOperator
from tests.real.airflow.crashing import Mortal


class MortalBatch(Mortal, MailSendBatchOperator):
    """One that is killed."""


def messages() -> Iterator[dict[str, Any]]:
    for version in range(100):
        yield {"to": [f"user{20 * version + place}@example.com" for place in range(20)]}


with DAG("crash_batch", schedule=None, max_active_runs=300, max_active_tasks=300):
    MortalBatch(
        task_id="task",
        sender_mail="news@example.com",
        subject="Reminder",
        content="<p>Reminder</p>",
        campaign="{{ dag_run.conf['case'] }}",
        messages=messages,
        versions_per_request=5,
        # What the user decides after a failure comes from a variable: the configuration of a run is fixed.
        on_ambiguous="{{ var.value.get('decision_' ~ dag_run.conf['case'], dag_run.conf['on_ambiguous']) }}",
        retries=4,
        retry_delay=datetime.timedelta(seconds=1),
    )
