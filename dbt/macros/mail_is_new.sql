{# Whether a row is not in this incremental model yet as it was last written.

   A row is new unless the model has one of the same key and the same time of writing. So no clock hides a row: neither
   that of another account, nor one that was ahead once, nor a load that commits after a later one.

   `row`: alias of the row, which has `loaded_at`. `key`: the columns that identify it in both. #}
{% macro mail_is_new(row, key) %}
    not exists (
        select 1
        from {{ this }} as written
        where written.loaded_at = {{ row }}.loaded_at
            {% for column in key %}and written.{{ column }} = {{ row }}.{{ column }}
            {% endfor %}
    )
{% endmacro %}
