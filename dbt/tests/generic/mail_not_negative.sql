{# No count is negative. #}
{% test mail_not_negative(model, columns) %}
select *
from {{ model }}
where {% for column in columns %}{{ 'or ' if not loop.first }}{{ column }} < 0
    {% endfor %}
{% endtest %}
