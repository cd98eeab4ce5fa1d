"""``airflow mail doctor``: check what DAGs need, and print how to fix it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal
from urllib.parse import urlsplit

from airflow_provider_mail._config import ReceiverSettings, configured_inbox
from airflow_provider_mail._task.exceptions import without_addresses
from airflow_provider_mail._task.storage import sql_hook
from airflow_provider_mail.api.errors import MailConfigError, MailError
from airflow_provider_mail.api.flows.preflight import sender_finding
from airflow_provider_mail.api.lists import find_list
from airflow_provider_mail.cli.commands import command, show
from airflow_provider_mail.cli.oauth import is_stored
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS, AirflowException, AirflowNotFoundException
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.webhook.health import ROTATE, receiver_status

Level = Literal["ok", "warning", "error", "not checked"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The outcome of one check.

    :param check: ``connection``, ``service``, ``port``, ``database``, ``inbox``, ``triggerer``, ``sender`` or ``list``.
    :param level: ``ok``, ``warning``, ``error`` or ``not checked``.
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
    hook = MailHook(args.conn_id)
    connection = _connection(hook)
    yield connection
    reachable = False
    if connection.level == "ok":
        yield _port(hook)
        service = _service(hook)
        yield service
        reachable = service.level == "ok"
    for conn_id in args.sql_conn_id:
        yield _database(conn_id)
    yield from _receiver()
    yield _triggerer()
    for sender in args.sender:
        yield _sender(hook, sender) if reachable else _unreachable("sender", sender)
    for name in args.list:
        yield _list(hook, name) if reachable else _unreachable("list", name)


def _connection(hook: MailHook) -> Diagnosis:
    conn_id = hook.mail_conn_id
    add = (
        f"airflow connections add {conn_id} --conn-type mail --conn-host https://api.example.com --conn-port 443 "
        "--conn-password '<API key>'"
    )
    try:
        url = hook.config.base_url
    except AirflowNotFoundException:
        return Diagnosis("connection", conn_id, "error", f"there is no connection {conn_id!r}", add)
    except MailConfigError as error:
        fix = f"correct that field in Admin > Connections; or: airflow connections delete {conn_id}, then: {add}"
        return Diagnosis("connection", conn_id, "error", str(error), fix)
    sandbox = "; it is in sandbox mode: no mail is sent" if hook.config.sandbox else ""
    return Diagnosis("connection", conn_id, "ok", f"connection {conn_id!r} has the base URL {url}{sandbox}")


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
    return Diagnosis("database", conn_id, "ok", f"connection {conn_id!r} has its provider ({type(hook).__name__})")


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


def _list(hook: MailHook, name: str) -> Diagnosis:
    try:
        contact_list = find_list(hook.get_conn(), name)
    except MailError as error:
        return Diagnosis("list", name, "error", without_addresses(str(error)))
    if contact_list is not None:
        return Diagnosis("list", name, "ok", f"list {name!r} exists")
    fix = f"MailCreateListOperator(task_id='create_list', list_name={name!r}), or import contacts into it"
    return Diagnosis("list", name, "error", f"there is no list {name!r}", fix)


def _unreachable(check: str, subject: str) -> Diagnosis:
    return Diagnosis(check, subject, "not checked", f"{check} {subject!r}: requires a working connection")


def _no_database(check: str, subject: str, error: Exception) -> Diagnosis:
    # Its message may contain the address and the password of the database.
    message = f"Airflow's database cannot be read from here ({type(error).__name__})"
    return Diagnosis(check, subject, "not checked", message, "airflow db check && airflow db check-migrations")
