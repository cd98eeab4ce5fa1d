"""Parts of a query by ranges of a key, for tasks that are mapped over them (``.expand_kwargs``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

MOST_RANGES = 1000
"""Airflow's ``[core] max_map_length`` is 1,024."""


def key_ranges(
    *, sql_conn_id: str, sql: str, key: str, ranges: int, parameters: Sequence[Any] | None = None
) -> list[dict[str, Any]]:
    """Cut a query into ranges of a key, even in rows; together they are the whole query, and no row is in two.

    Two queries find the limits: how many keys there are, and those at the limits' places, by a window function that
    every current database has; the database sorts the keys, or reads them from an index. The first range has no lower
    limit and the last no upper one, so rows that come later are in one, too. Rows without a key are in the first. Rows
    with the same key are in the same range, so there may be fewer ranges than asked for.

    To be called in a task, since it asks the database: ``task(key_ranges)(sql_conn_id="crm", ...)``. The limits are
    keys and lie in XCom, so the key should be a number or a date, and cannot be an address.

    :param sql_conn_id: the database's connection.
    :param sql: the query. Its result has the key, and ``%`` is doubled in it where the driver marks parameters with it.
    :param key: a column of the result that can be ordered: a name, quoted if the database wants it.
    :param ranges: how many, up to 1,000.
    :param parameters: of the query, by position.
    :returns: for each range ``{"sql": ..., "parameters": [...]}``, arguments of ``SqlToMailContactsOperator``.
    :raises AirflowFailException: naming the argument that is wrong.
    :raises WarehouseError: when the query fails.
    """
    from itertools import pairwise

    from airflow_provider_mail._task.sql import sql_hook
    from airflow_provider_mail.version_compat import AirflowFailException

    if type(ranges) is not int or not 1 <= ranges <= MOST_RANGES:
        raise AirflowFailException(f"ranges: {ranges!r} is not from 1 to {MOST_RANGES}")
    if isinstance(parameters, str) or not isinstance(parameters, Sequence | None):
        raise AirflowFailException("parameters: a list is needed, since those of the ranges are put behind them")
    hook = sql_hook(sql_conn_id)
    # On lines of its own, since the query may end in a comment.
    query = f"(\n{sql.strip().rstrip(';')}\n)"
    given, mark = list(parameters or ()), hook.placeholder
    low, high = f"{key} >= {mark}", f"{key} < {mark}"
    limits = _limits(hook, query, key, ranges, given)
    conditions: list[tuple[str, list[Any]]] = [(f"{low} AND {high}", [first, end]) for first, end in pairwise(limits)]
    if limits:
        conditions = [(f"{high} OR {key} IS NULL", limits[:1]), *conditions, (low, limits[-1:])]
    else:
        # One range is the whole query, whatever its keys; a parameter, so that it is read as the others are.
        conditions = [(f"1 = {mark}", [1])]
    return [
        {"sql": f"SELECT * FROM {query} keyed WHERE {condition}", "parameters": [*given, *values]}
        for condition, values in conditions
    ]


def _limits(hook: DbApiHook, query: str, key: str, ranges: int, given: list[Any]) -> list[Any]:
    """The first key of each range but the first."""
    from airflow_provider_mail.warehouse.read import stream_rows

    mark = hook.placeholder
    # With a parameter also here, so that the query's own are read as in the ranges.
    keyed = f"FROM {query} keyed WHERE {key} IS NOT NULL AND 1 = {mark}"
    with stream_rows(hook, f"SELECT COUNT(*) {keyed}", [*given, 1]) as (_, batches):
        ((total,),) = next(batches)
    places = sorted({number * total // ranges + 1 for number in range(ranges)})
    numbered = f"SELECT {key} AS first_key, ROW_NUMBER() OVER (ORDER BY {key}) AS place {keyed}"
    wanted = ", ".join([mark] * len(places))
    statement = f"SELECT first_key FROM ({numbered}) numbered WHERE place IN ({wanted}) ORDER BY place"
    with stream_rows(hook, statement, [*given, 1, *places]) as (_, batches):
        found = [_plain(first) for batch in batches for (first,) in batch]
    # In the database's order, and each once: what it holds for equal may look different (upper and lower case), which
    # leaves a range empty and nothing out.
    return [limit for limit in dict.fromkeys(found) if limit != found[0]]


def _plain(limit: Any) -> Any:
    """A key as it can lie in XCom."""
    from datetime import date
    from decimal import Decimal
    from uuid import UUID

    from airflow_provider_mail.version_compat import AirflowFailException

    if isinstance(limit, UUID):
        return str(limit)
    if not isinstance(limit, int | float | str | Decimal | date):
        raise AirflowFailException(f"key: of type {type(limit).__name__}: take one that is a number, a date or text")
    if limit != limit or limit in (float("inf"), float("-inf")):
        raise AirflowFailException("key: is NaN or infinite in some row: take another one, or leave these rows out")
    if isinstance(limit, str) and "@" in limit:
        raise AirflowFailException("key: holds addresses, which would lie in XCom: take one that is a number or a date")
    return limit
