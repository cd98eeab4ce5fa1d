"""What went wrong in a database, in words that hold no row values.

Drivers quote the offending value, whole rows or all parameters in their messages, and those end up in task logs. So a
driver's exception is never chained to ours, and its words are repeated only where they can speak of names alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_mail.api.errors import PicklableError

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

# Of DuckDB's kinds of errors those that speak of names, files and the statement.
_DUCKDB_SPEAKING = (
    "Binder",
    "Catalog",
    "Connection",
    "Dependency",
    "Invalid Configuration",
    "IO",
    "Not implemented",
    "Out of Memory",
    "Parser",
    "Permission",
)
_DUCKDB_SPEAKING_UP_TO_QUOTES = ("Constraint", "TransactionContext")  # then comes the key

# Of MySQL's and MariaDB's errors those that speak of names, privileges, limits and the server.
_MYSQL_SPEAKING = frozenset(
    (
        1020,
        1021,
        1030,
        1040,
        1044,
        1045,
        1046,
        1048,
        1049,
        1050,
        1054,
        1060,
        1071,
        1109,
        1114,
        1118,
        1142,
        1143,
        1146,
        1153,
        1205,
        1206,
        1213,
        1226,
        1227,
        1267,
        1273,
        1290,
        1317,
        1364,
        1370,
        1451,
        1452,
        1792,
        1836,
        1927,
        1969,
        2002,
        2003,
        2006,
        2013,
        2055,
        3024,
        3819,
        4025,
    )
)
_MYSQL_STATEMENT = frozenset((1064, 1065, 1149, 1242))  # these quote it
_MYSQL_PLACE = re.compile(r"for column (?:[`'].{1,200}[`']\.)?[`']?(\w+)[`']? at row (\d+)$")
_MYSQL_KEY = re.compile(r"for key '([^']+)'$")


class WarehouseError(PicklableError):
    """A table could not be read or loaded; nothing of the load is in the database. Holds no row values."""


class FallError(WarehouseError):
    """A load would have left far fewer rows than there were; nothing of it is in the database.

    :param before: rows that were there.
    :param after: rows that would have been left.
    """

    def __init__(self, text: str, *, before: int, after: int) -> None:
        super().__init__(text)
        self.before = before
        self.after = after


class UnstorableError(WarehouseError):
    """A row holds what the database cannot keep, or what cannot be true.

    :param row: its number in what was read, from 1.
    :param column: of the table.
    :param reason: without the value.
    """

    def __init__(self, message: str, *, row: int = 0, column: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.row = row
        self.column = column
        self.reason = reason

    @classmethod
    def of(cls, row: int, column: str, reason: str) -> UnstorableError:
        """The error that says so."""
        return cls(f"row {row}, column {column}: {reason}", row=row, column=column, reason=reason)


def words(error: BaseException, parameters: object = (), *, quotes_rows: bool = True) -> str:
    """Say what a driver's exception says, without the values of rows and parameters.

    :param parameters: of the statement, positional or by name; words of a driver that contain one of them are left out.
    :param quotes_rows: whether the statement carried rows; what an unknown driver says of such a one is left out whole.
    """
    kinds = [base.__name__ for base in type(error).__mro__]
    driver = type(error).__module__.partition(".")[0]
    if driver in ("MySQLdb", "mysql"):
        said = _mysql(error, quotes_rows)
    elif driver in ("duckdb", "_duckdb"):
        said = _duckdb(error)
    elif state := getattr(error, "sqlstate", None) or getattr(error, "pgcode", None):
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


_QUOTED = re.compile(r"""(?<!\w)(?:'[^']*'?|"[^"]*"?|`[^`]*`?)""")
_WORD = re.compile(r"[^\s<>\"'(),;:=]+")
_MOST_CHARACTERS = 300


def redacted_message(error: BaseException, values: Iterable[Any], names: Iterable[str]) -> str:
    """The same for a driver that we do not know: its words, without what may be a value.

    :param values: of the rows that the statement carried.
    :param names: of tables and columns, which may stay in quotes.
    """
    said = words(error)
    if said != type(error).__name__:
        return said
    message, allowed = _first_line(error), {name.lower() for name in names}
    for text in sorted(set(_texts(values)), key=len, reverse=True):
        message = message.replace(text, "***")
    message = _WORD.sub(lambda word: "***" if "@" in word[0][1:-1] else word[0], message)
    message = _QUOTED.sub(lambda found: found[0] if found[0][1:-1].lower() in allowed else "***", message)
    return ": ".join(filter(None, [said, message[:_MOST_CHARACTERS]]))


def connect_error_message(error: BaseException) -> str:
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


def _duckdb(error: BaseException) -> str:
    said = _first_line(error)
    kind = said.partition(" Error: ")[0]
    if kind in _DUCKDB_SPEAKING_UP_TO_QUOTES:
        return said.partition('"')[0].strip()
    return said if kind in _DUCKDB_SPEAKING else ""


def mysql_number(error: BaseException) -> int | None:
    """The number that MySQL or MariaDB gave an error, with both drivers."""
    number = getattr(error, "errno", None) or next(iter(error.args), None)
    return number if isinstance(number, int) else None


def _mysql(error: BaseException, quotes_rows: bool) -> str:
    number = mysql_number(error)
    said = str(getattr(error, "msg", None) or error.args[-1]) if error.args else ""
    if number in _MYSQL_SPEAKING or (number in _MYSQL_STATEMENT and not quotes_rows):
        return f"{said.splitlines()[0]} ({number})"
    if place := _MYSQL_PLACE.search(said):
        return f"column {place[1]} ({number})"
    key = _MYSQL_KEY.search(said)
    return f"{f'key {key[1]} ' if key else ''}({number})" if number else ""


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
