"""``airflow mail doctor``: check what DAGs need, and print how to fix it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from airflow_provider_mail._config import ReceiverSettings, configured_inbox
from airflow_provider_mail._task.storage import sql_hook
from airflow_provider_mail.api._core.fields import without_addresses
from airflow_provider_mail.api._core.pagination import find
from airflow_provider_mail.api._core.shared_rate import redis_client
from airflow_provider_mail.api.errors import MailConfigError, MailError
from airflow_provider_mail.api.flows.preflight import sender_finding
from airflow_provider_mail.api.lists import GetLists, find_list
from airflow_provider_mail.cli.commands import command, show
from airflow_provider_mail.cli.oauth import is_stored
from airflow_provider_mail.hooks.connection import RENEW, fields_of, token_end
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import (
    AIRFLOW_V_3_3_PLUS,
    AirflowException,
    AirflowNotFoundException,
    serialized_tasks,
)
from airflow_provider_mail.warehouse.database import DIALECTS, StoredTable, connected, kind_of, reader_of
from airflow_provider_mail.warehouse.errors import WarehouseError, connect_error_message, safe_message
from airflow_provider_mail.warehouse.tables.registry import TABLES
from airflow_provider_mail.webhook.health import ROTATE, receiver_status

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_ONLY_ADDED_TO = ("mail_events", "mail_dead_letters", "mail_audience_runs", "mail_audience_runs_changes")
"""Tables of which tasks need only SELECT and INSERT."""

Level = Literal["ok", "warning", "error", "not checked"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The outcome of one check.

    :param check: ``connection``, ``service``, ``port``, ``redis``, ``database``, ``inbox``, ``triggerer``, ``sender``,
        ``list`` or ``dag``.
    :param fix: the command or setting that fixes it; empty when there is nothing to fix.
    """

    check: str
    subject: str
    level: Level
    message: str
    fix: str = ""


@command
def doctor(args: Namespace) -> None:
    diagnoses = list(_diagnoses(args))
    if args.output in ("table", "plain"):
        for diagnosis in diagnoses:
            print(f"{diagnosis.level:<11}  {diagnosis.check:<10}  {diagnosis.message}")
            if diagnosis.fix:
                print(f"{'':<11}  {'fix:':<10}  {diagnosis.fix}")
    else:
        show([], args.output, [asdict(diagnosis) for diagnosis in diagnoses])
    failing = ("error", "warning") if args.strict else ("error",)
    if any(diagnosis.level in failing for diagnosis in diagnoses):
        raise SystemExit(1)


def _diagnoses(args: Namespace) -> Iterator[Diagnosis]:
    needs = [Need(args.conn_id, "", "")]
    needs += [Need(args.conn_id, "database", name) for name in args.sql_conn_id]
    needs += [Need(args.conn_id, "sender", name) for name in args.sender]
    needs += [Need(args.conn_id, "list", name) for name in args.list]
    if args.dag_id:
        try:
            needs = list(_dag_needs(serialized_tasks(args.dag_id)))
        except Exception as error:
            yield _no_database("dag", args.dag_id, error)
            return
        if not needs:
            fix = "airflow dags reserialize, then airflow dags list-import-errors"
            yield Diagnosis("dag", args.dag_id, "error", f"no DAG {args.dag_id!r} with tasks of this provider", fix)
            return
    for conn_id in dict.fromkeys(need.conn_id for need in needs):
        yield from _account(MailHook(conn_id), [need for need in needs if need.conn_id == conn_id])
    for conn_id in dict.fromkeys(need.subject for need in needs if need.check == "database"):
        yield _database(conn_id)
    yield from _receiver()
    yield _triggerer()


@dataclass(frozen=True, slots=True)
class Need:
    """What a task needs.

    :param check: ``database``, ``sender``, ``list``, or ``new list`` if an import makes it; empty
        for the account alone.
    """

    conn_id: str
    check: str
    subject: str


_ARGUMENTS = {
    "sql_conn_id": "database",
    "inbox_conn_id": "database",
    "sender_mail": "sender",
    "list_name": "list",
    "send_list_names": "list",
    "seed_list_names": "list",
    "repel_list_names": "list",
}
"""What the arguments of tasks name."""


def _dag_needs(tasks: list[dict[str, Any]]) -> Iterator[Need]:
    """Yield what the tasks of this provider need. What a template renders to is known when the task runs."""
    for task in tasks:
        if not task["_task_module"].startswith("airflow_provider_mail."):
            continue
        conn_id = task.get("mail_conn_id") or "mail_default"
        if "{{" in conn_id:
            continue
        yield Need(conn_id, "", "")
        for argument, check in _ARGUMENTS.items():
            values = task.get(argument) or ()
            for value in [values] if isinstance(values, str) else values:
                makes = check == "list" and "_to_mail" in task["_task_module"]
                if isinstance(value, str) and "{{" not in value:
                    yield Need(conn_id, "new list" if makes else check, value)


def _account(hook: MailHook, needs: list[Need]) -> Iterator[Diagnosis]:
    """Check a connection to the service, and the senders and lists that tasks need there."""
    connection = _connection(hook)
    yield connection
    reachable = False
    if connection.level != "error":
        yield _port(hook)
        if hook.config.rate_limit_url:
            yield _redis(hook)
        service = _service(hook)
        yield service
        reachable = service.level == "ok"
    for need in dict.fromkeys(needs):
        if need.check == "sender":
            yield _sender(hook, need.subject) if reachable else _unreachable("sender", need.subject)
        elif need.check.endswith("list"):
            made = need.check == "new list"
            yield _list(hook, need.subject, made=made) if reachable else _unreachable("list", need.subject)


def _connection(hook: MailHook) -> Diagnosis:
    conn_id = hook.mail_conn_id
    add = (
        f"airflow connections add {conn_id} --conn-type mail --conn-host https://api.example.com --conn-port 443 "
        "--conn-password '<API key>'"
    )
    try:
        connection = hook.get_connection(conn_id)
    except AirflowNotFoundException:
        return Diagnosis("connection", conn_id, "error", f"there is no connection {conn_id!r}", add)
    try:
        url = hook.config.base_url
    except AirflowNotFoundException:
        redis = connection.extra_dejson.get("rate_limit_conn_id")
        message = f"connection {conn_id!r}: rate_limit_conn_id: there is no connection {redis!r}"
        fix = f"airflow connections add {redis} --conn-uri redis://host:6379/0; or clear that field of {conn_id!r}"
        return Diagnosis("connection", conn_id, "error", message, fix)
    except MailConfigError as error:
        fix = f"correct that field in Admin > Connections; or: airflow connections delete {conn_id}, then: {add}"
        return Diagnosis("connection", conn_id, "error", str(error), fix)
    message = f"connection {conn_id!r} has the base URL {url}"
    if hook.config.sandbox:
        message += "; it is in sandbox mode: no mail is sent"
    level: Level = "ok"
    if hook.config.auth_type == "oauth" and (end := token_end(fields_of(hook.get_connection(conn_id)))) is not None:
        message += f"; its OAuth access token ends at {end.time:%Y-%m-%d %H:%M:%S} UTC"
        level = "warning" if end.is_due else "ok"
    return Diagnosis("connection", conn_id, level, message, RENEW.format(conn_id) if level == "warning" else "")


def _redis(hook: MailHook) -> Diagnosis:
    conn_id = hook.mail_conn_id
    try:
        with closing(redis_client(hook.config)) as redis:
            redis.ping()
    except MailConfigError as error:
        return Diagnosis("redis", conn_id, "error", str(error), "pip install 'airflow-provider-mail[redis]'")
    except Exception as error:
        message = f"connection {conn_id!r}: rate_limit_conn_id: Redis cannot be used ({type(error).__name__})"
        return Diagnosis("redis", conn_id, "error", message, "start Redis, or correct its connection")
    return Diagnosis("redis", conn_id, "ok", f"Redis of connection {conn_id!r} responds")


def _service(hook: MailHook) -> Diagnosis:
    conn_id = hook.mail_conn_id
    works, message = hook.test_connection()
    if works:
        return Diagnosis("service", conn_id, "ok", message)
    again = f"python -m airflow_provider_mail check -c {conn_id}"
    return Diagnosis("service", conn_id, "error", message, f"correct connection {conn_id!r}, then: {again}")


def _port(hook: MailHook) -> Diagnosis:
    """Check the port: the test button of Airflow 3.3 returns "Bad Request" for a stored connection without one."""
    conn_id = hook.mail_conn_id
    try:
        stored = is_stored(conn_id)
    except Exception as error:
        return _no_database("port", conn_id, error)
    connection = hook.get_connection(conn_id)
    if not stored or not AIRFLOW_V_3_3_PLUS or connection.port:
        return Diagnosis("port", conn_id, "ok", f"connection {conn_id!r} needs no port")
    url = urlsplit(hook.config.base_url)
    port = url.port or (80 if url.scheme == "http" else 443)
    message = f"connection {conn_id!r} has no port: the test button in the list of connections returns 'Bad Request'"
    fix = f"Admin > Connections > {conn_id} > Port: {port}"
    return Diagnosis("port", conn_id, "warning", message, fix)


def _database(conn_id: str) -> Diagnosis:
    try:
        hook = sql_hook(conn_id)
    except AirflowNotFoundException:
        fix = f"airflow connections add {conn_id} --conn-uri 'postgres://user:password@host:5432/database'"
        return Diagnosis("database", conn_id, "error", f"there is no connection {conn_id!r}", fix)
    except AirflowException as error:
        message, _, command = str(error).partition("pip install ")
        fix = f"pip install {command}" if command else "use the connection of a database, or correct its type"
        return Diagnosis("database", conn_id, "error", without_addresses(message).rstrip(), fix)
    try:
        with connected(hook) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchall()  # MySQL's drivers refuse another statement, and to close, before that
            allowed = reader_of(hook).may_create(cursor)
        denied = dict(_denied(hook))
    except Exception as error:
        message = f"connection {conn_id!r}: the database cannot be used: {_first(error)}"
        return Diagnosis("database", conn_id, "error", message, f"airflow connections get {conn_id}")
    if denied:
        tables = "; ".join(
            f"{', '.join(errors)} on {table} ({next(iter(errors.values()))})" for table, errors in denied.items()
        )
        message = f"connection {conn_id!r}: its user cannot do what tasks need on tables that exist: {tables}"
        login = hook.get_connection(conn_id).login or "that user"
        user = f"'{login}'@'...'" if kind_of(hook) in ("mysql", "mariadb") else login
        fix = "; ".join(f"GRANT {', '.join(errors)} ON {table} TO {user}" for table, errors in denied.items())
        if kind_of(hook) in ("sqlite", "duckdb"):
            fix = "let the user of the worker write the file, and remove a read-only mode from the connection"
        return Diagnosis("database", conn_id, "warning", message, fix)
    if not allowed:
        message = f"connection {conn_id!r}: its user may not create tables, which loads and imports with a state need"
        fix = "GRANT CREATE ON SCHEMA ... TO that user, or create the tables for it: docs/how-to/permissions.md"
        return Diagnosis("database", conn_id, "warning", message, fix)
    return Diagnosis("database", conn_id, "ok", f"connection {conn_id!r}: the database responds")


def _denied(hook: DbApiHook) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the tables of ours that exist, with what the user of the connection may not do, and the error.

    Each right is tried, by a statement about no row that is rolled back, since databases spell their grants and roles,
    and a file that is read-only, in ways of their own.
    """
    if kind_of(hook) not in DIALECTS:
        return
    with connected(hook) as connection, closing(connection.cursor()) as cursor:
        for name, table in TABLES.items():
            stored = StoredTable(hook, table, name)
            if not (count := len(stored.existing_columns())):
                continue
            nulls = ", ".join(["NULL"] * count)
            column, target = stored.column(table.key[0]), stored.spelled
            statements = {
                "SELECT": f"SELECT {column} FROM {target} WHERE 1 = 0",
                "INSERT": f"INSERT INTO {target} SELECT {nulls} FROM (SELECT 1 AS one) AS no_row WHERE 1 = 0",
                "UPDATE": f"UPDATE {target} SET {column} = NULL WHERE 1 = 0",
                "DELETE": f"DELETE FROM {target} WHERE 1 = 0",
            }
            errors = {}
            for right in [*statements][: 2 if name in _ONLY_ADDED_TO else 4]:
                try:
                    cursor.execute(statements[right])
                    if right == "SELECT":
                        cursor.fetchall()
                except Exception as error:
                    errors[right] = safe_message(error)
                with suppress(Exception):  # DuckDB has a transaction only where one was begun
                    connection.rollback()
            if errors:
                yield name, errors


def _first(error: Exception) -> str:
    return without_addresses(str(error) if isinstance(error, WarehouseError) else connect_error_message(error))


def _receiver() -> Iterator[Diagnosis]:
    """Check the inbox of received events, where one is configured."""
    if (name := configured_inbox()) is None:
        return
    subject = name.conn_id
    try:
        status = receiver_status(ReceiverSettings.from_airflow())
    except (MailConfigError, WarehouseError) as error:
        fix = f"check connection {subject!r} and its database; the tables are created by: {ROTATE}"
        yield Diagnosis("inbox", subject, "error", without_addresses(str(error)), fix)
        return
    for message, fix in status.problems:
        yield Diagnosis("inbox", subject, "error", message, fix)
    if not status.problems:
        message = f"{status.inbox.waiting_pushes} pushes wait in the {name}, {status.inbox.waiting_bytes} bytes"
        yield Diagnosis("inbox", subject, "ok", message)


def _triggerer() -> Diagnosis:
    """Check the heartbeat of the triggerer, which deferrable waits need."""
    try:
        from airflow.jobs.job import most_recent_job

        job = most_recent_job("TriggererJob")
        alive = job is not None and job.is_alive()
    except Exception as error:
        return _no_database("triggerer", "", error)
    if alive:
        return Diagnosis("triggerer", "", "ok", "a triggerer is running")
    heartbeat = f"; last heartbeat at {job.latest_heartbeat:%Y-%m-%d %H:%M:%S} UTC" if job is not None else ""
    message = f"no triggerer is running, so deferrable tasks do not finish{heartbeat}"
    return Diagnosis("triggerer", "", "warning", message, "airflow triggerer")


def _sender(hook: MailHook, sender: str) -> Diagnosis:
    try:
        finding = sender_finding(hook.get_conn(), sender)
    except MailError as error:
        return Diagnosis("sender", sender, "error", without_addresses(str(error)))
    fix = "add it as a marketing sender and set its DNS entries on the platform; wait for it with MailSenderSensor"
    return Diagnosis("sender", sender, finding.level, finding.text, "" if finding.level == "ok" else fix)


def _list(hook: MailHook, name: str, *, made: bool) -> Diagnosis:
    try:
        client, lists = hook.get_conn(), GetLists(page_size=100)
        contact_list = find_list(client, name) or find(
            client, lists, lambda record: record.list_name.casefold() == name.casefold()
        )
    except MailError as error:
        return Diagnosis("list", name, "error", without_addresses(str(error)))
    if contact_list is not None and contact_list.list_name != name:
        message = f"there is no list {name!r}, but {contact_list.list_name!r}: names are compared with their case"
        return Diagnosis("list", name, "error", message, f"write {contact_list.list_name!r}")
    if contact_list is not None:
        return Diagnosis("list", name, "ok", f"list {name!r} exists")
    if made:
        return Diagnosis("list", name, "ok", f"list {name!r} does not exist yet: the import makes it")
    fix = f"MailCreateListOperator(task_id='create_list', list_name={name!r}), or import contacts into it"
    return Diagnosis("list", name, "error", f"there is no list {name!r}", fix)


def _unreachable(check: str, subject: str) -> Diagnosis:
    return Diagnosis(check, subject, "not checked", f"{check} {subject!r}: requires a working connection")


def _no_database(check: str, subject: str, error: Exception) -> Diagnosis:
    # Its message may contain the address and the password of the database.
    message = f"Airflow's database cannot be read from here ({type(error).__name__})"
    return Diagnosis(check, subject, "not checked", message, "airflow db check && airflow db check-migrations")
