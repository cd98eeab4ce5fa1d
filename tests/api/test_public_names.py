"""The public names, and the error classes: their family, and that they survive the way to another process."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_mail
from airflow_provider_mail import api
from airflow_provider_mail.api import errors
from airflow_provider_mail.api.errors import MailAuthError, MailError, MailRejectedError
from docs import exports

PACKAGE = Path(airflow_provider_mail.__file__).parent
SKIPPED = ("mail_emulator.", "airflow_provider_mail.plugin")


def subclasses(kind: type[Any]) -> set[type[Any]]:
    return {kind, *(grandchild for child in kind.__subclasses__() for grandchild in subclasses(child))}


# Only modules with an error: importing all of them takes as long as the other tests of this folder.
for _file in PACKAGE.rglob("*.py"):
    _module = ".".join(("airflow_provider_mail", *_file.relative_to(PACKAGE).with_suffix("").parts))
    if not _module.startswith(SKIPPED) and re.search(r"^ *class \w+\(.*(Error|Exception)\)", _file.read_text(), re.M):
        importlib.import_module(_module.removesuffix(".__init__"))
OURS = [
    kind
    for kind in subclasses(Exception)
    if kind.__module__.startswith("airflow_provider_mail.") and not kind.__module__.startswith(SKIPPED)
]


def made(kind: type[Exception]) -> Exception:
    """One of that class, with something in every argument."""
    values = {"int": 7, "float": 1.5, "str": "words", "bool": True}
    parameters = inspect.signature(kind.__init__).parameters.values()
    named = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    error = kind("what happened", **{each.name: values[str(each.annotation).partition(" ")[0]] for each in named})
    error.may_have_taken_effect = True  # type: ignore[attr-defined]
    error.add_note("a note")
    return error


def test_errors_survive_pickling_and_copying() -> None:
    names = {kind.__name__ for kind in OURS}
    assert {"MailError", "MailIncompleteError", "MailAuthError", "MailRateLimitError", "WarehouseError"} <= names
    ways = [lambda error, p=p: pickle.loads(pickle.dumps(error, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
    for kind in OURS:
        error = made(kind)
        for way in (*ways, copy.copy, copy.deepcopy):
            same = way(error)
            assert type(same) is kind
            assert (str(same), same.args, vars(same)) == (str(error), error.args, vars(error)), kind
    # Code that handles a rejected request must not have to remember rejected credentials.
    assert not issubclass(MailAuthError, MailRejectedError)


def test_the_page_on_errors_explains_each_class() -> None:
    """Every class is a row of the table in docs/errors.md."""
    rows = re.findall(r"^\| `(Mail\w+)` \|", (PACKAGE.parent / "docs/errors.md").read_text(), re.MULTILINE)

    def family(kind: type[MailError]) -> set[str]:
        children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
        return {kind.__name__}.union(*map(family, children))

    assert sorted(rows) == sorted(family(MailError) - {"MailError"})


# What `from airflow_provider_mail.api import ...` gives: the same to Python, to mypy and to pyright.


def test_type_checkers_see_the_names_that_python_has() -> None:
    tree = ast.parse(Path(api.__file__ or "").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))  # under `if TYPE_CHECKING:`
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: str(node.module) for node in imports for alias in node.names}
    assert sorted(seen) == sorted(api.__all__)
    for name, module in seen.items():
        assert getattr(api, name) is getattr(importlib.import_module(module), name)
    source = exports.FILE.read_text()
    assert source == exports.filled(source), "run: make docs"
    with pytest.raises(ImportError, match="cannot import name 'MailKlient'"):
        exec("from airflow_provider_mail.api import MailKlient")
