WITH counted AS (
    SELECT
        mail_conn_id,
        team_name,
        mail_name,
        mail_send_date,
        sent_count,
        hard_bounce + soft_bounce AS bounces,
        unsubscribe_count,
        SUM(sent_count) OVER earlier AS earlier_sent,
        SUM(hard_bounce + soft_bounce) OVER earlier AS earlier_bounces,
        SUM(unsubscribe_count) OVER earlier AS earlier_unsubscribes
    FROM mail_campaign_stats
    WHERE mail_send_date IS NOT NULL AND sent_count > 0 AND gone_at IS NULL
    WINDOW earlier AS (
        PARTITION BY mail_conn_id, team_name
        ORDER BY mail_send_date, mail_name
        ROWS BETWEEN 10 PRECEDING AND 1 PRECEDING
    )
)
SELECT
    mail_conn_id,
    team_name,
    mail_send_date,
    mail_name,
    sent_count,
    ROUND(100.0 * bounces / sent_count, 2) AS bounce_rate,
    ROUND(100.0 * earlier_bounces / earlier_sent, 2) AS usual_bounce_rate,
    ROUND(100.0 * unsubscribe_count / sent_count, 2) AS unsubscribe_rate,
    ROUND(100.0 * earlier_unsubscribes / earlier_sent, 2) AS usual_unsubscribe_rate
FROM counted
ORDER BY mail_conn_id, team_name, mail_send_date DESC, mail_name DESC
