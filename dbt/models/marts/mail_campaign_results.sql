-- One row per campaign, with its latest counts and rates.
{{ config(
    enabled='mail_campaign_stats' in var('mail_tables'),
    unique_key=['mail_conn_id', 'team_name', 'mail_name'],
) }}

select
    mail_conn_id,
    team_name,
    mail_name,
    mail_send_date,
    {{ mail_utc_date('mail_send_date') }} as send_day,
    sent_count,
    greatest(sent_count - hard_bounce - soft_bounce, 0) as delivered_count,
    open_count,
    click_count,
    hard_bounce + soft_bounce as bounce_count,
    unsent_count,
    unsubscribe_count,
    open_rate,
    click_rate,
    bounce_rate,
    unsubscribe_rate,
    gone_at is not null as is_gone,
    observed_at,
    loaded_at
from {{ ref('stg_mail_campaign_stats') }} as campaigns
{% if is_incremental() %}
where {{ mail_is_new('campaigns', ['mail_conn_id', 'team_name', 'mail_name']) }}
{% endif %}
