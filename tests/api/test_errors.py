"""The error classes: their family, and that they survive the way from one process to another."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_mail
from airflow_provider_mail.api import errors
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailError,
    MailIncompleteError,
    MailRejectedError,
    MailServiceError,
)

PACKAGE = Path(airflow_provider_mail.__file__).parent
SKIPPED = ("airflow_provider_mail.emulator.", "airflow_provider_mail.plugin")


def _subclasses(kind: type[Any]) -> set[type[Any]]:
    return {kind, *(each for child in kind.__subclasses__() for each in _subclasses(child))}


# Only modules with an error: importing all of them takes as long as the other tests of this folder.
for _file in PACKAGE.rglob("*.py"):
    _module = ".".join(("airflow_provider_mail", *_file.relative_to(PACKAGE).with_suffix("").parts))
    if not _module.startswith(SKIPPED) and re.search(r"^ *class \w+\(.*(Error|Exception)\)", _file.read_text(), re.M):
        importlib.import_module(_module.removesuffix(".__init__"))
OURS = sorted(
    (
        kind
        for kind in _subclasses(Exception)
        if kind.__module__.startswith("airflow_provider_mail.") and not kind.__module__.startswith(SKIPPED)
    ),
    key=lambda kind: kind.__name__,
)
MAIL_ERRORS = [kind for kind in OURS if issubclass(kind, MailError)]


def made(kind: type[Exception]) -> Exception:
    """One of that class, with something in every argument."""
    values = {"int": 7, "float": 1.5, "str": "words", "bool": True}
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            arguments[name] = values[str(parameter.annotation).partition(" ")[0]]
    error = kind("what happened", **arguments)
    error.may_have_taken_effect = True  # type: ignore[attr-defined]
    error.add_note("a note")
    return error


def test_all_classes_are_tried() -> None:
    named = {kind.__name__ for kind in MAIL_ERRORS}
    assert {"MailError", "MailIncompleteError", "MailAuthError", "MailRateLimitError"} <= named
    assert {"WarehouseError"} <= {kind.__name__ for kind in OURS}


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_and_copying(kind: type[Exception]) -> None:
    error = made(kind)
    ways = [lambda each, p=p: pickle.loads(pickle.dumps(each, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
    for way in (*ways, copy.copy, copy.deepcopy):
        same = way(error)
        assert type(same) is kind
        assert (str(same), same.args, vars(same)) == (str(error), error.args, vars(error))


def fail() -> None:
    raise MailIncompleteError("two are missing", got=1, expected=3, operation="/v5/lists/get")


@pytest.mark.not_unit
def test_an_error_leaves_a_worker_process() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(MailIncompleteError) as raised:
        pool.submit(fail).result()
    assert (raised.value.got, raised.value.expected, raised.value.operation) == (1, 3, "/v5/lists/get")


def test_refused_credentials_are_no_refused_request() -> None:
    """Whoever handles a refused request must not have to remember the other."""
    assert not issubclass(MailAuthError, MailRejectedError)
    assert not issubclass(MailRejectedError, MailAuthError)
    assert issubclass(MailAuthError, MailServiceError)


def test_the_page_on_errors_shows_the_family() -> None:
    """Every class is a line of the tree in docs/errors.md, as deep as it stands in the family."""
    page = (Path(airflow_provider_mail.__file__).parents[1] / "docs/errors.md").read_text()
    tree = page.partition("```text\n")[2].partition("```")[0].splitlines()
    shown = [((len(line) - len(line.lstrip())) // 2, line.split()[0]) for line in tree]

    def family(kind: type[MailError], depth: int = 0) -> set[tuple[int, str]]:
        return {(depth, kind.__name__)}.union(
            *(family(each, depth + 1) for each in kind.__subclasses__() if each.__module__ == errors.__name__)
        )

    assert set(shown) == family(MailError)
