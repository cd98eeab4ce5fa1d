WITH days AS (
    SELECT
        team_name,
        mail_send_date,
        observed_day,
        sent_count,
        open_count,
        LAG(open_count) OVER by_day AS opens_before,
        MAX(open_count) OVER (PARTITION BY team_name, mail_send_date) AS all_opens
    FROM mail_campaign_stats_snapshots
    WHERE mail_conn_id = 'mail_default' AND mail_name = 'spring-sale'
    WINDOW by_day AS (PARTITION BY team_name, mail_send_date ORDER BY observed_day)
)
SELECT
    team_name,
    mail_send_date,
    observed_day,
    sent_count,
    open_count,
    open_count - opens_before AS new_opens,
    ROUND(100.0 * open_count / NULLIF(sent_count, 0), 2) AS open_rate,
    ROUND(100.0 * open_count / NULLIF(all_opens, 0), 2) AS percent_of_opens
FROM days
ORDER BY team_name, mail_send_date, observed_day
