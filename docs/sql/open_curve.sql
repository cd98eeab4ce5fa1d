WITH days AS (
    SELECT
        observed_day,
        sent_count,
        open_count,
        LAG(open_count) OVER (ORDER BY observed_day) AS opens_before
    FROM mail_campaign_stats_snapshots
    WHERE mail_conn_id = 'mail_default' AND mail_name = 'spring-sale'
)
SELECT
    observed_day,
    sent_count,
    open_count,
    open_count - opens_before AS new_opens,
    ROUND(100.0 * open_count / NULLIF(sent_count, 0), 2) AS open_rate,
    ROUND(100.0 * open_count / NULLIF((SELECT MAX(open_count) FROM days), 0), 2) AS percent_of_opens
FROM days
ORDER BY observed_day
