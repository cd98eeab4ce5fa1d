"""Arguments of imports and loads that belong together.

Each is checked when the DAG file is parsed, cannot be changed, and may be shared by tasks::

    REJECTS = Rejects(max_fraction=0.01, table="mail_rejects", keep_days=90)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from airflow_provider_mail._task.checks import ArgumentGroup
from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.rules import VALUES, choice

__all__ = ["Brakes", "ChangesOnly", "Consent", "FileFormat", "Rejects", "Suppress"]


@dataclass(frozen=True, kw_only=True)
class Rejects(ArgumentGroup):
    """How many rows or records may be rejected, and where they are kept with reasons: the argument ``rejects``.

    ::

        rejects=Rejects(max_fraction=0.01, table="mail_rejects", keep_days=90)

    What is kept contains personal data. Another try of the task replaces what the one before it has kept.

    :param max_fraction: the largest share of rejected rows, from 0 to 1, with which the task succeeds. All others are
        imported or stored in any case. Default: 0.
    :param path: a file for the rejected rows, as JSON Lines: a path or URL as Airflow's ``ObjectStoragePath`` takes it.
        Default: none. (templated)
    :param table: a table for the rejected rows; created when missing. Default: none. (templated)
    :param sql_conn_id: the connection to its database. Default: that of the query, or of the table that is loaded.
        (templated)
    :param keep_days: days after which rows of ``table``, of any task, are deleted; applied when a task stores rows, in
        the same transaction. Default: never.
    :raises ValueError: naming each argument that is wrong.
    """

    template_fields: ClassVar = ("path", "table", "sql_conn_id")

    max_fraction: float = 0.0
    path: Templated[str] | None = None
    table: Templated[str] | None = None
    sql_conn_id: Templated[str] | None = None
    keep_days: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_days is not None and not self.table:
            raise ValueError("Rejects: keep_days: is for the rows of table, and there is none")

    @property
    def places(self) -> dict[str, str]:
        """Where rejected rows are kept, by the name of the value in a task's result."""
        places = {"rejects_path": self.path, "rejects_table": self.table}
        return {name: str(place) for name, place in places.items() if place}


@dataclass(frozen=True, kw_only=True)
class Suppress(ArgumentGroup):
    """Whom an import leaves out: the argument ``suppress``.

    ::

        suppress=Suppress(events_table="mail_events", table="do_not_mail", sql_conn_id="warehouse")

    :param events_table: the table of events: it leaves out people who unsubscribed, complained, were dropped, or
        bounced three times since the last delivery, by the events of ``mail_conn_id``. Default: none. (templated)
    :param opted_in_sql: a query whose first column has addresses, and whose second one has the time at which the person
        last agreed to get mail: events before that time do not count. Default: none. (templated)
    :param table: a table whose column ``email`` has the addresses of people to leave out. Default: none. (templated)
    :param sql: a query whose first column has the addresses of people to leave out. Default: none. (templated)
    :param audiences: names of other audiences whose people to leave out, as ``airflow mail audience status`` shows
        them: DAG id and task id, such as ``weekly/customers``. So a person gets the first of several mails only. They
        are in ``audiences_table``. Default: none.
    :param audiences_table: the table of these audiences. Default: ``mail_audiences``. (templated)
    :param sql_conn_id: the connection to their database. Default: that of the source, if it is a query. (templated)
    :param once_per: a key such as ``summer-sale``: leave out people who have had a mail under it, counted as
        ``already``, and reserve it for the others; see docs/how-to/cap-a-campaign.md. It needs ``exact_audience`` and
        ``[mail] memory_conn_id``. At most 200 bytes. Default: the task and its run, with ``at_most``. (templated)
    :param at_most: ``(3, timedelta(days=7))``: leave out people who would get more than 3 mails in any 7 days, of all
        that the memory has; they are counted as ``capped``. Default: nobody is left out.
    :raises ValueError: naming each argument that is wrong.
    """

    template_fields: ClassVar = (
        "events_table", "opted_in_sql", "table", "sql", "audiences_table", "sql_conn_id", "once_per",
    )  # fmt: skip

    events_table: Templated[str] | None = None
    opted_in_sql: Templated[str] | None = None
    table: Templated[str] | None = None
    sql: Templated[str] | None = None
    audiences: Sequence[str] | None = None
    audiences_table: Templated[str] = "mail_audiences"
    sql_conn_id: Templated[str] | None = None
    once_per: Templated[str] | None = None
    at_most: tuple[int, timedelta] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.reads_tables and not self.needs_memory:
            raise ValueError(
                "Suppress: events_table, table, sql, audiences, once_per, at_most: give at least one of them"
            )
        if self.opted_in_sql and not self.events_table:
            raise ValueError("Suppress: opted_in_sql: is for the events of events_table, and there is none")

    @property
    def reads_tables(self) -> bool:
        return any((self.events_table, self.table, self.sql, self.audiences))

    @property
    def needs_memory(self) -> bool:
        return self.once_per is not None or self.at_most is not None


@dataclass(frozen=True, kw_only=True)
class ChangesOnly(ArgumentGroup):
    """Send only rows that are new or changed since the service accepted them: the argument ``changes_only``.

    ::

        changes_only=ChangesOnly(sql_conn_id="warehouse", full_every=timedelta(days=7))

    The addresses of the run before are encrypted in a state, in two tables of a database; the secret is ``[mail]
    audience_key``, or Airflow's Fernet key. A state that is missing, or another one's, or does not fit the lists at the
    service, is not used: everybody is sent, with a warning.

    :param sql_conn_id: the connection of the database for the state. Default: that of the source, if it is a query.
        (templated)
    :param table: the table of audiences; its members are in a table whose name ends with ``_members``. Both are created
        when missing. Default: ``mail_audiences``. (templated)
    :param full_every: the time after which everybody is sent again, to a new list: seconds or a timedelta. That repairs
        what others changed at the service. Default: never.
    :param on_removed: what to do about people whom the source no longer returns: ``exclude`` puts them on an exclusion
        list, which campaigns to ``audience`` use; ``ignore`` forgets them; ``delete_contact`` deletes their contacts
        permanently, unless they are in another audience in ``table``, and needs
        ``Brakes(max_removed_fraction=...)``. Default: ``exclude`` for an exact audience, else ``ignore``.
    :param log_table: a table in the database of the state for a row per run; the changes of each person are in a table
        whose name ends with ``_changes``. Both are created when missing. Default: none. (templated)
    :raises ValueError: naming each argument that is wrong.
    """

    template_fields: ClassVar = ("sql_conn_id", "table", "log_table")

    sql_conn_id: Templated[str] | None = None
    table: Templated[str] = "mail_audiences"
    full_every: float | timedelta | None = None
    on_removed: Literal["exclude", "ignore", "delete_contact"] | None = None
    log_table: Templated[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Brakes(ArgumentGroup):
    """What stops an import before its first request: the argument ``brakes``.

    ::

        brakes=Brakes(max_rows=500_000, max_removed_fraction=0.1)

    The task fails, unless the DAG run has the parameter ``pass_brakes``. An empty source removes nobody in any case.

    :param max_rows: the largest number of rows. Default: any.
    :param max_change_fraction: the largest share of the audience, before this run, that may join, change or leave;
        needs ``changes_only``. Default: any.
    :param max_removed_fraction: the largest share of the audience that may leave, from 0 to 1, with ``changes_only``;
        and of the people in the tables of ``suppress``, in the run before, whom it would no longer leave out. Default:
        a tenth, but more than ten people, or all of them.
    :raises ValueError: naming each argument that is wrong.
    """

    max_rows: int | None = None
    max_change_fraction: float | None = None
    max_removed_fraction: float | None = None


@dataclass(frozen=True, kw_only=True)
class Consent(ArgumentGroup):
    """Who wants mail, by a column of the source: the argument ``consent``, alone or in a list of which all must hold.

    ::

        consent=Consent(column="Email Opt Out", no=["1", "true"])

    People who said no are not imported; they are counted as ``opted_out`` and are no rejects. Values are compared as
    text, in small letters, without white space at their ends; a missing value is ``""``, and a boolean ``"true"`` or
    ``"false"``.

    :param column: its name in the source.
    :param yes: the values with which people are imported; all others mean no. Default: none, give ``no``.
    :param no: the values with which people are not imported; all others mean yes, but for other spellings of the same
        boolean: with ``1``, ``true`` and ``yes`` mean no as well. Default: none, give ``yes``.
    :raises ValueError: naming each argument that is wrong.
    """

    own_rules: ClassVar = {"yes": VALUES, "no": VALUES}

    column: str
    yes: Sequence[str | int | bool] | None = None
    no: Sequence[str | int | bool] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.yes is None) == (self.no is None):
            raise ValueError("Consent: yes, no: give one of them")


@dataclass(frozen=True, kw_only=True)
class FileFormat(ArgumentGroup):
    """How a file is read, where its name does not show it: the argument ``file_format``.

    ::

        file_format=FileFormat(delimiter=";", encoding="cp1252")

    :param name: ``csv``, ``jsonl`` or ``parquet`` (needs the extra ``parquet``). Default: by the extension of the name:
        ``.csv``, ``.tsv`` (tabs), ``.jsonl``, ``.ndjson``, ``.parquet``. (templated)
    :param compression: ``gzip``, ``bz2``, ``xz``, ``zstd`` or ``none``. Default: by a further extension of the name:
        ``.gz``, ``.bz2``, ``.xz``, ``.zst``. (templated)
    :param encoding: the encoding of CSV and JSON Lines. Default: ``utf-8``. (templated)
    :param delimiter: the character between the values of CSV. Default: a comma, or a tab if the extension is ``.tsv``.
        (templated)
    :param escape: the character in CSV that makes the next one a part of the value: a backslash for ``\\"``, as Spark
        and ``UNLOAD`` write it. Default: none, a quotation mark in a value is doubled. (templated)
    :param column_names: the names of the values of a CSV file that has no header. Default: those of the header.
        (templated)
    :raises ValueError: naming each argument that is wrong.
    """

    template_fields: ClassVar = ("name", "compression", "encoding", "delimiter", "escape", "column_names")
    own_rules: ClassVar = {"name": choice("csv", "jsonl", "parquet")}

    name: Templated[Literal["csv", "jsonl", "parquet"]] | None = None
    compression: Templated[Literal["gzip", "bz2", "xz", "zstd", "none"]] | None = None
    encoding: Templated[str] = "utf-8"
    delimiter: Templated[str] | None = None
    escape: Templated[str] | None = None
    column_names: Templated[Sequence[Templated[str]]] | None = None
