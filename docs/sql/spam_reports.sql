SELECT
    mail_conn_id,
    mail_name,
    delivered,
    spam_reports,
    unsubscribed,
    ROUND(1000.0 * spam_reports / delivered, 2) AS spam_reports_per_1000,
    ROUND(1000.0 * unsubscribed / delivered, 2) AS unsubscribed_per_1000
FROM (
    SELECT
        mail_conn_id,
        guid,
        MAX(mail_name) AS mail_name,
        SUM(CASE WHEN event_code = 'Delivered' THEN 1 ELSE 0 END) AS delivered,
        SUM(CASE WHEN event_code = 'SpamReport' THEN 1 ELSE 0 END) AS spam_reports,
        SUM(CASE WHEN event_code = 'Unsubscribed' THEN 1 ELSE 0 END) AS unsubscribed
    FROM mail_events
    WHERE guid IS NOT NULL
    GROUP BY mail_conn_id, guid
) AS campaigns
WHERE delivered >= 100
ORDER BY spam_reports_per_1000 DESC, delivered DESC, mail_conn_id, mail_name
