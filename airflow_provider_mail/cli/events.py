"""``airflow mail events``: read dead letters again, erase a person's events."""

from __future__ import annotations

import sys
from argparse import Namespace

from airflow_provider_mail.cli.commands import command, fail
from airflow_provider_mail.utils.events import erase_events, replay_dead_letters


@command
def replay(args: Namespace) -> None:
    counts = replay_dead_letters(
        sql_conn_id=args.sql_conn_id, table=args.table, dead_letters_table=args.dead_letters_table
    )
    print(f"Dead letters read: {counts['read']}, new events: {counts['stored']}, dead letters left: {counts['left']}")


@command
def erase(args: Namespace) -> None:
    email = sys.stdin.readline() if args.email == "-" else args.email
    try:
        counts = erase_events(
            email,
            sql_conn_id=args.sql_conn_id,
            table=args.table,
            dead_letters_table=args.dead_letters_table,
            inbox_conn_id=args.inbox_conn_id,
            inbox_table=args.inbox_table,
        )
    except ValueError as error:
        fail(f"--{error}")
    print(
        f"Deleted: {counts['events']} events, {counts['dead_letters']} dead letters; pushes changed: {counts['pushes']}"
    )
