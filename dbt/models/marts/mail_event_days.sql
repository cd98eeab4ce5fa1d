-- One row per account, day, event code and campaign: how many events, and of how many mails. It contains no address.
{{ config(
    enabled='mail_events' in var('mail_tables'),
    unique_key=['mail_conn_id', 'event_day'],
) }}

-- An event of a past day may arrive late, so all rows of a day are written again when an event of it has arrived.
with events as (
    select
        mail_conn_id,
        {{ mail_utc_date('coalesce(triggered_time, received_at)') }} as event_day,
        event_code,
        coalesce(guid, '') as guid,
        unique_msg_id,
        mail_name,
        received_at
    from {{ ref('stg_mail_events') }}
)

select
    mail_conn_id,
    event_day,
    event_code,
    guid,
    max(mail_name) as mail_name,
    count(*) as events,
    count(distinct unique_msg_id) as mails,
    max(received_at) as last_received_at
from events
{% if is_incremental() %}
where exists (
    select 1
    from events as arrived
    where arrived.mail_conn_id = events.mail_conn_id
        and arrived.event_day = events.event_day
        and {{ mail_is_new('arrived.received_at', 'last_received_at') }}
)
{% endif %}
group by mail_conn_id, event_day, event_code, guid
