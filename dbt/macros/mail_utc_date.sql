{# The day in UTC of a timestamp: Postgres stores it with a zone, DuckDB stores UTC. #}
{% macro mail_utc_date(timestamp) %}{{ return(adapter.dispatch('mail_utc_date', 'airflow_provider_mail')(timestamp)) }}{% endmacro %}

{% macro default__mail_utc_date(timestamp) %}cast({{ timestamp }} as date){% endmacro %}

{% macro postgres__mail_utc_date(timestamp) %}cast({{ timestamp }} at time zone 'UTC' as date){% endmacro %}
