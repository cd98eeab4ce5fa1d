"""What `from airflow_provider_mail.api import ...` gives: the same to Python, to mypy and to pyright."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api._core.requests import MailRequest
from benchmarks.parse_time import modules_below
from docs import exports

MODULES = [importlib.import_module(name) for name in modules_below("api") if name != api.__name__]


def test_type_checkers_see_the_names_that_python_has() -> None:
    tree = ast.parse(Path(api.__file__ or "").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))  # under `if TYPE_CHECKING:`
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: str(node.module) for node in imports for alias in node.names}
    assert sorted(seen) == sorted(api.__all__)
    for name, module in seen.items():
        assert getattr(api, name) is getattr(importlib.import_module(module), name)


def test_the_lists_are_those_of_the_modules() -> None:
    source = exports.FILE.read_text()
    assert source == exports.filled(source), "run: make docs"


def test_every_request_and_error_is_public() -> None:
    names = {
        name
        for module in MODULES
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and not name.startswith("_") and "[" not in name
        if (issubclass(kind, MailRequest) and hasattr(kind, "path")) or issubclass(kind, api.MailError)
        # Not another way to send a public request.
        if not any(base.__name__ in api.__all__ and hasattr(base, "path") for base in kind.__mro__[1:])
    }
    assert {"CreateCampaign", "GetToken", "MailAuthError"} <= names
    assert names - set(api.__all__) == {"Delivery"}, "the fields that SendMail and SendBatch have in common"


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(ImportError, match="cannot import name 'MailKlient'"):
        exec("from airflow_provider_mail.api import MailKlient")
    assert "MailClient" in dir(api)
