"""Import customers into a list, without those whom mail does not reach, or who want none.

Needs the connections ``mail_default`` and ``warehouse`` (with a table ``customers``), and ``[mail] inbox_conn_id``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

# [START howto_suppress_addresses]
SUBSCRIBERS = """
WITH mails AS (
    SELECT LOWER(email) AS address, unique_msg_id, event_code, triggered_time
    FROM mail_events
    WHERE mail_conn_id = 'mail_default' AND email IS NOT NULL
),
last_deliveries AS (
    SELECT address, MAX(triggered_time) AS delivered_at
    FROM mails
    WHERE event_code = 'Delivered'
    GROUP BY address
),
suppressed AS (
    SELECT address
    FROM mails
    WHERE event_code IN ('Dropped', 'SpamReport', 'Unsubscribed')
    UNION
    -- The events do not show which bounces are permanent: three mails bounced, and none was delivered since.
    SELECT mails.address
    FROM mails
    LEFT JOIN last_deliveries ON last_deliveries.address = mails.address
    WHERE event_code = 'Bounced' AND (delivered_at IS NULL OR triggered_time > delivered_at)
    GROUP BY mails.address
    HAVING COUNT(DISTINCT unique_msg_id) >= 3
)
SELECT email, full_name
FROM customers
WHERE subscribed = 1 AND NOT EXISTS (SELECT 1 FROM suppressed WHERE address = LOWER(email))
"""

with DAG(
    dag_id="mail_suppress_addresses",
    description="Import subscribers whom mail reaches",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # Load what happened until now.
    drain = MailEventsToSqlOperator(task_id="drain", sql_conn_id="warehouse")
    sync = SqlToMailContactsOperator(
        task_id="sync",
        sql_conn_id="warehouse",
        sql=SUBSCRIBERS,
        columns={"email": "email", "full_name": "name"},
        list_name="newsletter",
        rejects=Rejects(max_fraction=0.05),
    )
    drain >> sync
# [END howto_suppress_addresses]
