WITH asked AS (
    SELECT
        table_name,
        mail_conn_id,
        team_name,
        CASE WHEN table_name = 'mail_contacts' THEN part ELSE '' END AS contact_list,
        observed_at
    FROM mail_loads
    UNION ALL
    SELECT 'mail_campaign_stats', mail_conn_id, team_name, '', MAX(observed_at)
    FROM mail_campaign_stats
    GROUP BY mail_conn_id, team_name
    UNION ALL
    SELECT 'mail_campaign_stats_snapshots', mail_conn_id, team_name, '', MAX(observed_at)
    FROM mail_campaign_stats_snapshots
    GROUP BY mail_conn_id, team_name
    UNION ALL
    SELECT 'mail_campaigns', mail_conn_id, '', '', MAX(observed_at)
    FROM mail_campaigns
    GROUP BY mail_conn_id
)
SELECT table_name, mail_conn_id, team_name, contact_list, MAX(observed_at) AS last_asked
FROM asked
GROUP BY table_name, mail_conn_id, team_name, contact_list
ORDER BY last_asked, table_name, mail_conn_id, team_name, contact_list
