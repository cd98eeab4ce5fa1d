"""``python -m airflow_provider_mail``: the commands of ``airflow mail``, on every Airflow."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from airflow.cli.cli_config import ActionCommand, CLICommand, GroupCommand

from airflow_provider_mail.cli.definition import get_cli_commands


def parser() -> argparse.ArgumentParser:
    """Return a parser of the declared commands; ``func`` of its result is the command."""
    (group,) = get_cli_commands()
    assert isinstance(group, GroupCommand)
    result = argparse.ArgumentParser(prog="python -m airflow_provider_mail", description=group.help)
    _add(result, group.subcommands)
    return result


def _add(parser: argparse.ArgumentParser, commands: Iterable[CLICommand]) -> None:
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in commands:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        if isinstance(command, ActionCommand):
            for argument in command.args:
                argument.add_to_parser(subparser)
            subparser.set_defaults(func=command.func)
        else:
            _add(subparser, command.subcommands)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    args = parser().parse_args(arguments)
    args.func(args)


if __name__ == "__main__":
    main()
