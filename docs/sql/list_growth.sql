WITH created AS (
    SELECT
        mail_conn_id,
        team_name,
        list_name,
        COALESCE(SUBSTR(CAST(create_date AS CHAR), 1, 7), 'unknown') AS created_month
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
