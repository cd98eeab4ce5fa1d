WITH observed AS (
    SELECT
        mail_conn_id,
        team_name,
        mail_name,
        mail_send_date,
        observed_day,
        LAG(observed_day) OVER by_day AS day_before,
        open_count - LAG(open_count) OVER by_day AS new_opens,
        click_count - LAG(click_count) OVER by_day AS new_clicks,
        hard_bounce + soft_bounce - LAG(hard_bounce + soft_bounce) OVER by_day AS new_bounces,
        unsubscribe_count - LAG(unsubscribe_count) OVER by_day AS new_unsubscribes,
        LEAD(observed_day) OVER by_day AS day_after
    FROM mail_campaign_stats_snapshots
    WINDOW by_day AS (PARTITION BY mail_conn_id, team_name, mail_name, mail_send_date ORDER BY observed_day)
)
SELECT
    mail_conn_id,
    team_name,
    mail_name,
    mail_send_date,
    day_before,
    observed_day AS last_day,
    new_opens,
    new_clicks,
    new_bounces,
    new_unsubscribes
FROM observed
WHERE day_after IS NULL
    AND (new_opens <> 0 OR new_clicks <> 0 OR new_bounces <> 0 OR new_unsubscribes <> 0)
    AND EXISTS (
        SELECT 1
        FROM mail_campaign_stats AS stats
        WHERE stats.mail_conn_id = observed.mail_conn_id
            AND stats.team_name = observed.team_name
            AND stats.mail_name = observed.mail_name
            AND (stats.mail_send_date = observed.mail_send_date
                OR (stats.mail_send_date IS NULL AND observed.mail_send_date IS NULL))
            AND stats.gone_at IS NULL
    )
ORDER BY last_day, new_opens DESC, mail_conn_id, team_name, mail_name
