"""Transfer of received events to a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Unpack

from airflow.sdk import Asset

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.rules import number
from airflow_provider_mail._task.storage import SqlTask, check_tables, current_task_run
from airflow_provider_mail.lineage import MailLineage, SqlTable
from airflow_provider_mail.operators._base import BaseMailOperator
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.webhook.inbox import Inbox

__all__ = ["MailEventsToSqlOperator"]

OnUnstorable: TypeAlias = Literal["fail", "reject"]
"""What to do with an event that cannot be read or stored."""


class MailEventsToSqlOperator(MailLineage, SqlTask, BaseMailOperator):
    """Load the events that the service has pushed from the inbox into a table: one row per event, each event once.

    The task drains the inbox in batches until no push is left. Each batch is one transaction and is marked as drained
    after it, so a task that dies repeats at most one batch, which changes nothing. Several tasks may drain one inbox
    concurrently. The service may push an event several times: the first one is kept.

    An event that cannot be read, or that the database cannot store, goes to the table of dead letters, with the reason.
    ``airflow mail events replay`` reads them again.

    Each asset in ``outlets`` gets one event per run that stored events, with the counts as ``extra``. A run that stored
    none creates no asset event, unless it is a retry, since the earlier try may have stored events.

    Returns ``table``, ``dead_letters_table``, ``pushes``, ``events`` (valid events), ``stored`` (new events),
    ``by_code`` (the new events by ``EventCode``; ``other`` for codes that are not in the specification),
    ``duplicates``, ``dead_letters`` (new ones), ``conflicts`` (new ones: duplicates with other fields, kept as dead
    letters) and ``deleted_pushes``.

    .. seealso:: the guide :ref:`howto/operator:MailEventsToSqlOperator`
        (in the package: ``airflow_provider_mail/docs/events.md``).

    :param inbox_conn_id: the connection to the database of the inbox, Postgres or SQLite. Default: ``[mail]
        inbox_conn_id``. (templated)
    :param inbox_table: the table of the inbox. Default: ``[mail] inbox_table``. (templated)
    :param sql_conn_id: the connection to the database that the events are loaded into; it may be that of the inbox.
        (templated)
    :param table: the table of events, with its schema if needed; created if it does not exist. It contains personal
        data. Default: ``mail_events``. (templated)
    :param dead_letters_table: the table of events that cannot be read, in the same database; created if it does not
        exist. It contains personal data. Default: ``mail_dead_letters``. (templated)
    :param batch_size: the maximum number of pushes in one transaction, which is also limited to 4 MiB. Default: 1,000.
    :param max_pushes: the maximum number of pushes that one run drains. Default: all.
    :param on_unstorable: what to do with an event that cannot be read or stored: ``reject`` it to the dead letters; or
        ``fail`` the task, naming push, position and reason, and leave its batch in the inbox. Default: ``reject``.
    :param keep_days: days after which drained pushes are deleted from the inbox; ``None``: never. Default: 7.
    """

    # Zero keeps no push that was drained.
    own_rules: ClassVar = {"keep_days": number(none_is_valid=True)}

    inbox_conn_id: str | None
    inbox_table: str | None
    table: str
    dead_letters_table: str
    batch_size: int
    max_pushes: int | None
    on_unstorable: OnUnstorable
    keep_days: float | None

    def __init__(
        self,
        *,
        inbox_conn_id: Templated[str] | None = None,
        inbox_table: Templated[str] | None = None,
        sql_conn_id: Templated[str],
        table: Templated[str] = "mail_events",
        dead_letters_table: Templated[str] = "mail_dead_letters",
        batch_size: int = 1000,
        max_pushes: int | None = None,
        on_unstorable: OnUnstorable = "reject",
        keep_days: float | None = 7.0,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    @cached_property
    def inbox(self) -> Inbox:
        from airflow_provider_mail.webhook.inbox import open_inbox

        return open_inbox(self.inbox_conn_id, self.inbox_table)

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail._metrics import DEAD_LETTERS, RECORDS_REJECTED, emit, task_tags
        from airflow_provider_mail._task.progress import ProgressLog
        from airflow_provider_mail.warehouse.tables.events import EVENTS
        from airflow_provider_mail.webhook.drain import EventTables, UnreadableEventError, drain

        self._check()
        tables = EventTables(self.sql_hook, self.table, self.dead_letters_table, current_task_run())
        self.inbox.create()
        tables.create()
        progress = ProgressLog(self.log, context, "events")
        try:
            drained = drain(
                self.inbox,
                tables,
                batch_size=self.batch_size,
                max_pushes=self.max_pushes,
                dead_letters=self.on_unstorable == "reject",
                on_batch=lambda drained: progress.update(drained.events, beside=f"{drained.pushes:,} pushes"),
            )
        except UnreadableEventError as error:
            raise AirflowFailException(str(error)) from None
        finally:
            progress.close()
        deleted = 0
        if self.keep_days is not None:
            deleted = self.inbox.delete_drained(datetime.now(UTC) - timedelta(days=self.keep_days))
        inbox_table = SqlTable(self.inbox.hook, str(self.inbox.name))
        self.moved(inbox_table, SqlTable(self.sql_hook, self.table), rows=drained.events, table=EVENTS)
        emit({RECORDS_REJECTED: drained.dead_letters}, task_tags(self))
        for reason, count in drained.reasons.items():
            emit({DEAD_LETTERS: count}, {"reason": reason})
        if drained.dead_letters:
            self.log.warning("%s events cannot be read: see %s", drained.dead_letters, self.dead_letters_table)
        if drained.conflicts:
            self.log.warning(
                "%s events have the identity of a stored one and other fields: see %s",
                drained.conflicts,
                self.dead_letters_table,
            )
        counts = {
            "pushes": drained.pushes,
            "events": drained.events,
            "stored": drained.stored.total(),
            "by_code": dict(drained.stored),
            "duplicates": drained.duplicates,
            "dead_letters": drained.dead_letters,
            "conflicts": drained.conflicts,
        }
        self.log.info("Drained %s", counts)
        self._update_asset_events(context, counts)
        names = {"table": self.table, "dead_letters_table": self.dead_letters_table}
        return {**names, **counts, "deleted_pushes": deleted}

    def _check(self) -> None:
        """Check the databases and table names before the inbox is drained."""
        from airflow_provider_mail.api.errors import MailConfigError
        from airflow_provider_mail.warehouse.errors import WarehouseError

        table_names = {"table": self.table, "dead_letters_table": self.dead_letters_table}
        names = check_tables(self.sql_hook, table_names).values()
        try:
            inbox = self.inbox
        except (MailConfigError, WarehouseError) as error:
            raise AirflowFailException(str(error)) from None
        if inbox.hook.get_conn_id() == self.sql_conn_id and inbox.name in names:
            raise AirflowFailException("inbox_table: must be another table than `table` and `dead_letters_table`")

    def _update_asset_events(self, context: Context, counts: dict[str, Any]) -> None:
        """Add the counts to the asset events of this run, or suppress these events."""
        if not counts["stored"] and context["ti"].try_number <= 1:
            self.outlets = []
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(counts)
