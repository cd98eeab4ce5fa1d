"""The public surface: `public_names.txt` has all of it, `docs/public.md` the names that are imported."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from pydantic import BaseModel

import airflow_provider_mail
from airflow_provider_mail._config import OPTIONS
from airflow_provider_mail.cli.definition import get_cli_commands
from airflow_provider_mail.hooks.connection import FIELDS
from docs import marked
from docs.tables import TABLES
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT

PAGE = ROOT / "docs" / "public.md"
RECORD = ROOT / "tests" / "public_names.txt"
PACKAGES = ("operators", "sensors", "triggers", "transfers")
MODULES = (
    "arguments",
    *("hooks.mail", "notifications.mail", "utils.emailer", "utils.events", "utils.staged_send", "assets", "lineage"),
    *("links", "retry_policy", "hold", "send_window", "api", "dlt_source", "mail_emulator"),
)
CHANGED = """The public surface has changed (- recorded, + now):

{difference}

If that is intended: run `WRITE_PAGES=1 pytest tests/test_public_names.py`, commit the two files, and announce the
change in CHANGELOG.md. A name or an argument that goes away needs a deprecation first: see docs/public.md."""


def public_modules() -> Iterator[str]:
    """Every module that people import from."""
    for package in PACKAGES:
        path = importlib.import_module(f"airflow_provider_mail.{package}").__path__
        names = sorted(info.name for info in pkgutil.iter_modules(path))
        yield from (f"{package}.{name}" for name in names if not name.startswith("_"))
    yield from MODULES


def full_name(module: str) -> str:
    return module if module == "mail_emulator" else f"airflow_provider_mail.{module}"


def names() -> dict[str, list[str]]:
    """The public names by module."""
    found = {}
    for name in public_modules():
        if name == "retry_policy" and AIRFLOW_VERSION < (3, 3):
            found[name] = ["MailRetryPolicy"]
            continue
        found[name] = sorted(importlib.import_module(full_name(name)).__all__)
    return found


def surface() -> list[str]:
    """Every public name with the names of its arguments, and what is public beside the names that are imported."""
    lines = []
    for module, public in names().items():
        if module == "retry_policy":
            lines.append(f"{module}.MailRetryPolicy()")
            continue
        for name in public:
            value = getattr(importlib.import_module(full_name(module)), name)
            lines.append(f"{module}.{name}{arguments(value)}")
            if name in ("MailHook", "MailClient", "AsyncMailClient"):
                methods = inspect.getmembers(value, inspect.isfunction)
                for method, each in methods:
                    if each.__module__.startswith("airflow_provider_mail") and not method.startswith("_"):
                        lines.append(f"{module}.{name}.{method}{arguments(each)}")
    for kind, rows in other_names().items():
        lines += [f"{kind} {name}({', '.join(items)})" for name, items in rows.items()]
    return lines


def arguments(value: object) -> str:
    """The names of the arguments, `*` before those that are keywords only; of an enumeration its members."""
    if inspect.isclass(value) and issubclass(value, Enum):
        return f"[{', '.join(value.__members__)}]"
    if inspect.isclass(value) and issubclass(value, BaseModel):
        return f"({', '.join(['*', *value.model_fields]) if value.model_fields else ''})"
    is_class = inspect.isclass(value)
    if not (is_class or inspect.isroutine(value)) or (is_class and issubclass(value, Exception)):
        return ""
    shown: list[str] = []
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        shown.append(stars + parameter.name)
    return f"({', '.join(name for name in shown if name not in ('self', '**kwargs'))})"


def table() -> str:
    """The names as a table for the page."""
    rows = ((f"`{full_name(module)}`", ", ".join(f"`{name}`" for name in public)) for module, public in names().items())
    return marked.table(("import from", "names"), rows)


def documented_results() -> dict[str, list[str]]:
    """The keys that the docstrings of operators and sensors name, and the XComs that they push, by class."""
    found = {}
    for module, public in names().items():
        for name in public if module.startswith(("operators.", "sensors.", "transfers.")) else ():
            if inspect.isclass(value := getattr(importlib.import_module(full_name(module)), name)):
                text = re.search(r"^Returns .*?(?=\n\n)", inspect.getdoc(value) or "", re.DOTALL | re.MULTILINE)
                assert text, f"{name}: its docstring has no paragraph that begins with 'Returns'"
                # What is in parentheses explains a key; what follows "with" is an argument.
                keys = re.sub(r"\([^()]*\)|[Ww]ith(out)? (a )?``\w+``|the connection has a ``\w+``", "", text[0])
                found[name] = list(dict.fromkeys(re.findall(r"``(\w+)``", keys)))
    return found


def commands(declared: Iterable[Any], before: str = "airflow") -> Iterator[tuple[str, list[str]]]:
    """Every command with its arguments."""
    for each in declared:
        if hasattr(each, "subcommands"):
            yield from commands(each.subcommands, f"{before} {each.name}")
        else:
            yield f"{before} {each.name}", [argument.flags[-1] for argument in each.args]


def other_names() -> dict[str, dict[str, list[str]]]:
    """What is public beside the names that are imported, by its kind: the names of its parts."""
    return {
        "connection": {"mail": list(FIELDS)},
        "configuration": {"[mail]": list(OPTIONS)},
        "command": dict(commands(get_cli_commands())),
        "table": {name: [column.name for column in table.stored_columns] for name, table in TABLES.items()},
        "task": documented_results(),
    }


def test_no_name_and_no_argument_comes_or_goes_unannounced() -> None:
    now = surface()
    if os.environ.get("WRITE_PAGES"):
        RECORD.write_text("\n".join([*now, ""]))
    recorded = RECORD.read_text().splitlines()
    gone = [f"- {line}" for line in recorded if line not in now]
    new = [f"+ {line}" for line in now if line not in recorded]
    assert not gone + new, CHANGED.format(difference="\n".join(sorted([*gone, *new], key=lambda line: line[2:])))


def test_the_page_has_all_names() -> None:
    text = PAGE.read_text()
    written = re.sub(r"(?<=<!-- names -->\n).*?(?=<!-- end -->)", lambda _: table(), text, flags=re.DOTALL)
    assert table() in written
    if os.environ.get("WRITE_PAGES"):
        PAGE.write_text(written)
    assert text == written or os.environ.get("WRITE_PAGES"), "run: WRITE_PAGES=1 pytest tests/test_public_names.py"


def test_public_modules_list_their_names() -> None:
    """What a module defines and does not list is underscored or for the package alone; what it lists exists."""
    for module in public_modules():
        if module == "retry_policy" and AIRFLOW_VERSION < (3, 3):
            continue
        loaded = importlib.import_module(full_name(module))
        assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []
        for name, kind in inspect.getmembers(loaded, inspect.isclass):
            named = kind.__module__ == loaded.__name__ and name.startswith(("Mail", "SqlToMail", "ObjectStorage"))
            assert not named or name in loaded.__all__, name


def test_nothing_else_looks_public() -> None:
    """A module outside these is underscored, or the page says what it is for."""
    text = PAGE.read_text()
    tops = {info.name for info in pkgutil.iter_modules(airflow_provider_mail.__path__)}
    public = {name.partition(".")[0] for name in public_modules()}
    others = sorted(name for name in tops - public if not name.startswith("_"))
    assert [name for name in others if f"`{name}`" not in text] == []
