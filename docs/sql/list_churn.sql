WITH readings AS (
    SELECT
        mail_conn_id,
        team_name,
        list_name,
        read_at,
        contacts,
        list_id,
        LAG(list_id) OVER (PARTITION BY mail_conn_id, team_name, list_name ORDER BY read_at) AS list_id_before,
        LAG(read_at) OVER (PARTITION BY mail_conn_id, team_name, list_name ORDER BY read_at) AS read_before
    FROM mail_contacts_history_readings
),
joins AS (
    SELECT mail_conn_id, team_name, list_name, valid_from, COUNT(*) AS joined
    FROM mail_contacts_history
    GROUP BY mail_conn_id, team_name, list_name, valid_from
),
leaves AS (
    SELECT mail_conn_id, team_name, list_name, valid_to, COUNT(*) AS departed
    FROM mail_contacts_history
    WHERE valid_to IS NOT NULL
    GROUP BY mail_conn_id, team_name, list_name, valid_to
)
SELECT
    readings.mail_conn_id,
    readings.team_name,
    readings.list_name,
    readings.read_at,
    readings.contacts,
    COALESCE(joins.joined, 0) AS joined,
    COALESCE(leaves.departed, 0) AS departed,
    CASE WHEN readings.list_id <> readings.list_id_before THEN NULL ELSE ROUND(100.0 * COALESCE(leaves.departed, 0)
        / NULLIF(readings.contacts - COALESCE(joins.joined, 0) + COALESCE(leaves.departed, 0), 0), 2) END AS churn_rate,
    CASE
        WHEN readings.list_id <> readings.list_id_before THEN 'another list'
        WHEN readings.contacts = 0 THEN 'ended or empty'
        ELSE 'list'
    END AS state
FROM readings
LEFT JOIN joins
    ON joins.mail_conn_id = readings.mail_conn_id
    AND joins.team_name = readings.team_name
    AND joins.list_name = readings.list_name
    AND joins.valid_from = readings.read_at
LEFT JOIN leaves
    ON leaves.mail_conn_id = readings.mail_conn_id
    AND leaves.team_name = readings.team_name
    AND leaves.list_name = readings.list_name
    AND leaves.valid_to = readings.read_at
WHERE readings.read_before IS NOT NULL
ORDER BY readings.mail_conn_id, readings.team_name, readings.list_name, readings.read_at
