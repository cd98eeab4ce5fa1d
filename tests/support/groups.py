"""Groups of arguments from single ones, so that tests can combine these."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.arguments import Brakes, ChangesOnly, FileFormat, Rejects, Suppress

GROUPS: dict[str, tuple[Any, dict[str, str]]] = {
    "rejects": (Rejects, {"max_reject_fraction": "max_fraction", "rejects_path": "path", "rejects_table": "table",
                          "keep_days": "keep_days"}),
    "suppress": (Suppress, {"suppress_events": "events_table", "suppress_table": "table", "suppress_sql": "sql",
                            "suppress_conn_id": "sql_conn_id", "suppress_opted_in": "opted_in_sql",
                            "once_per": "once_per", "at_most": "at_most"}),
    "changes_only": (ChangesOnly, {"state_conn_id": "sql_conn_id", "state_table": "table",
                                   "full_every": "full_every", "on_removed": "on_removed", "log_table": "log_table"}),
    "brakes": (Brakes, {name: name for name in ("max_rows", "max_change_fraction", "max_removed_fraction")}),
    "file_format": (FileFormat, {"format": "name"} | {
        name: name for name in ("compression", "encoding", "delimiter")}),
}  # fmt: skip


def grouped(arguments: dict[str, Any]) -> dict[str, Any]:
    """Put single arguments into their groups; ``changes_only=True`` makes that group."""
    others = dict(arguments)
    for name, (group, names) in GROUPS.items():
        given = {names[argument]: others.pop(argument) for argument in names if argument in others}
        if name == "changes_only":
            if others.pop(name, False):
                others[name] = group(**given)
        elif given:
            others[name] = group(**given)
    return others
