-- One row per campaign and day of observation: the counts, and how much they grew since the observation before.
{{ config(
    enabled='mail_campaign_stats_snapshots' in var('mail_tables'),
    unique_key=['mail_conn_id', 'team_name', 'mail_name'],
) }}

-- A name may be used again for another campaign, sent at another time: growth is that of one campaign.
-- A row depends on the one before it, so all days of a campaign are written again when one of them is.
with snapshots as (
    select * from {{ ref('stg_mail_campaign_stats_snapshots') }}
)

select
    mail_conn_id,
    team_name,
    mail_name,
    mail_send_date,
    observed_day,
    lag(observed_day) over campaign_days as day_before,
    sent_count,
    open_count,
    click_count,
    hard_bounce + soft_bounce as bounce_count,
    unsubscribe_count,
    sent_count - coalesce(lag(sent_count) over campaign_days, 0) as new_sent,
    open_count - coalesce(lag(open_count) over campaign_days, 0) as new_opens,
    click_count - coalesce(lag(click_count) over campaign_days, 0) as new_clicks,
    hard_bounce + soft_bounce - coalesce(lag(hard_bounce + soft_bounce) over campaign_days, 0) as new_bounces,
    unsubscribe_count - coalesce(lag(unsubscribe_count) over campaign_days, 0) as new_unsubscribes,
    observed_at,
    loaded_at
from snapshots
{% if is_incremental() %}
where exists (
    select 1
    from snapshots as changed
    where changed.mail_conn_id = snapshots.mail_conn_id
        and changed.team_name = snapshots.team_name
        and changed.mail_name = snapshots.mail_name
        and {{ mail_is_new('changed', ['mail_conn_id', 'team_name', 'mail_name', 'observed_day']) }}
)
{% endif %}
window campaign_days as (
    partition by mail_conn_id, team_name, mail_name, mail_send_date order by observed_day
)
