WITH sends AS (
    SELECT
        mail_campaign_stats.*,
        EXTRACT(ISODOW FROM mail_send_date AT TIME ZONE 'UTC') AS send_weekday, -- 1 is Monday
        EXTRACT(HOUR FROM mail_send_date AT TIME ZONE 'UTC') AS send_hour
    FROM mail_campaign_stats
    WHERE mail_send_date IS NOT NULL AND gone_at IS NULL
)
SELECT
    mail_conn_id,
    send_weekday,
    send_hour,
    COUNT(*) AS campaigns,
    SUM(sent_count) AS sent,
    ROUND(100.0 * SUM(open_count) / SUM(sent_count), 2) AS open_rate,
    ROUND(100.0 * SUM(click_count) / SUM(sent_count), 2) AS click_rate
FROM sends
GROUP BY mail_conn_id, send_weekday, send_hour
HAVING SUM(sent_count) >= 1000
ORDER BY click_rate DESC, sent DESC
