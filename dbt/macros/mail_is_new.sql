{# Whether a row may have been written since the last run of this incremental model.

   `timestamp`: when the row was last written. `newest`: the column of the model with the latest of these times. Loads may
   commit in another order than they began, so the last `mail_lookback_hours` are read again. #}
{% macro mail_is_new(timestamp, newest) %}
    {{ timestamp }} >= coalesce(
        (select {{ dbt.dateadd('hour', -var('mail_lookback_hours'), 'max(' ~ newest ~ ')') }} from {{ this }}),
        cast('1970-01-01' as {{ dbt.type_timestamp() }})
    )
{% endmacro %}
