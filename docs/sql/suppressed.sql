WITH mails AS (
    SELECT mail_conn_id, LOWER(email) AS address, unique_msg_id, event_code, triggered_time
    FROM mail_events
    WHERE email IS NOT NULL
),
last_deliveries AS (
    SELECT mail_conn_id, address, MAX(triggered_time) AS delivered_at
    FROM mails
    WHERE event_code = 'Delivered'
    GROUP BY mail_conn_id, address
),
reasons AS (
    SELECT mail_conn_id, address, 1 AS priority, 'spam report' AS reason
    FROM mails
    WHERE event_code = 'SpamReport'
    UNION
    SELECT mail_conn_id, address, 2, 'unsubscribed'
    FROM mails
    WHERE event_code = 'Unsubscribed'
    UNION
    SELECT mail_conn_id, address, 3, 'dropped'
    FROM mails
    WHERE event_code = 'Dropped'
    UNION
    SELECT mails.mail_conn_id, mails.address, 4, 'bounced'
    FROM mails
    LEFT JOIN last_deliveries
        ON last_deliveries.mail_conn_id = mails.mail_conn_id AND last_deliveries.address = mails.address
    WHERE event_code = 'Bounced' AND (delivered_at IS NULL OR triggered_time > delivered_at)
    GROUP BY mails.mail_conn_id, mails.address
    HAVING COUNT(DISTINCT unique_msg_id) >= 3
),
first_reasons AS (
    SELECT mail_conn_id, address, MIN(priority) AS priority
    FROM reasons
    GROUP BY mail_conn_id, address
)
SELECT reasons.mail_conn_id, reasons.reason, COUNT(*) AS addresses
FROM first_reasons
JOIN reasons
    ON reasons.mail_conn_id = first_reasons.mail_conn_id AND reasons.address = first_reasons.address
    AND reasons.priority = first_reasons.priority
GROUP BY reasons.mail_conn_id, reasons.reason
ORDER BY reasons.mail_conn_id, reasons.reason
