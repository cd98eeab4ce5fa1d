WITH created AS (
    SELECT
        mail_conn_id,
        team_name,
        list_name,
        COALESCE(TO_CHAR(create_date AT TIME ZONE 'UTC', 'YYYY-MM'), 'unknown') AS created_month
    FROM mail_contacts
)
SELECT
    mail_conn_id,
    team_name,
    list_name,
    created_month,
    COUNT(*) AS contacts,
    SUM(COUNT(*)) OVER (PARTITION BY mail_conn_id, team_name, list_name ORDER BY created_month) AS contacts_so_far
FROM created
GROUP BY mail_conn_id, team_name, list_name, created_month
ORDER BY mail_conn_id, team_name, list_name, created_month
