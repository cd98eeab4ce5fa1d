"""Transfers of files into a warehouse: the steps before and after the warehouse's own load."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.storage import SqlTask
from airflow_provider_mail.lineage import Folder, MailLineage, SqlTable
from airflow_provider_mail.operators._base import BaseMailOperator
from airflow_provider_mail.transfers._base import MAX_REMOVED_FRACTION, RemovesRows
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.warehouse.manifest import Manifest

__all__ = ["MailCreateStageTableOperator", "MailMergeStageTableOperator"]


class BaseStageTableOperator(MailLineage, SqlTask, BaseMailOperator):
    """Base class of the operators for the table of staged rows of a load of files."""

    table: str
    manifest: str | ObjectStoragePath
    object_storage_conn_id: str | None

    def read_manifest(self) -> Manifest:
        """Read the manifest.

        :raises AirflowFailException: when there is no manifest.
        """
        from airflow_provider_mail._task.storage import storage_path
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.manifest import Manifest

        path = storage_path(self.manifest, self.object_storage_conn_id, "manifest")
        try:
            return Manifest.from_json(path.fs.cat_file(path.path))
        except FileNotFoundError:
            raise AirflowFailException(
                f"manifest: there is no such file, so there is no complete load: {path}"
            ) from None
        except WarehouseError as error:
            raise AirflowFailException(f"manifest: {error} ({path})") from None


class MailCreateStageTableOperator(BaseStageTableOperator):
    """Create the empty table that a warehouse (Snowflake, BigQuery, Redshift, Databricks) loads the files into.

    Its columns are those of the files. It is in the schema of ``table``, and named after that and the load.

    Returns ``stage_table``, its name, and ``records``, the number of rows that must be loaded into it.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailCreateStageTableOperator`
        (in the package: ``airflow_provider_mail/docs/warehouses.md``).

    :param sql_conn_id: the connection to the warehouse. (templated)
    :param table: the table that the rows are merged into, with its schema if needed. (templated)
    :param manifest: the path of the manifest, which the task that wrote the files returns. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path. Default: that of the
        path. (templated)
    """

    template_fields = ("sql_conn_id", "table", "manifest", "object_storage_conn_id")

    def __init__(
        self,
        *,
        sql_conn_id: Templated[str],
        table: Templated[str],
        manifest: Templated[ObjectStoragePath],
        object_storage_conn_id: Templated[str] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            sql_conn_id=sql_conn_id, table=table, manifest=manifest, object_storage_conn_id=object_storage_conn_id
        )

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail.warehouse.manifest import create_stage

        manifest = self.read_manifest()
        return {"stage_table": create_stage(self.sql_hook, manifest, self.table), "records": manifest.rows}


class MailMergeStageTableOperator(RemovesRows, BaseStageTableOperator):
    """Merge the rows of a load of files, which the warehouse has loaded into the table of staged rows.

    The rules are those of the loads into tables: a row never replaces one that was observed later; a window that the
    load has read completely is replaced; an earlier load adds nothing to a window that a later load has read
    completely. The table is created if it does not exist, with native types, and gets columns that later versions add.

    The load consists of two readings, so rows that it lacks are missing in both. Before campaigns are marked as gone in
    a table of statistics, they are looked up at the service by name, with the connection that the manifest names.

    Fails if the table of staged rows does not have exactly the number of rows in the manifest. The table is removed
    after the merge, and stays after a failure.

    Returns ``table`` and ``records``.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailMergeStageTableOperator`
        (in the package: ``airflow_provider_mail/docs/warehouses.md``).

    :param sql_conn_id: the connection to the warehouse. (templated)
    :param table: the table, with its schema if needed. (templated)
    :param manifest: the path of the manifest, which the task that wrote the files returns. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path. Default: that of the
        path. (templated)
    :param allow_empty: let a load without rows delete all rows of its list, or mark all of its window as gone. If
        false, the task fails and the rows stay. Default: false.
    :param max_removed_fraction: the largest share of these rows, from 0 to 1, that the load may remove, net of added
        rows; not applied below ten rows. Default: 0.5.
    """

    template_fields = ("sql_conn_id", "table", "manifest", "object_storage_conn_id")

    def __init__(
        self,
        *,
        sql_conn_id: Templated[str],
        table: Templated[str],
        manifest: Templated[ObjectStoragePath],
        object_storage_conn_id: Templated[str] | None = None,
        allow_empty: bool = False,
        max_removed_fraction: float = MAX_REMOVED_FRACTION,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            sql_conn_id=sql_conn_id, table=table, manifest=manifest, object_storage_conn_id=object_storage_conn_id,
            allow_empty=allow_empty, max_removed_fraction=max_removed_fraction,
        )  # fmt: skip

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail._task.storage import storage_path
        from airflow_provider_mail.api.campaigns import existing_campaigns
        from airflow_provider_mail.warehouse.manifest import merge_stage
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS

        manifest, hook = self.read_manifest(), self.sql_hook
        self.mail_conn_id = manifest.mail_conn_id

        def exists(names: Sequence[str]) -> Collection[str]:
            return existing_campaigns(self.hook.get_conn(), names)

        # A load of campaigns has all campaigns of the account; a load of statistics has those of a window.
        exists_by_name = exists if manifest.table is CAMPAIGN_STATS else None
        with self.mail_errors():
            loaded = merge_stage(hook, manifest, self.table, removal=self.removal_rule(), exists=exists_by_name)
        folder = Folder(storage_path(self.manifest, self.object_storage_conn_id, "manifest").parent)
        self.moved(folder, SqlTable(hook, self.table), table=manifest.table, rows=loaded.rows)
        self.log.info("%s records merged into %s", loaded.rows, self.table)
        return {"table": self.table, "records": loaded.rows}
