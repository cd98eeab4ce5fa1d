"""What a task has read and written, for OpenLineage (extra ``openlineage``); nothing happens without that provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_mail.warehouse.table import Table


@dataclass(frozen=True)
class Place:
    """Where data is, by the conventions of OpenLineage and of asset URIs, which differ in what joins the parts."""

    namespace: str
    parts: tuple[str, ...]
    separator: str = "."

    @property
    def name(self) -> str:
        """The dataset's name within the namespace."""
        return self.separator.join(self.parts)

    @property
    def uri(self) -> str:
        """The asset's URI."""
        return "/".join([self.namespace, *(quote(part, safe="") for part in self.parts)])


class Data(Protocol):
    """Something that data was read from or written to."""

    def place(self) -> Place:
        """Where it is; may ask the database or Airflow, and is called only when lineage is wanted."""


@dataclass(frozen=True)
class MailData:
    """Something that the service holds.

    :param resource: such as ``campaigns/stats`` or ``lists/News``.
    """

    mail_conn_id: str
    resource: str

    def place(self) -> Place:
        """As :mod:`airflow_provider_mail.assets` names it."""
        return Place(f"mail://{self.mail_conn_id}", tuple(self.resource.split("/")), "/")


@dataclass(frozen=True)
class SqlTable:
    """A table, under the name that the operators were given."""

    hook: DbApiHook
    table: str

    def place(self) -> Place:
        """As the database's own provider names it; databases without such a custom by their connection's address."""
        from airflow_provider_mail.warehouse.connection import database
        from airflow_provider_mail.warehouse.table import TableName

        kind = database(self.hook)
        names = tuple(part.text if part.quoted else part.text.lower() for part in TableName.parse(self.table).parts)
        return _NAMED.get(kind, _elsewhere)(self.hook, names, kind)


@dataclass(frozen=True)
class Folder:
    """A folder of files."""

    path: ObjectStoragePath

    def place(self) -> Place:
        """``s3://bucket`` and the key; local files are in the namespace ``file`` under their whole path."""
        if self.path.protocol in ("", "file", "local"):
            return Place("file", (self.path.path,), "/")
        bucket = self.path.bucket.rpartition("@")[2]  # Airflow 3.0 leaves the connection's id in it
        return Place(f"{self.path.protocol}://{bucket}", (self.path.key.strip("/"),), "/")


@dataclass(frozen=True)
class _Move:
    source: Data
    target: Data
    table: Table | None
    rows: int
    size: int | None
    files: int | None


class MailLineage:
    """Mixin for operators: what ``execute`` notes with :meth:`moved` becomes datasets with row counts."""

    mail_conn_id: str
    _moves: tuple[_Move, ...] = ()

    def moved(
        self,
        source: Data | str,
        target: Data | str,
        *,
        rows: int,
        table: Table | None = None,
        size: int | None = None,
        files: int | None = None,
    ) -> None:
        """Note that rows went from one place to another. Costs nothing: places are looked up when lineage is wanted.

        :param source: where from; text is something of the task's own account, such as ``campaigns/stats``.
        :param target: where to.
        :param table: the columns of the target.
        :param size: bytes written.
        :param files: files written.
        """
        source = MailData(self.mail_conn_id, source) if isinstance(source, str) else source
        target = MailData(self.mail_conn_id, target) if isinstance(target, str) else target
        self._moves = (*self._moves, _Move(source, target, table, rows, size, files))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """What the OpenLineage provider asks for when the task is done. Nothing: it goes by inlets and outlets."""
        from airflow.providers.common.compat.openlineage.facet import InputDataset, OutputDataset
        from airflow.providers.openlineage.extractors import OperatorLineage

        inputs, outputs = {}, {}
        for move in self._moves:
            source, target = move.source.place(), move.target.place()
            inputs[source] = InputDataset(source.namespace, source.name, inputFacets=_read(move))
            outputs[target] = OutputDataset(
                target.namespace, target.name, facets=_columns(move), outputFacets=_written(move)
            )
        return OperatorLineage(inputs=list(inputs.values()), outputs=list(outputs.values()))


def _read(move: _Move) -> dict[str, Any]:
    from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet

    return {"inputStatistics": InputStatisticsInputDatasetFacet(rowCount=move.rows)}


def _written(move: _Move) -> dict[str, Any]:
    from airflow.providers.common.compat.openlineage.facet import OutputStatisticsOutputDatasetFacet

    return {
        "outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=move.rows, size=move.size, fileCount=move.files)
    }


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
        for column in move.table.columns
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


def _connection(hook: DbApiHook) -> Any:
    return hook.get_connection(hook.get_conn_id())


def _postgres(hook: DbApiHook, names: tuple[str, ...], kind: str) -> Place:
    connection = _connection(hook)
    if len(names) < 2:
        names = (hook.get_openlineage_default_schema() or "public", *names)
    catalog = getattr(hook, "database", None) or connection.schema or ""
    return Place(f"postgres://{_address(connection, 5432)}", (catalog, *names[-2:]))


def _mysql(hook: DbApiHook, names: tuple[str, ...], kind: str) -> Place:
    connection = _connection(hook)
    if len(names) < 2:
        names = (connection.schema or "", *names)
    return Place(f"mysql://{_address(connection, 3306)}", names[-2:])


def _file(hook: DbApiHook, names: tuple[str, ...], kind: str) -> Place:
    connection = _connection(hook)
    file = str(connection.host or connection.schema or ":memory:").lstrip("/")
    # With a host: Python's versions disagree on what becomes of "sqlite:///" when a URI is put together again.
    return Place(f"{kind}://localhost/{file}", names)


def _elsewhere(hook: DbApiHook, names: tuple[str, ...], kind: str) -> Place:
    connection = _connection(hook)
    try:
        info = hook.get_openlineage_database_info(connection)
    except ImportError:  # the provider's own answer needs OpenLineage
        info = None
    if info is None:
        return Place(f"{kind}://{_address(connection)}", tuple(filter(None, (connection.schema, *names))))
    if len(names) < 2:
        names = (hook.get_openlineage_default_schema() or "", *names)
    parts = tuple(filter(None, (*((info.database,) if len(names) < 3 else ()), *names)))
    namespace = f"{info.scheme}://{info.authority}" if info.authority else info.scheme
    return Place(namespace, tuple(part.upper() for part in parts) if info.is_uppercase_names else parts)


_NAMED: dict[str, Callable[[DbApiHook, tuple[str, ...], str], Place]] = {
    "postgresql": _postgres,
    "postgres": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlite": _file,
    "duckdb": _file,
}
