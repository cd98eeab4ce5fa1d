WITH readings AS (
    SELECT
        mail_conn_id,
        team_name,
        list_id,
        list_name,
        read_at,
        contacts,
        LAG(read_at) OVER (PARTITION BY mail_conn_id, team_name, list_id ORDER BY read_at) AS read_before
    FROM mail_contacts_history_readings
),
joins AS (
    SELECT mail_conn_id, team_name, list_id, valid_from, COUNT(*) AS joined
    FROM mail_contacts_history
    GROUP BY mail_conn_id, team_name, list_id, valid_from
),
leaves AS (
    SELECT mail_conn_id, team_name, list_id, valid_to, COUNT(*) AS departed
    FROM mail_contacts_history
    WHERE valid_to IS NOT NULL
    GROUP BY mail_conn_id, team_name, list_id, valid_to
)
SELECT
    readings.mail_conn_id,
    readings.team_name,
    readings.list_id,
    readings.list_name,
    readings.read_at,
    readings.contacts,
    COALESCE(joins.joined, 0) AS joined,
    COALESCE(leaves.departed, 0) AS departed,
    ROUND(100.0 * COALESCE(leaves.departed, 0)
        / NULLIF(readings.contacts - COALESCE(joins.joined, 0) + COALESCE(leaves.departed, 0), 0), 2) AS churn_rate,
    CASE WHEN readings.contacts = 0 THEN 'ended or empty' ELSE 'list' END AS state
FROM readings
LEFT JOIN joins
    ON joins.mail_conn_id = readings.mail_conn_id
    AND joins.team_name = readings.team_name
    AND joins.list_id = readings.list_id
    AND joins.valid_from = readings.read_at
LEFT JOIN leaves
    ON leaves.mail_conn_id = readings.mail_conn_id
    AND leaves.team_name = readings.team_name
    AND leaves.list_id = readings.list_id
    AND leaves.valid_to = readings.read_at
WHERE readings.read_before IS NOT NULL
ORDER BY readings.mail_conn_id, readings.team_name, readings.list_name, readings.list_id, readings.read_at
