WITH subjects AS (
    SELECT stats.mail_conn_id, stats.team_name, stats.mail_name, MIN(campaign.subject) AS subject
    FROM mail_campaign_stats AS stats
    JOIN mail_campaigns AS campaign
        ON campaign.mail_conn_id = stats.mail_conn_id
        AND campaign.mail_name = stats.mail_name
        AND (stats.team_name = '' OR stats.team_name = campaign.team_name)
    WHERE stats.gone_at IS NULL AND campaign.gone_at IS NULL
    GROUP BY stats.mail_conn_id, stats.team_name, stats.mail_name
    HAVING COUNT(*) = 1 AND COALESCE(MIN(campaign.task_type), '') <> 'ABTest'
)
SELECT
    subjects.mail_conn_id,
    subjects.subject,
    COUNT(*) AS campaigns,
    SUM(stats.sent_count) AS sent,
    ROUND(100.0 * SUM(stats.open_count) / SUM(stats.sent_count), 2) AS open_rate,
    ROUND(100.0 * SUM(stats.click_count) / SUM(stats.sent_count), 2) AS click_rate
FROM subjects
JOIN mail_campaign_stats AS stats
    ON stats.mail_conn_id = subjects.mail_conn_id
    AND stats.team_name = subjects.team_name
    AND stats.mail_name = subjects.mail_name
WHERE subjects.subject IS NOT NULL
GROUP BY subjects.mail_conn_id, subjects.subject
HAVING SUM(stats.sent_count) >= 1000
ORDER BY open_rate DESC, sent DESC
LIMIT 20
