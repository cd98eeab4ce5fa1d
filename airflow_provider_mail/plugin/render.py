"""Renders the templates."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import HTMLResponse

from airflow_provider_mail.hold import RELEASE, stored_hold
from airflow_provider_mail.plugin import charts
from airflow_provider_mail.plugin.settings import PAGE_PREFIX, base_path

_HERE = Path(__file__).parent
STATIC_FILES = tuple(sorted(path.name for path in (_HERE / "static").iterdir()))

MENU = (
    ("./", "Campaigns"),
    ("lists", "Lists"),
    ("transactional", "Transactional"),
    ("loads", "Loads"),
    ("imports", "Imports"),
    ("events", "Events"),
    ("waits", "Waits"),
)

_NOTHING = "\N{EN DASH}"
"""Stands for a value that the tables do not have."""

TITLES = {400: "Not possible", 401: "Not logged in", 403: "No permission", 404: "Not found", 503: "No data"}


def _number(value: Any) -> str:
    return _NOTHING if value is None else f"{int(value):,}"


def _percent(value: Any) -> str:
    return _NOTHING if value is None else f"{float(value):.1f} %"


def _time(value: datetime.datetime | None) -> str:
    return _NOTHING if value is None else f"{value:%Y-%m-%d %H:%M}"


def _address(path: str, **query: object) -> str:
    """A relative address: the page may be below any path."""
    return f"{path}?{urlencode({name: str(value) for name, value in query.items() if value not in ('', None)})}"


def _hold() -> str:
    """What every page says while mass mail is held; empty otherwise."""
    try:
        hold = stored_hold()
    except SQLAlchemyError:
        return "It is not known whether mass mail is held: Airflow's database cannot be read."
    return f"All mass mail is held, {hold}. To go on, {RELEASE}." if hold else ""


def _version() -> str:
    digest = hashlib.sha256()
    for name in STATIC_FILES:
        digest.update((_HERE / "static" / name).read_bytes())
    return digest.hexdigest()[:12]


_environment = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {"number": _number, "percent": _percent, "time": _time}
_environment.globals |= {"address": _address, "charts": charts, "hold": _hold, "menu": MENU, "version": _version()}


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page."""
    return HTMLResponse(_environment.get_template(template).render(**values), status)


def error(status: int, message: str, request: Request, *, advice: str = "") -> HTMLResponse:
    """Render an error.

    :param advice: what to do about it.
    """
    login = ""
    if status == 401:
        here = f"{base_path()}{PAGE_PREFIX}/"
        login = f"{base_path()}/api/v2/auth/login?{urlencode({'next': here})}"
    title = TITLES.get(status, "Not possible")
    return page("error.html", status=status, title=title, message=message, advice=advice, login=login)
