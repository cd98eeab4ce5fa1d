"""Send a campaign to exactly the people in the files of an export who did not opt out.

Needs the connection ``mail_default``, and the folder of the export in the variable ``mail_lake``: any path that Airflow
can reach, such as ``s3://aws_default@bucket/lake`` or ``file:///...``. The files are below ``people/latest/`` there.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Consent, FileFormat, Rejects
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator

with DAG(
    dag_id="mail_audience_from_files",
    description="An exact audience from a folder of files, without people who opted out",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_audience_from_files]
    people = ObjectStorageToMailContactsOperator(
        task_id="people",
        path="{{ var.value.mail_lake }}/people/latest/",
        file_format=FileFormat(escape="\\"),
        columns={"Email": "email", "First Name": "name"},
        consent=Consent(column="Email Opt Out", no=["1", "true"]),
        list_name="customers",
        exact_audience=True,
        rejects=Rejects(max_fraction=0.01, path="{{ var.value.mail_lake }}/rejected.jsonl"),
    )
    # [END howto_audience_from_files]
    send = MailCreateCampaignOperator(
        task_id="send",
        sender_mail="news@example.com",
        subject="News",
        content="<p>Hello {% raw %}{{name}}{% endraw %}, this is new: ...</p>",
        audience=people.output,
        wait_for_completion=True,
        deferrable=True,
    )
