"""An import of 40,000 rows from Postgres by a task that is killed."""

from __future__ import annotations

import datetime

from airflow.sdk import DAG

from airflow_provider_mail._task import import_checkpoint
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from tests.real.airflow.crashing import Mortal

# However busy the machine is, an import that is killed shall have written down how far it was two seconds before.
import_checkpoint.SHARE = 0


class MortalImport(Mortal, SqlToMailContactsOperator):
    """One that is killed."""


with DAG("crash_import", schedule=None, max_active_runs=300, max_active_tasks=300):
    MortalImport(
        task_id="task",
        sql_conn_id="crm",
        sql="SELECT email, name FROM people ORDER BY id",
        list_name="{{ dag_run.conf['case'] }}",
        chunk_size=1000,
        max_in_flight=2,
        retries=4,
        retry_delay=datetime.timedelta(seconds=1),
    )
