"""``airflow mail stop`` and ``airflow mail release``."""

from __future__ import annotations

import getpass
import socket
import sys
import time
from argparse import Namespace

from airflow_provider_mail.cli.commands import command, fail, show
from airflow_provider_mail.hold import SETTLE_SECONDS, release_hold, set_hold
from airflow_provider_mail.hold import stop as stop_campaigns
from airflow_provider_mail.hooks.mail import MailHook


@command
def stop(args: Namespace) -> None:
    """``airflow mail stop``: exit with 1 when a campaign may be sent nevertheless."""
    if args.prefix and args.all_scheduled:
        fail("--prefix and --all-scheduled: give one of them")
    if not (args.prefix or args.all_scheduled or args.hold):
        fail("Nothing to stop: give --prefix, --all-scheduled or --hold")
    hold = set_hold(set_by=f"{getpass.getuser()} on {socket.gethostname()}", reason=args.reason) if args.hold else None
    if hold is not None:
        print(f"All mass mail is held, {hold}.", file=sys.stderr)
    if not (args.prefix or args.all_scheduled):
        time.sleep(SETTLE_SECONDS)
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
    """``airflow mail release``."""
    hold = release_hold()
    print("Nothing is held." if hold is None else f"Released the hold, {hold}. Clear the tasks that failed.")
