"""The document's operations, as the package declares them: what each path does when it is carried out twice."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any

from airflow_provider_mail import api
from airflow_provider_mail.api._core.requests import Effect, MailRequest


def _all(kind: type[Any]) -> Iterator[type[MailRequest[Any]]]:
    for each in kind.__subclasses__():
        yield each
        yield from _all(each)


@cache
def effects() -> dict[str, Effect]:
    """The effect of each operation, by path."""
    for module in pkgutil.iter_modules(api.__path__):
        importlib.import_module(f"{api.__name__}.{module.name}")
    found = {each.path: each.effect for each in _all(MailRequest) if hasattr(each, "path") and hasattr(each, "effect")}
    return {path: effect for path, effect in found.items() if path.startswith("/v5/")}


def effect_of(path: str) -> Effect:
    return effects()[path]
