"""What went wrong in a database, in words that hold no row values.

Drivers quote the offending value, whole rows or all parameters in their messages, and those end up in task logs. So a
driver's exception is never chained to ours, and its words are repeated only where they can speak of names alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# Classes of SQLSTATE whose messages name tables, columns, roles and limits, or quote the statement, into which nothing
# of ours puts a value. Not among them: 22 (data), 23 (constraints) and P0 (raised by triggers), which quote rows.
_SPEAKING_STATES = ("08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58")
_COPY_PLACE = re.compile(r", line (\d+)(?:, column (\w+))?")

_SQLITE_SPEAKING = re.compile(
    r"no such |near \"|ambiguous column|unrecognized token|incomplete input|unknown database|table \S+ |view \S+ |"
    r"ON CONFLICT clause|duplicate column|cannot (modify|add|start)|too many|index \S+ "
)
_SQLITE_SPEAKING_CODES = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_CONSTRAINT_CHECK",
    "SQLITE_CONSTRAINT_DATATYPE",
    "SQLITE_CONSTRAINT_FOREIGNKEY",
    "SQLITE_CONSTRAINT_NOTNULL",
    "SQLITE_CONSTRAINT_PRIMARYKEY",
    "SQLITE_CONSTRAINT_UNIQUE",
    "SQLITE_CORRUPT",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_LOCKED",
    "SQLITE_NOTADB",
    "SQLITE_READONLY",
)


class WarehouseError(Exception):
    """A table could not be read or loaded; nothing of the load is in the database. Holds no row values."""


def words(error: BaseException, parameters: object = (), *, quotes_rows: bool = True) -> str:
    """Say what a driver's exception says, without the values of rows and parameters.

    :param parameters: of the statement, positional or by name; words of a driver that contain one of them are left out.
    :param quotes_rows: whether the statement carried rows; what an unknown driver says of such a one is left out whole.
    """
    kinds = [base.__name__ for base in type(error).__mro__]
    if state := getattr(error, "sqlstate", None) or getattr(error, "pgcode", None):
        said = _postgres(error, state)
    elif hasattr(error, "sqlite_errorname"):
        said = _sqlite(error)
    elif not quotes_rows and ("ProgrammingError" in kinds or "OperationalError" in kinds):
        said = _first_line(error)  # PEP 249's errors about statements and the server, not about data
    elif hasattr(error, "diag") and "OperationalError" in kinds:
        said = _first_line(error)  # Postgres is gone
    else:
        said = ""
    if any(value in said for value in _texts(parameters)):
        said = ""
    return ": ".join(filter(None, [type(error).__name__, said]))


def connect_words(error: BaseException) -> str:
    """Say why there is no connection: no row has been seen yet, so the driver's own words will do."""
    return ": ".join(filter(None, [type(error).__name__, _first_line(error)]))


def _postgres(error: Any, state: str) -> str:
    if not hasattr(error, "diag"):  # another database with such an attribute
        return f"({state})"
    if state.startswith(_SPEAKING_STATES):
        return f"{error.diag.message_primary} ({state})"
    place = _COPY_PLACE.search(error.diag.context or "")
    row, copied = place.groups() if place else (None, None)
    parts = {"row": row, "column": error.diag.column_name or copied, "constraint": error.diag.constraint_name}
    return ", ".join(f"{what} {name}" for what, name in parts.items() if name) + f" ({state})"


def _sqlite(error: Any) -> str:
    name, said = str(error.sqlite_errorname), str(error)
    if name.startswith(_SQLITE_SPEAKING_CODES) or _SQLITE_SPEAKING.match(said):
        return said
    return name


def _first_line(error: BaseException) -> str:
    # The rest is detail: SQLAlchemy's "[parameters: ...]", Postgres' DETAIL with the row.
    return next(iter(str(error).strip().splitlines()), "").strip()


def _texts(parameters: object) -> Iterable[str]:
    values: Iterable[object] = ()
    if isinstance(parameters, Mapping):
        values = parameters.values()
    elif isinstance(parameters, Iterable) and not isinstance(parameters, str):
        values = parameters
    # Shorter ones are no secret, and occur in every second name.
    return (text for text in map(str, values) if len(text) > 3)
