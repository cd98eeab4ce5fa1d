"""The commands. They exit with 0, or with 1 and a message on standard error."""

from __future__ import annotations

import getpass
import json
import logging
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import yaml  # type: ignore[import-untyped]  # installed with Airflow, without stubs
from airflow.cli.simple_table import AirflowConsole
from pydantic import TypeAdapter, ValidationError

from airflow_provider_mail._audience import people
from airflow_provider_mail._audience.memory import Memory
from airflow_provider_mail._audience.store import StateStore
from airflow_provider_mail._task.storage import sql_hook
from airflow_provider_mail.api._core.fields import Address, address_problem, without_addresses
from airflow_provider_mail.api.campaigns import Campaign, GetCampaigns, MailStats, MailStatus
from airflow_provider_mail.api.errors import MailConfigError, MailError
from airflow_provider_mail.api.flows.audience import lists_of
from airflow_provider_mail.api.flows.cancel_campaign import scheduled_campaigns
from airflow_provider_mail.api.flows.create_once import delete
from airflow_provider_mail.api.flows.waits import CampaignWait, PollResult, Polls, WaitStatus
from airflow_provider_mail.api.lists import DeleteList
from airflow_provider_mail.hold import SETTLE_SECONDS, release_hold, set_hold
from airflow_provider_mail.hold import stop as stop_campaigns
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import AirflowException, AirflowNotFoundException, act_as_server
from airflow_provider_mail.warehouse.errors import WarehouseError

Command = Callable[[Namespace], None]

STATUS_NAMES = {status.value: status.name.lower() for status in MailStatus}

DETAILS = {
    "hard bounces": "hard_bounce",
    "soft bounces": "soft_bounce",
    "not sent": "unsent_count",
    "unsubscribed": "unsubscribe_count",
    "subject": "subject",
    "sender": "sender_mail",
    "lists": "send_list_names",
    "excluded lists": "repel_list_names",
    "type": "task_type",
    "guid": "guid",
    "reviewer": "reviewer_name",
}
"""What a table shows of one campaign besides its row in the list, by name in ``json``."""


def command(function: Command) -> Command:
    """Wrap a command: print an error as a message, without a traceback."""

    @wraps(function)
    def run(args: Namespace) -> None:
        act_as_server()
        # Airflow may log to standard output, which belongs to the result.
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            function(args)
        except (MailError, WarehouseError, AirflowException, AirflowNotFoundException) as error:
            fail(without_addresses(str(error)))
        finally:
            logging.disable(before)

    return run


def fail(message: str) -> None:
    """Print a message to standard error, without control characters, and exit with 1."""
    print(
        "".join(character if character.isprintable() or character == "\n" else " " for character in message),
        file=sys.stderr,
    )
    raise SystemExit(1)


def show(rows: Sequence[dict[str, Any]], output: str, data: Any) -> None:
    """Print a result.

    :param data: an object or a list of objects, for ``json`` and ``yaml``: names in snake_case, times in ISO 8601,
        ``None`` for unknown values. Airflow's own printer would convert all values to strings.
    """
    if output == "json":
        print(json.dumps(data, indent=2, ensure_ascii=False))
    elif output == "yaml":
        print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")
    else:
        AirflowConsole().print_as(data=list(rows), output=output)


@command
def check(args: Namespace) -> None:
    works, message = MailHook(args.conn_id).test_connection()
    if not works:
        fail(message)
    print(message)


@command
def campaigns(args: Namespace) -> None:
    if args.limit < 1:
        fail("--limit: must be at least 1")
    request = GetCampaigns(
        mail_name=args.name,
        mail_status=[MailStatus[args.status.upper()]] if args.status else None,
        all_team=args.all_team or None,
        page_size=100,
    )
    hook = MailHook(args.conn_id)
    matches = [item for page in hook.get_conn().pages(request) for item in page]
    never = datetime.min.replace(tzinfo=UTC)
    matches.sort(key=lambda item: item.send_by_date_time or never, reverse=True)
    newest = matches[: args.limit]
    show([_row(item, args.all_team) for item in newest], args.output, [_to_json(item) for item in newest])
    if len(matches) > args.limit:
        print(f"The newest {args.limit} of {len(matches)}; --limit shows more.", file=sys.stderr)


@command
def campaign(args: Namespace) -> None:
    if args.interval <= 0:
        fail("--interval: must be more than 0")
    hook = MailHook(args.conn_id)
    latest = hook.find_campaign(args.name)
    if latest is None:
        fail(f"There is no campaign {args.name!r}.")
    if args.watch:
        latest = _watch(hook, args.name, args.interval)
    assert latest is not None
    row = {"name": latest.mail_name, **_row(latest, team=True)}
    data = _to_json(latest)
    row |= {label: data[name] for label, name in DETAILS.items() if data[name]}
    row |= {label: ", ".join(names) for label, names in row.items() if isinstance(names, list)}
    table = [{"field": key, "value": value} for key, value in row.items()]
    show(table if args.output == "table" else [row], args.output, data)


@command
def emulator(args: Namespace) -> None:
    try:
        from mail_emulator.__main__ import main
    except ModuleNotFoundError as error:
        if error.name != "mail_emulator":
            raise
        raise SystemExit("The emulator is not installed: pip install 'airflow-provider-mail[emulator]'") from None

    options = {
        "--host": args.host,
        "--port": args.port,
        "--file": args.file,
        "--api-key": args.api_key,
        "--forward-smtp": args.forward_smtp,
    }
    arguments = [word for name, value in options.items() if value for word in (name, value)]
    arguments += [word for setting in args.setting for word in ("--setting", setting)]
    flags = {"--list-settings": args.list_settings, "--demo-data": args.demo_data}
    raise SystemExit(main([*arguments, *(name for name, is_set in flags.items() if is_set)]))


def _watch(hook: MailHook, mail_name: str, interval: float) -> Campaign:
    """Poll until the campaign is sent; exit with 1 when it is not."""
    for result, decision in Polls(
        CampaignWait(mail_name, polled_before=True, seen=True),
        lambda: (_poll(hook, mail_name), hook.get_conn().service_clock.offset),
        log=lambda polled: print(f"{time.strftime('%H:%M:%S')}  {polled.message}", file=sys.stderr, flush=True),
    ):
        if isinstance(result, Campaign) and decision.status is WaitStatus.COMPLETE:
            return result
        if decision.status is not WaitStatus.WAITING:
            break
        time.sleep(interval)
    raise SystemExit(1)


def _poll(hook: MailHook, mail_name: str) -> PollResult:
    try:
        return hook.find_campaign(mail_name)
    except MailError as error:
        return error


def _row(campaign: Campaign, team: bool) -> dict[str, Any]:
    stats, send_time = campaign.mail_stats or MailStats(), campaign.send_by_date_time
    row = {
        "name": campaign.mail_name,
        **({"team": campaign.team_name} if team else {}),
        "status": _status(campaign.mail_status),
        "send time": send_time and send_time.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "sent": stats.sent_count,
        "delivered": stats.delivered_count,
        "opened": stats.open_count,
        "clicked": stats.click_count,
    }
    return {name: "" if value is None else value for name, value in row.items()}


def _to_json(campaign: Campaign) -> dict[str, Any]:
    stats, send_time = campaign.mail_stats or MailStats(), campaign.send_by_date_time
    return {
        "mail_name": campaign.mail_name,
        "team_name": campaign.team_name,
        "mail_status": campaign.mail_status,
        "status": STATUS_NAMES.get(campaign.mail_status),
        "send_time": send_time.astimezone(UTC).isoformat() if send_time else None,
        **{name: getattr(stats, name) for name in MailStats.model_fields},
        "subject": campaign.subject,
        "sender_mail": campaign.sender_mail,
        "send_list_names": list(campaign.rcpt_list_names or []),
        "repel_list_names": list(campaign.repel_list_names or []),
        "task_type": campaign.task_type,
        "guid": campaign.guid,
        "reviewer_name": campaign.reviewer_name,
    }


def _status(number: int) -> str:
    return f"{STATUS_NAMES[number]} ({number})" if number in STATUS_NAMES else str(number)


@command
def stop(args: Namespace) -> None:
    """Exit with 1 when a campaign may be sent nevertheless."""
    if args.prefix and args.all_scheduled:
        fail("--prefix and --all-scheduled: give one of them")
    if not (args.prefix or args.all_scheduled or args.hold):
        fail("Nothing to stop: give --prefix, --all-scheduled or --hold")
    hold = None
    if args.hold:
        hold = set_hold(set_by=_person(), reason=args.reason, mail_conn_id=args.only_conn_id)
        print(f"{hold.held[0].upper()}{hold.held[1:]} is held, {hold}.", file=sys.stderr)
    if not (args.prefix or args.all_scheduled):
        time.sleep(SETTLE_SECONDS)
        if names := scheduled_campaigns(MailHook(args.conn_id).get_conn()):
            print(
                f"{len(names)} campaigns of connection {args.conn_id} stay scheduled, and will be sent: "
                f"{', '.join(names)}. To cancel them: --all-scheduled, or --prefix",
                file=sys.stderr,
            )
        return
    result = stop_campaigns(MailHook(args.conn_id), prefix=args.prefix or "", hold=hold)
    rows = [{"name": name, "result": "stopped"} for name in result.stopped]
    rows += [{"name": name, "result": f"NOT STOPPED: {reason}"} for name, reason in result.not_stopped.items()]
    rows += [{"name": name, "result": "is being sent"} for name in result.sending]
    data = {
        "stopped": list(result.stopped),
        "not_stopped": dict(result.not_stopped),
        "sending": list(result.sending),
        "sent": result.sent,
    }
    show(rows, args.output, data)
    print(
        f"{len(result.stopped)} stopped, {len(result.not_stopped)} not stopped, {len(result.sending)} being sent, "
        f"{result.sent} sent before.",
        file=sys.stderr,
    )
    if result.not_stopped:
        raise SystemExit(1)


@command
def release(args: Namespace) -> None:
    hold = release_hold(released_by=_person(), mail_conn_id=args.only_conn_id)
    print("Nothing is held." if hold is None else f"Released the hold, {hold}. Clear the tasks that failed.")


def _person() -> str:
    return f"{getpass.getuser()} on {socket.gethostname()}"


@command
def audience_status(args: Namespace) -> None:
    rows = [
        {
            "audience": header.audience,
            "size": header.size,
            "excluded": header.excluded,
            "send_list_name": header.send_list_name or None,
            "changed": datetime.fromtimestamp(header.updated_at, UTC).isoformat() if header.updated_at else None,
            "running": bool(header.claimed_by),
        }
        for header in _audience_store(args).all()
    ]
    show([{name: "" if value is None else value for name, value in row.items()} for row in rows], args.output, rows)


@command
def audience_reset(args: Namespace) -> None:
    store = _audience_store(args)
    header = next((header for header in store.all() if header.audience == args.audience), None)
    if header is None:
        fail(f"audience: there is no state of {args.audience!r}; see `airflow mail audience status`")
        return
    store.delete(header)
    print(f"The state of {header.audience} was deleted: its next run sends everybody, to a new list if it is exact")


@command
def audience_prune(args: Namespace) -> None:
    hook = MailHook(args.conn_id)
    is_real = args.yes and not hook.config.sandbox
    for name in (name for store in args.store for name in lists_of(hook.get_conn(), store)):
        if is_real:
            delete(hook.get_conn(), DeleteList(list_name=name))
        print(f"{name}: {'deleted' if is_real else 'would be deleted, with --yes'}")


@command
def audience_why(args: Namespace) -> None:
    """Exit with 1 when the person is in no audience."""
    rows = [asdict(membership) for membership in people.memberships(_audience_store(args), _email_of(args))]
    show([{name: "" if value is None else value for name, value in row.items()} for row in rows], args.output, rows)
    if not rows:
        raise SystemExit(1)


@command
def audience_forget(args: Namespace) -> None:
    """Exit with 1 when the person is still in an audience."""
    results = people.forget(_audience_store(args), _email_of(args))
    for audience, result in results.items():
        print(f"{audience}: {result}")
    if not results:
        print("The person is in no audience.")
    if people.not_forgotten(results):
        raise SystemExit(1)


@command
def memory_create(args: Namespace) -> None:
    memory = _memory()
    memory.create()
    memory.accept()
    print(f"{memory.place[0].upper()}{memory.place[1:]} exists.")


@command
def memory_why(args: Namespace) -> None:
    """Exit with 1 when the person had no mail."""
    rows = [
        {**row, "mailed_at": datetime.fromtimestamp(int(row["mailed_at"]), UTC).isoformat()}
        for row in _memory().of(_email_of(args))
    ]
    show(rows, args.output, rows)
    if not rows:
        raise SystemExit(1)


@command
def memory_forget(args: Namespace) -> None:
    print(f"Deleted: {_memory().forget(_email_of(args))} mails.")


@command
def memory_release(args: Namespace) -> None:
    print(f"Deleted: {_memory().release(args.task)} mails.")


@command
def memory_expire(args: Namespace) -> None:
    if args.keep_days <= 0:
        fail("--keep-days: must be more than 0")
    print(f"Deleted: {_memory().delete_before(int(time.time() - args.keep_days * 86_400))} mails.")


def _memory() -> Memory:
    if (memory := Memory.configured()) is None:
        raise MailConfigError("[mail] memory_conn_id: there is no memory; set it to the connection of a database")
    return memory


def _email_of(args: Namespace) -> str:
    email = (sys.stdin.readline() if args.email == "-" else str(args.email)).strip()
    try:
        TypeAdapter(Address).validate_python(email)
    except ValidationError:
        # Nobody is stored under it: an empty result would look as if the person were not.
        fail(f"--email: {address_problem(email)}")
    return email


def _audience_store(args: Namespace) -> StateStore:
    return StateStore(sql_hook(args.sql_conn_id), args.table)
