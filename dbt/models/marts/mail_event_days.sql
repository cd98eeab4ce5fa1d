-- One row per account, day, event code and campaign: how many events, and of how many mails. It contains no address.
{{ config(
    enabled='mail_events' in var('mail_tables'),
    unique_key=['mail_conn_id', 'event_day'],
) }}

-- An event of a past day may arrive late, and one may be erased: all rows of a day are written again when the number of
-- its events or the time of the last one that was loaded differs.
with events as (
    select
        mail_conn_id,
        {{ mail_utc_date('coalesce(triggered_time, received_at)') }} as event_day,
        event_code,
        coalesce(guid, '') as guid,
        unique_msg_id,
        mail_name,
        received_at,
        loaded_at
    from {{ ref('stg_mail_events') }}
)
{% if is_incremental() %}
, changed as (
    select mail_conn_id, event_day from events
    group by mail_conn_id, event_day
    except
    select mail_conn_id, event_day from (
        select mail_conn_id, event_day, count(*) as events, max(loaded_at) as loaded_at from events
        group by mail_conn_id, event_day
        intersect
        select mail_conn_id, event_day, cast(sum(events) as bigint), max(loaded_at) from {{ this }}
        group by mail_conn_id, event_day
    ) as unchanged
)
{% endif %}

select
    mail_conn_id,
    event_day,
    event_code,
    guid,
    max(mail_name) as mail_name,
    count(*) as events,
    count(distinct unique_msg_id) as mails,
    max(received_at) as last_received_at,
    max(loaded_at) as loaded_at
from events
{% if is_incremental() %}
where exists (
    select 1 from changed
    where changed.mail_conn_id = events.mail_conn_id and changed.event_day = events.event_day
)
{% endif %}
group by mail_conn_id, event_day, event_code, guid
