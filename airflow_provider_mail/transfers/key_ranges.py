"""Splits a query by ranges of a key, for tasks that are mapped over them (``.expand_kwargs``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_provider_mail._task.checks import checked
from airflow_provider_mail._task.rules import TEXT, Rule, number
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

__all__ = ["key_ranges"]

MAX_RANGES = 1000
"""Airflow's ``[core] max_map_length`` is 1,024."""


def _parameters(name: str, value: Any) -> str | None:
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return None if is_list else "must be a list, since those of the ranges are appended"


@checked(AirflowFailException, ranges=number(1, MAX_RANGES, whole=True), parameters=Rule(_parameters), key=TEXT)
def key_ranges(
    *, sql_conn_id: str, sql: str, key: str, ranges: int, parameters: Sequence[Any] | None = None
) -> list[dict[str, Any]]:
    """Split a query into ranges of a key with about equal numbers of rows; every row is in exactly one.

    Two queries determine the limits: one counts the keys, the other selects the keys at the limits with a window
    function, which every current database supports; the database sorts the keys or reads them from an index. The first
    range has no lower limit and the last one no upper limit, so rows that are inserted later are also in a range. Rows
    without a key are in the first range. Rows with the same key are in the same range, so there may be fewer ranges
    than requested.

    Call it in a task, since it queries the database: ``task(key_ranges)(sql_conn_id="crm", ...)``. The limits are keys
    and are stored in XCom, so the key should be a number or a date, and must not be an address.

    :param sql_conn_id: the connection of the database.
    :param sql: the query, whose result has the key. Double each ``%`` in it if the driver marks parameters with it.
    :param key: a column of the result that can be ordered: its name, quoted if the database needs it.
    :param ranges: the number of ranges, up to 1,000.
    :param parameters: parameters of the query, by position. Default: none.
    :return: for each range ``{"sql": ..., "parameters": [...]}``, arguments of ``SqlToMailContactsOperator``.
    :raises AirflowFailException: naming the invalid argument.
    :raises WarehouseError: when the query fails.
    """
    from airflow_provider_mail._task.storage import sql_hook

    hook = sql_hook(sql_conn_id)
    # On separate lines, since the query may end with a comment.
    query = f"(\n{sql.strip().rstrip(';')}\n)"
    query_parameters, placeholder = list(parameters or ()), hook.placeholder
    low, high = f"{key} >= {placeholder}", f"{key} < {placeholder}"
    limits = _limits(hook, query, key, ranges, query_parameters)
    conditions: list[tuple[str, list[Any]]] = [(f"{low} AND {high}", [first, end]) for first, end in pairwise(limits)]
    if limits:
        conditions = [(f"{high} OR {key} IS NULL", limits[:1]), *conditions, (low, limits[-1:])]
    else:
        # A single range is the whole query, regardless of keys. It has a parameter, so that drivers parse it like the
        # others.
        conditions = [(f"1 = {placeholder}", [1])]
    return [
        {"sql": f"SELECT * FROM {query} keyed WHERE {condition}", "parameters": [*query_parameters, *values]}
        for condition, values in conditions
    ]


def _limits(hook: DbApiHook, query: str, key: str, ranges: int, query_parameters: list[Any]) -> list[Any]:
    """Return the first key of each range except the first one."""
    from airflow_provider_mail.warehouse.database import stream_rows

    placeholder = hook.placeholder
    # With a parameter here, too, so that drivers parse the query as in the ranges.
    keyed = f"FROM {query} keyed WHERE {key} IS NOT NULL AND 1 = {placeholder}"
    with stream_rows(hook, f"SELECT COUNT(*) {keyed}", [*query_parameters, 1]) as (_, batches):
        ((total,),) = next(batches)
    positions = sorted({number * total // ranges + 1 for number in range(ranges)})
    numbered = f"SELECT {key} AS first_key, ROW_NUMBER() OVER (ORDER BY {key}) AS place {keyed}"
    placeholders = ", ".join([placeholder] * len(positions))
    statement = f"SELECT first_key FROM ({numbered}) numbered WHERE place IN ({placeholders}) ORDER BY place"
    with stream_rows(hook, statement, [*query_parameters, 1, *positions]) as (_, batches):
        first_keys = [_plain(first) for batch in batches for (first,) in batch]
    # In the database's order, each once. Keys that are equal to the database may differ here (in case): then a range is
    # empty, but no row is missing.
    return [limit for limit in dict.fromkeys(first_keys) if limit != first_keys[0]]


def _plain(limit: Any) -> Any:
    if isinstance(limit, UUID):
        return str(limit)
    if not isinstance(limit, int | float | str | Decimal | date):
        raise AirflowFailException(f"key: is of type {type(limit).__name__}; use one that is a number, a date or text")
    if limit != limit or limit in (float("inf"), float("-inf")):
        raise AirflowFailException("key: is NaN or infinite in some row; use another one, or filter these rows")
    if isinstance(limit, str) and "@" in limit:
        raise AirflowFailException(
            "key: holds addresses, which must not be stored in XCom; use one that is a number or a date"
        )
    return limit
