WITH RECURSIVE days AS (
    SELECT mail_conn_id, team_name, MAX(stats_date) AS stats_date, MIN(stats_date) AS first_date, 1 AS number
    FROM mail_transactional_stats
    GROUP BY mail_conn_id, team_name
    UNION ALL
    SELECT mail_conn_id, team_name, CAST(stats_date - INTERVAL '1' DAY AS DATE), first_date, number + 1
    FROM days
    WHERE stats_date > first_date AND number < 90
)
SELECT
    days.mail_conn_id,
    days.team_name,
    days.stats_date,
    CASE WHEN stats.stats_date IS NULL THEN 'missing' WHEN stats.sent_count = 0 THEN 'none sent' ELSE 'sent' END AS state,
    stats.sent_count,
    stats.unsent_count,
    stats.bounce_count AS soft_bounces,
    ROUND(100.0 * stats.bounce_count / NULLIF(stats.sent_count, 0), 2) AS soft_bounce_rate
FROM days
LEFT JOIN mail_transactional_stats AS stats
    ON stats.mail_conn_id = days.mail_conn_id AND stats.team_name = days.team_name AND stats.stats_date = days.stats_date
ORDER BY days.mail_conn_id, days.team_name, days.stats_date DESC
