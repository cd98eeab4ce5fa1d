"""Write every command with its arguments into ``commands.md``: ``python docs/commands.py``.

The sections between ``<!-- commands -->`` and ``<!-- end -->`` are the output of :func:`reference`. A test compares
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow_provider_mail.cli.definition import get_cli_commands

PAGE = Path(__file__).resolve().parent / "commands.md"

_PLACE = re.compile(r"<!-- commands -->\n.*?<!-- end -->", re.DOTALL)


def reference(declared: Iterable[Any] | None = None, before: str = "airflow") -> str:
    """Return a section for each command, with a table of its arguments.

    :param declared: commands and groups of commands. Default: all of this package.
    :param before: program or group that they belong to.
    """
    text = ""
    for each in get_cli_commands() if declared is None else declared:
        name = f"{before} {each.name}"
        if hasattr(each, "subcommands"):
            text += reference(each.subcommands, name)
            continue
        rows = "".join(f"| {', '.join(f'`{flag}`' for flag in one.flags)} | {_meaning(one)} |\n" for one in each.args)
        text += f"\n### `{name}`\n\n{each.help}.\n\n| argument | meaning |\n|---|---|\n{rows}"
    return text


def _meaning(argument: Any) -> str:
    """What the help of an argument says, with the values that it takes where the help does not."""
    text = argument.kwargs["help"]
    choices = [choice for choice in argument.kwargs.get("choices") or () if choice not in text]
    return f"{text}: {', '.join(f'`{choice}`' for choice in choices)}" if choices else text


def filled(page: str) -> str:
    """Return the page with the current commands."""
    return _PLACE.sub(lambda _: f"<!-- commands -->\n{reference()}\n<!-- end -->", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
