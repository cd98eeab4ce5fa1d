"""``airflow mail audience``: show the states of audiences, delete one."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_mail._audience.store import FileStateStore, Header, SqlStateStore, audiences_in
from airflow_provider_mail._task.storage import sql_hook
from airflow_provider_mail.cli.commands import command, fail, show


@command
def status(args: Namespace) -> None:
    rows = [
        {
            "audience": header.audience,
            "size": header.size,
            "excluded": header.excluded,
            "send_list_name": header.send_list_name or None,
            "repel_list_name": header.repel_list_name or None,
            "everybody_sent": _time(header.full_at),
            "changed": _time(header.updated_at),
            "running": bool(header.claimed_by),
        }
        for header in _headers(args)
    ]
    show([{name: "" if value is None else value for name, value in row.items()} for row in rows], args.output, rows)


@command
def reset(args: Namespace) -> None:
    header = next((header for header in _headers(args) if header.audience == args.audience), None)
    if header is None:
        fail(f"audience: there is no state of {args.audience!r}; see `airflow mail audience status`")
        return
    _store(args, header).delete(header)
    print(f"The state of {header.audience} was deleted: its next run sends everybody, to a new list if it is exact")


def _headers(args: Namespace) -> list[Header]:
    if args.state_path:
        return audiences_in(args.state_path)
    if not args.state_conn_id:
        fail("--state-conn-id or --state-path: needed, where the state is")
    return SqlStateStore(sql_hook(args.state_conn_id), args.state_table, "").all()


def _store(args: Namespace, header: Header) -> SqlStateStore | FileStateStore:
    if args.state_path:
        return FileStateStore(args.state_path, header.audience_id)
    return SqlStateStore(sql_hook(args.state_conn_id), args.state_table, header.audience_id)


def _time(seconds: int) -> Any:
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None
