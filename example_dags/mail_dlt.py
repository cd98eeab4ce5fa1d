"""Every day, load what the service returns into a destination of dlt: Snowflake, BigQuery, Databricks, DuckDB ...

The Airflow variable ``mail_dlt_destination`` names it, such as ``snowflake`` or ``bigquery``; without one it is DuckDB.
Needs the connection ``mail_default``, the extras ``dlt`` and ``parquet``, the destination's own
(``pip install "dlt[snowflake]"``), and its credentials in dlt's own configuration, such as the environment variable
``DESTINATION__SNOWFLAKE__CREDENTIALS`` or ``DESTINATION__DUCKDB__CREDENTIALS=/data/warehouse.duckdb``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import dag, task


# [START howto_dlt]
@dag(
    dag_id="mail_dlt",
    description="Campaigns, statistics, lists, templates and senders by dlt",
    # At midnight UTC, since the service counts by days in UTC.
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    # dlt stores with the pipeline how far it has read: two runs at once would read the same days.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=5)},
    tags=["mail", "example"],
)
def mail_dlt():
    @task
    def load(destination: str) -> None:
        # Not at the top of the file: importing dlt takes a second, each time that the file is parsed.
        import dlt

        from airflow_provider_mail.dlt_source import mail_source
        from airflow_provider_mail.hooks.mail import MailHook

        hook = MailHook("mail_default")
        source = mail_source(
            hook.get_conn(),
            start_day=pendulum.today("UTC").subtract(days=30).date(),
            team_name=hook.team_name,
            snapshots=True,
            # BigQuery loads no JSON from Arrow tables.
            arrow=destination != "bigquery",
        )
        pipeline = dlt.pipeline("mail", destination=destination, dataset_name="mail_service")
        print(pipeline.run(source))

    load("{{ var.value.get('mail_dlt_destination', 'duckdb') }}")


example = mail_dlt()
# [END howto_dlt]
