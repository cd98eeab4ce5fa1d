"""Lineage of tasks for OpenLineage (extra ``openlineage``); without that provider, nothing is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_mail.warehouse.table import Table

__all__ = ["Folder", "MailData", "MailLineage", "SqlQuery", "SqlTable"]


class Place(NamedTuple):
    """The location of a dataset, by the naming conventions of OpenLineage and of asset URIs."""

    namespace: str
    parts: tuple[str, ...]
    separator: str = "."

    @property
    def name(self) -> str:
        return self.separator.join(self.parts)

    @property
    def uri(self) -> str:
        return "/".join([self.namespace, *(quote(part, safe="") for part in self.parts)])


class MailData(NamedTuple):
    """A dataset of the service."""

    mail_conn_id: str
    resource: str

    def place(self) -> Place:
        """The location by the naming of :mod:`airflow_provider_mail.assets`."""
        return Place(f"mail://{self.mail_conn_id}", tuple(self.resource.split("/")), "/")


class SqlTable(NamedTuple):
    """A table of a database."""

    hook: DbApiHook
    table: str

    def place(self) -> Place:
        """The location by the naming of the database's provider; without one, by the address of the connection."""
        from airflow_provider_mail.warehouse.database import kind_of
        from airflow_provider_mail.warehouse.table import TableName

        database_type = kind_of(self.hook)
        names = tuple(part.text if part.quoted else part.text.lower() for part in TableName.parse(self.table).parts)
        connection = self.hook.get_connection(self.hook.get_conn_id())
        return _PLACES.get(database_type, _other)(self.hook, connection, names, database_type)


class SqlQuery(NamedTuple):
    """The tables that a query reads, as far as OpenLineage's parser understands it."""

    hook: DbApiHook
    sql: str

    def places(self) -> list[Place]:
        """The locations of the tables, by the naming of the database's provider."""
        from openlineage.common.sql import parse

        parsed = parse([self.sql], dialect=self.hook.conn_type)
        return [SqlTable(self.hook, table.qualified_name).place() for table in parsed.in_tables] if parsed else []


class Folder(NamedTuple):
    """A folder of files."""

    path: ObjectStoragePath

    def place(self) -> Place:
        """``s3://bucket`` and the key; for local files, the namespace ``file`` and their absolute path."""
        if self.path.protocol in ("", "file", "local"):
            return Place("file", (self.path.path,), "/")
        bucket = self.path.bucket.rpartition("@")[2]  # On Airflow 3.0, the bucket contains the connection id.
        return Place(f"{self.path.protocol}://{bucket}", (self.path.key.strip("/"),), "/")


Data: TypeAlias = MailData | SqlTable | SqlQuery | Folder
"""A dataset that was read or written. Its ``place`` may query the database: call it only when lineage is reported."""


class _Move(NamedTuple):
    source: Data | None
    target: MailData | SqlTable | Folder
    table: Table | None
    rows: int | None
    size: int | None
    files: int | None


class MailLineage:
    """Mixin for operators that reports the transfers recorded with :meth:`moved` as datasets with row counts."""

    mail_conn_id: str
    _moves: tuple[_Move, ...] = ()

    def moved(
        self,
        source: Data | str | None,
        target: MailData | SqlTable | Folder | str,
        *,
        rows: int | None = None,
        table: Table | None = None,
        size: int | None = None,
        files: int | None = None,
    ) -> None:
        """Record a transfer of rows, and count those of a table or folder in the metrics.

        Locations are looked up only when lineage is reported.

        :param source: the source; text is a resource of the task's own account, such as ``campaigns/stats``; ``None``
            if it has no name.
        :param target: the target, in the same forms.
        :param rows: their number. Default: not reported.
        :param table: the declared table whose columns the target has. Default: not reported.
        """
        from airflow_provider_mail._metrics import RECORDS_LOADED, emit, task_tags

        source = MailData(self.mail_conn_id, source) if isinstance(source, str) else source
        target = MailData(self.mail_conn_id, target) if isinstance(target, str) else target
        if rows is not None and not isinstance(target, MailData) and all(m.target != target for m in self._moves):
            emit({RECORDS_LOADED: rows}, task_tags(self))
        self._moves = (*self._moves, _Move(source, target, table, rows, size, files))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return the datasets; called by the OpenLineage provider. Without any, it uses inlets and outlets."""
        from airflow.providers.common.compat.openlineage.facet import (
            InputDataset,
            OutputDataset,
            OutputStatisticsOutputDatasetFacet,
        )
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet

        inputs, outputs = {}, {}
        for move in self._moves:
            read: dict[str, Any] = {}
            written: dict[str, Any] = {}
            if move.rows is not None:
                written["outputStatistics"] = OutputStatisticsOutputDatasetFacet(
                    rowCount=move.rows, size=move.size, fileCount=move.files
                )
                if not isinstance(move.source, SqlQuery):  # Its rows are those of no table.
                    read["inputStatistics"] = InputStatisticsInputDatasetFacet(rowCount=move.rows)
            for place in _sources(move):
                inputs[place] = InputDataset(place.namespace, place.name, inputFacets=read)
            target = move.target.place()
            outputs[target] = OutputDataset(target.namespace, target.name, facets=_columns(move), outputFacets=written)
        return OperatorLineage(inputs=list(inputs.values()), outputs=list(outputs.values()))


def _sources(move: _Move) -> list[Place]:
    if move.source is None:
        return []
    return move.source.places() if isinstance(move.source, SqlQuery) else [move.source.place()]


def _columns(move: _Move) -> dict[str, Any]:
    from airflow.providers.common.compat.openlineage.facet import (
        DocumentationDatasetFacet,
        SchemaDatasetFacet,
        SchemaDatasetFacetFields,
    )

    if move.table is None:
        return {}
    fields = [
        SchemaDatasetFacetFields(name=column.name, type=column.type.name, description=column.comment)
        for column in move.table.stored_columns
    ]
    return {
        "schema": SchemaDatasetFacet(fields=fields),
        "documentation": DocumentationDatasetFacet(description=move.table.comment),
    }


def _address(connection: Any, default_port: int | None = None) -> str:
    # A path is the folder of a Unix socket.
    host = connection.host if connection.host and not connection.host.startswith("/") else "localhost"
    port = connection.port or default_port
    return f"{host}:{port}" if port else str(host)


def _postgres(hook: DbApiHook, connection: Any, names: tuple[str, ...], database_type: str) -> Place:
    if len(names) < 2:
        names = (hook.get_openlineage_default_schema() or "public", *names)
    catalog = getattr(hook, "database", None) or connection.schema or ""
    return Place(f"postgres://{_address(connection, 5432)}", (catalog, *names[-2:]))


def _mysql(hook: DbApiHook, connection: Any, names: tuple[str, ...], database_type: str) -> Place:
    if len(names) < 2:
        names = (connection.schema or "", *names)
    return Place(f"mysql://{_address(connection, 3306)}", names[-2:])


def _file(hook: DbApiHook, connection: Any, names: tuple[str, ...], database_type: str) -> Place:
    file = str(connection.host or connection.schema or ":memory:").lstrip("/")
    # With a host: Python versions differ in how they join the parts of "sqlite:///".
    return Place(f"{database_type}://localhost/{file}", names)


def _other(hook: DbApiHook, connection: Any, names: tuple[str, ...], database_type: str) -> Place:
    try:
        info = hook.get_openlineage_database_info(connection)
    except ImportError:  # The provider's method needs OpenLineage.
        info = None
    if info is None:
        return Place(f"{database_type}://{_address(connection)}", tuple(filter(None, (connection.schema, *names))))
    if len(names) < 2:
        names = (hook.get_openlineage_default_schema() or "", *names)
    parts = tuple(filter(None, (*((info.database,) if len(names) < 3 else ()), *names)))
    namespace = f"{info.scheme}://{info.authority}" if info.authority else info.scheme
    return Place(namespace, tuple(part.upper() for part in parts) if info.is_uppercase_names else parts)


_PLACES: dict[str, Callable[[DbApiHook, Any, tuple[str, ...], str], Place]] = {
    "postgresql": _postgres,
    "postgres": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlite": _file,
    "duckdb": _file,
}
