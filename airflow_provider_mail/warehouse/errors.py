"""Errors of reading and loading tables, with messages that hold no row values.

Database drivers quote the offending value, whole rows or all parameters in their messages, and those messages end up in
task logs. A driver's exception is therefore never chained to one of these errors, and its message is repeated only
where it can name nothing but tables, columns, roles and limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from airflow_provider_mail.api.errors import PicklableError

# Classes of SQLSTATE whose messages name tables, columns, roles and limits, or quote the statement, which holds no
# values. Not among them: 22 (data), 23 (constraints) and P0 (raised by triggers), which quote rows.
_SAFE_SQLSTATES = ("08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58")
_COPY_POSITION = re.compile(r", line (\d+)(?:, column (\w+))?")

_SQLITE_SAFE_MESSAGES = re.compile(
    r"no such |near \"|ambiguous column|unrecognized token|incomplete input|unknown database|table \S+ |view \S+ |"
    r"ON CONFLICT clause|duplicate column|cannot (modify|add|start)|too many|index \S+ "
)
_SQLITE_UNDECODABLE = re.compile(r"Could not decode to UTF-8 column '\w+'")
_SQLITE_SAFE_CODES = re.compile(
    r"SQLITE_(BUSY|CANTOPEN|CONSTRAINT_(CHECK|DATATYPE|FOREIGNKEY|NOTNULL|PRIMARYKEY|UNIQUE)|CORRUPT|FULL|IOERR|LOCKED|"
    r"NOTADB|READONLY)"
)

# DuckDB's error types whose messages hold names, files and the statement.
_DUCKDB_SAFE = (
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
_DUCKDB_SAFE_UP_TO_QUOTES = ("Constraint", "TransactionContext")  # a key or a value follows in quotes

# Errors of the MySQL server whose messages hold names, privileges and limits, by the drivers' constants.
_MYSQL_SAFE = (
    "ACCESS_DENIED_ERROR BAD_DB_ERROR BAD_FIELD_ERROR BAD_NULL_ERROR CANT_AGGREGATE_2COLLATIONS "
    "CANT_EXECUTE_IN_READ_ONLY_TRANSACTION CHECKREAD COLUMNACCESS_DENIED_ERROR CON_COUNT_ERROR DBACCESS_DENIED_ERROR "
    "DUP_FIELDNAME GET_ERRNO LOCK_DEADLOCK LOCK_TABLE_FULL LOCK_WAIT_TIMEOUT NET_PACKET_TOO_LARGE NO_DB_ERROR "
    "NO_DEFAULT_FOR_FIELD NO_REFERENCED_ROW_2 NO_SUCH_TABLE OPTION_PREVENTS_STATEMENT PROCACCESS_DENIED_ERROR "
    "QUERY_INTERRUPTED READ_ONLY_MODE RECORD_FILE_FULL ROW_IS_REFERENCED_2 SPECIFIC_ACCESS_DENIED_ERROR "
    "TABLEACCESS_DENIED_ERROR TABLE_EXISTS_ERROR TOO_BIG_ROWSIZE TOO_LONG_KEY UNKNOWN_COLLATION UNKNOWN_TABLE "
    "USER_LIMIT_REACHED"
)
# Not named by both drivers: disk full; MariaDB's connection killed, statement timeout and failed constraint; MySQL 8's
# query timeout and violated check constraint.
_MYSQL_SAFE_NUMBERS = frozenset((1021, 1927, 1969, 4025, 3024, 3819))
_MYSQL_CLIENT_ERRORS = range(2000, 3000)  # the connection's; no row is involved
_MYSQL_QUOTES_STATEMENT = "PARSE_ERROR EMPTY_QUERY SYNTAX_ERROR SUBQUERY_NO_1_ROW"
MYSQL_CONFLICTS = (1205, 1213, 1020)
"""Lock wait timeout, deadlock, and MariaDB's "record has changed since last read"."""
_MYSQL_POSITION = re.compile(r"for column (?:[`'].{1,200}[`']\.)?[`']?(\w+)[`']? at row (\d+)$")
_MYSQL_KEY = re.compile(r"for key '([^']+)'$")

_KNOWN_DRIVERS = ("MySQLdb", "mysql", "duckdb", "_duckdb", "sqlite3", "psycopg", "psycopg2")
_STATEMENT_DRIVERS = ("MySQLdb", "mysql", "sqlite3", "psycopg", "psycopg2")
"""Drivers whose errors about statements quote no values."""
_SAYS_SOMETHING = re.compile(r"(?<![(\w])[A-Za-z]{3,}(?!\w)")
"""A word, in a message that may be nothing but a code."""
_OF_STATEMENTS = ("InterfaceError", "ProgrammingError")
"""PEP 249's errors about the use of the driver and statements, not about data."""
_ADVICE = {
    "21000": "look at the unique indexes and the triggers of the table: one takes two rows for one, or returns several "
    "rows where one is expected",
    "23514": "look at the CHECK constraints, the partitions and the triggers of the table, and at the log of the "
    "database, which quotes the row: one of them does not accept it",
}
_OTHER_ADVICE = (
    "look at the constraints, triggers, generated columns and further indexes of the table, and at the log of the "
    "database: a value is not accepted, and the database's own words are left out, since they may quote rows"
)
_READ_ADVICE = (
    "run the statement in a client of the database, which shows the reason: it is left out here, since it may quote "
    "values"
)


class WarehouseError(PicklableError):
    """A table could not be read or loaded; nothing of the load was committed. Holds no row values."""


class UnconfirmedError(WarehouseError):
    """A load would have removed all, or too many, of the rows without a permission; nothing of it was committed."""

    def __init__(self, text: str, *, before: int, after: int) -> None:
        super().__init__(text)
        self.before = before
        self.after = after


class UnstorableError(WarehouseError):
    """A row holds a value that the database cannot store, or that cannot be true.

    :param row: number of the row in the source, from 1.
    :param reason: what is wrong, without the value.
    """

    def __init__(self, message: str, *, row: int = 0, column: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.row = row
        self.column = column
        self.reason = reason

    @classmethod
    def of(cls, row: int, column: str, reason: str) -> UnstorableError:
        return cls(f"row {row}, column {column}: {reason}", row=row, column=column, reason=reason)


def safe_message(error: BaseException, parameters: object = (), *, quotes_rows: bool = True) -> str:
    """Describe a driver's exception without values of rows or parameters.

    :param parameters: parameters of the statement, positional or by name; they are replaced in the message.
    :param quotes_rows: whether the statement carried rows. If so, the message of an unknown driver is left out.
    :return: the exception's type, followed by its message where that is safe.
    """
    types = [base.__name__ for base in type(error).__mro__]
    driver = type(error).__module__.partition(".")[0]
    if driver in _STATEMENT_DRIVERS and "ProgrammingError" in types and not sqlstate(error) and not _has_code(error):
        message = _first_line(error)  # raised by the driver, about the statement and the number of its parameters
    elif driver in ("MySQLdb", "mysql"):
        message = _mysql(error, driver, quotes_rows)
    elif driver in ("duckdb", "_duckdb"):
        message = _duckdb(error)
    elif state := sqlstate(error):
        message = _postgres(error, state)
    elif driver == "sqlite3":
        message = _sqlite(error)
    elif not quotes_rows and ("ProgrammingError" in types or "OperationalError" in types):
        message = _first_line(error)  # PEP 249's errors about statements and the server, not about data
    elif hasattr(error, "diag") and "OperationalError" in types:
        message = _first_line(error)  # the connection to Postgres is lost
    else:
        message = ""
    for value in sorted(_texts(parameters), key=len, reverse=True):
        message = message.replace(value, "***")
    if driver in _KNOWN_DRIVERS and not _SAYS_SOMETHING.search(message):
        advice = _ADVICE.get(str(sqlstate(error)))
        if not advice and type(error).__name__ not in _OF_STATEMENTS:
            advice = _OTHER_ADVICE if quotes_rows else _READ_ADVICE
        message = " ".join(filter(None, [advice, message.strip()]))
    return ": ".join(filter(None, [type(error).__name__, message]))


def _has_code(error: BaseException) -> bool:
    """Return whether the database itself has reported the error, with a number or a name of its own."""
    number = mysql_number(error)
    return bool(getattr(error, "sqlite_errorname", None) or (number and number > 0))


def is_client_side(error: BaseException) -> bool:
    """Return whether the driver could not convert a value that it received; the database reports no error then."""
    if sqlstate(error) or getattr(error, "sqlite_errorname", None):
        return False
    if isinstance(error, ArithmeticError | TypeError | ValueError):
        return True
    types = [base.__name__ for base in type(error).__mro__]
    return "DataError" in types or bool(_SQLITE_UNDECODABLE.match(str(error)))


def connect_error_message(error: BaseException) -> str:
    return ": ".join(filter(None, [type(error).__name__, _first_line(error)]))


def sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def mysql_number(error: BaseException) -> int | None:
    number = getattr(error, "errno", None) or next(iter(error.args), None)
    return number if isinstance(number, int) else None


def _postgres(error: Any, state: str) -> str:
    if not hasattr(error, "diag"):  # another database with such an attribute
        return f"({state})"
    if state.startswith(_SAFE_SQLSTATES):
        return f"{error.diag.message_primary} ({state})"
    position = _COPY_POSITION.search(error.diag.context or "")
    row, copied = position.groups() if position else (None, None)
    parts = {"row": row, "column": error.diag.column_name or copied, "constraint": error.diag.constraint_name}
    return ", ".join(f"{label} {name}" for label, name in parts.items() if name) + f" ({state})"


def _sqlite(error: Any) -> str:
    message = str(error)
    if undecodable := _SQLITE_UNDECODABLE.match(message):
        return undecodable[0]  # the text follows
    # Errors of the driver itself have no code.
    code = str(getattr(error, "sqlite_errorname", ""))
    return message if _SQLITE_SAFE_CODES.match(code) or _SQLITE_SAFE_MESSAGES.match(message) else code


def _duckdb(error: BaseException) -> str:
    message = _first_line(error)
    error_type = message.partition(" Error: ")[0]
    if error_type in ("INTERNAL", "FATAL"):
        return "internal error of DuckDB: restart the process if it persists, and upgrade DuckDB"
    if error_type in _DUCKDB_SAFE_UP_TO_QUOTES:
        return re.split("['\"]", message, maxsplit=1)[0].strip()
    is_about_parameters = error_type == "Invalid Input" and "Values were not provided for the following" in message
    return message if error_type in _DUCKDB_SAFE or is_about_parameters else ""


def _mysql(error: BaseException, driver: str, quotes_rows: bool) -> str:
    number = mysql_number(error)
    message = str(getattr(error, "msg", None) or error.args[-1]) if error.args else ""
    if (
        number in _MYSQL_CLIENT_ERRORS
        or number in _MYSQL_SAFE_NUMBERS
        or number in _mysql_numbers(driver, _MYSQL_SAFE)
        or (not quotes_rows and number in _mysql_numbers(driver, _MYSQL_QUOTES_STATEMENT))
    ):
        return f"{message.partition(chr(10))[0].strip()} ({number})"
    if position := _MYSQL_POSITION.search(message):
        return f"column {position[1]} ({number})"
    if not number:
        return ""
    key = _MYSQL_KEY.search(message)
    return f"key {key[1]} ({number})" if key else f"({number})"


@cache
def _mysql_numbers(driver: str, names: str) -> frozenset[int]:
    module, prefix = ("MySQLdb.constants.ER", "") if driver == "MySQLdb" else ("mysql.connector.errorcode", "ER_")
    constants = import_module(module)
    return frozenset(vars(constants)[prefix + name] for name in names.split() if prefix + name in vars(constants))


def _first_line(error: BaseException) -> str:
    # The other lines hold details: SQLAlchemy's "[parameters: ...]", Postgres' DETAIL with the row.
    return next(iter(str(error).strip().splitlines()), "").strip()


def _texts(parameters: object) -> Iterable[str]:
    values: Iterable[object] = ()
    if isinstance(parameters, Mapping):
        values = parameters.values()
    elif isinstance(parameters, Iterable) and not isinstance(parameters, str):
        values = parameters
    # Shorter ones are not secret, and occur in many names.
    return (text for text in map(str, values) if len(text) > 3)
