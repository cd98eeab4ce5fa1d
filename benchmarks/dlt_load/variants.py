"""What dlt_loads.py measures, each in a new process.

    python -m benchmarks.dlt_load.variants statistics|contacts ours|dlt SETTINGS

The environment has the Airflow connections ``warehouse`` and ``mail_default``, the destination's URL and a folder.
Prints one line of JSON: seconds, CPU seconds, peak memory over what the imports alone take (MiB), and records.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.contact_export.service import LIST
from benchmarks.stats_load.service import FIRST_DAY, month_end
from benchmarks.support import Run, imported, measure

TABLES = {"statistics": "mail_campaign_stats", "contacts": "mail_contacts"}

# Import before the measurement what the operators import when they run.
LAZILY_IMPORTED = (
    "airflow_provider_mail.api.client",
    "airflow_provider_mail.api.contacts",
    "airflow_provider_mail.api.flows.statistics",
    "airflow_provider_mail._task.mixin",
    "airflow_provider_mail.hooks.mail",
    "airflow_provider_mail.warehouse.database",
    "airflow_provider_mail.warehouse.tables.resources",
    "airflow_provider_mail.warehouse.tables.stats",
)


def ours(subject: str) -> Run:
    """Run the operator as a task does.

    :param subject: ``statistics`` or ``contacts``.
    """
    from airflow_provider_mail.transfers import mail_to_object_storage, mail_to_sql

    days = {"start_day": FIRST_DAY.isoformat(), "end_day": month_end().isoformat()}
    operator: Any
    if os.environ["BENCHMARK_KIND"] == "files":
        for module in (*LAZILY_IMPORTED, "pyarrow.parquet"):
            import_module(module)
        files = {"task_id": "load", "path": os.environ["BENCHMARK_URL"]}
        if subject == "statistics":
            operator = mail_to_object_storage.MailStatsToObjectStorageOperator(**days, **files)
        else:
            operator = mail_to_object_storage.MailContactsToObjectStorageOperator(list_name=LIST, **files)
    else:
        imported("warehouse", *LAZILY_IMPORTED)
        rows = {"task_id": "load", "sql_conn_id": "warehouse"}
        if subject == "statistics":
            operator = mail_to_sql.MailCampaignStatsToSqlOperator(**days, **rows)
        else:
            operator = mail_to_sql.MailContactsToSqlOperator(list_name=LIST, **rows)

    def run() -> int:
        context: Any = {"dag_run": SimpleNamespace(run_after=datetime.now(UTC))}
        return int(operator.execute(context)["records"])

    return run


def by_dlt(subject: str, *, arrow: bool = False, **settings: Any) -> Run:
    """Run a pipeline of dlt with the source.

    :param arrow: give it Arrow tables.
    :param settings: arguments of ``pipeline.run``.
    """
    import dlt

    from airflow_provider_mail.api import ClientConfig, MailClient
    from airflow_provider_mail.dlt_source import mail_source
    from airflow_provider_mail.warehouse.files import arrow_table
    from airflow_provider_mail.warehouse.tables.resources import SENDERS

    destination_name, url = os.environ["BENCHMARK_KIND"], os.environ["BENCHMARK_URL"]
    destinations = {
        "Postgres": dlt.destinations.postgres,
        "DuckDB": dlt.destinations.duckdb,
        "files": dlt.destinations.filesystem,
    }
    folder = Path(os.environ["BENCHMARK_FOLDER"])

    # dlt imports most of what it needs, Airflow included, in its first run.
    import_pipeline = dlt.pipeline(
        "imports",
        destination=destinations[destination_name](url if destination_name == "Postgres" else f"{folder}-imports"),
        dataset_name="imports",
        pipelines_dir=str(folder),
    )
    sample: Any = arrow_table(SENDERS, []) if arrow else [{"id": 1}]
    resource = dlt.resource(
        sample, name="first", primary_key="from_domain" if arrow else "id", write_disposition="merge"
    )
    import_pipeline.run(resource, **settings).raise_on_failed_jobs()

    def run() -> int:
        with MailClient(ClientConfig(base_url=os.environ["BENCHMARK_SERVICE"], api_key="benchmark")) as client:
            pipeline = dlt.pipeline(
                "benchmark",
                destination=destinations[destination_name](url),
                dataset_name="by_dlt",
                pipelines_dir=str(folder),
            )
            source = mail_source(
                client,
                start_day=FIRST_DAY,
                end_day=month_end(),
                contact_lists=[LIST],
                keep_gone=destination_name == "files",
                arrow=arrow,
            )
            pipeline.run(source.with_resources(TABLES[subject]), **settings).raise_on_failed_jobs()
            # Its own count of rows is that of the cells where it writes CSV.
            return 0

    return run


if __name__ == "__main__":
    variant, settings = sys.argv[2], json.loads(sys.argv[3])
    measure(ours(sys.argv[1]) if variant == "ours" else by_dlt(sys.argv[1], **settings))
