WITH sends AS (
    SELECT
        mail_campaign_stats.*,
        GREATEST(sent_count - hard_bounce - soft_bounce, 0) AS delivered,
        CAST(date_trunc('week', mail_send_date AT TIME ZONE 'UTC') AS date) AS week_begins
    FROM mail_campaign_stats
    WHERE mail_send_date IS NOT NULL AND gone_at IS NULL
)
SELECT
    mail_conn_id,
    week_begins,
    COUNT(*) AS campaigns,
    SUM(sent_count) AS sent,
    ROUND(100.0 * SUM(open_count) / NULLIF(SUM(sent_count), 0), 2) AS open_rate,
    ROUND(100.0 * SUM(open_count) / NULLIF(SUM(delivered), 0), 2) AS open_rate_delivered
FROM sends
GROUP BY mail_conn_id, week_begins
ORDER BY mail_conn_id, week_begins
