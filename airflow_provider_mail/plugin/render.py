"""Renders the templates, and tables as CSV, in the time zone that the visitor has chosen in Airflow."""

from __future__ import annotations

import base64
import csv
import datetime
import hashlib
import io
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlencode
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from markupsafe import Markup
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from airflow_provider_mail._config import documentation_url
from airflow_provider_mail.hold import RELEASE, Holds, stored_holds
from airflow_provider_mail.plugin import PAGE_PREFIX, base_path
from airflow_provider_mail.warehouse.rows import moment

Task: TypeAlias = tuple[str, str, str, int]
"""DAG, task, run, and map index or -1."""

Kind: TypeAlias = Literal["text", "number", "percent", "time", "day", "drawing"]

_PIECE = 1 << 16
"""Number of characters of a CSV that are sent at once."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that spreadsheets would compute."""


@dataclass(frozen=True)
class Column:
    """A column.

    :param kind: how its values are shown; a drawing repeats another column and is not in the CSV.
    :param value: the key or the attribute of a row that has its value, or a function of the row; not needed where rows
        are the values themselves.
    :param is_below: whether the page shows it below the name of the row; the CSV has it as a column.
    :param sort: the address of the page sorted by this column; empty if it is not sorted by it.
    """

    label: str
    kind: Kind = "text"
    value: str | Callable[[Any], Any] = ""
    is_below: bool = False
    sort: str = ""
    sorted: Literal["", "ascending", "descending"] = ""

    def of(self, row: Any) -> Any:
        """Return its value of a row, as the page and the CSV need it."""
        if callable(self.value):
            value = self.value(row)
        else:
            value = row[self.value] if isinstance(row, Mapping) else getattr(row, self.value)
        if self.kind == "time":
            return moment(value)
        return day(value) if self.kind == "day" and not isinstance(value, Cell) else value


def day(value: Any) -> datetime.date:
    """Return a day of a table; some databases have no type for days."""
    return value if type(value) is datetime.date else datetime.date.fromisoformat(str(value)[:10])


@dataclass(frozen=True)
class Cell:
    """A value with more than its text.

    :param value: what the CSV has.
    :param is_outside: whether that is outside of the page.
    :param state: the class of a colored label; empty for plain text.
    :param note: small text behind it, not in the CSV.
    :param choice: the value of the check box before it; empty for none.
    :param task: the task instance that it leads to, if Airflow has it and the visitor may read its DAG.
    """

    value: Any
    href: str = ""
    is_outside: bool = False
    state: str = ""
    note: str = ""
    choice: str = ""
    task: Task | None = None


def label(name: str, noted: str, note: str) -> Callable[[Mapping[str, Any]], Cell]:
    """Return what shows the value of a column as a colored label, with a note if another column is true."""
    return lambda row: Cell(row[name], state=str(row[name]), note=note if row[noted] else "")


def ratio(count: str, whole: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda row: rate(row[count], row[whole])


@dataclass(frozen=True)
class Grid:
    """A table.

    :param name: its name in the address of its CSV.
    :param caption: what it is called; screen readers say it.
    :param rows: the values of each row, plain or as `Cell`; the first one is the row's name.
    :param note: what its words mean, shown below it.
    :param all_rows: reads the rows of the CSV, where the page shows a part of them.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    total: Sequence[Any] = ()
    note: str = ""
    all_rows: Callable[[], Iterable[Sequence[Any]]] | None = None

    @classmethod
    def of(cls, name: str, caption: str, columns: Sequence[Column], rows: Iterable[Any], note: str = "") -> Grid:
        """Return the table of rows of which the columns know their values."""
        return cls(name, caption, columns, [[column.of(row) for column in columns] for row in rows], note=note)

    def cells(self, row: Sequence[Any]) -> list[tuple[Column, Cell]]:
        return [
            (column, value if isinstance(value, Cell) else Cell(value))
            for column, value in zip(self.columns, row, strict=True)
        ]

    def csv(self, zone: datetime.tzinfo) -> Iterator[str]:
        """Yield its rows as CSV, piece by piece: times in ISO 8601, rates in percent, unknown values empty."""
        piece = io.StringIO()
        writer = csv.writer(piece)
        kinds = [(place, column.kind) for place, column in enumerate(self.columns) if column.kind != "drawing"]
        writer.writerow([_safe(self.columns[place].label) for place, _ in kinds])
        for row in self.all_rows() if self.all_rows else self.rows:
            writer.writerow([_plain(kind, row[place], zone) for place, kind in kinds])
            if piece.tell() >= _PIECE:
                yield piece.getvalue()
                piece.seek(0)
                piece.truncate()
        yield piece.getvalue()


def _plain(kind: Kind, value: Any, zone: datetime.tzinfo) -> str:
    if type(value) is Cell:
        value = value.value
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        return local(value, zone).isoformat(timespec="seconds")
    if kind == "percent":
        return f"{float(value):.2f}"
    if kind == "number":
        return str(int(value))
    return str(value) if kind == "day" else _safe(str(value))


def local(value: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    """Return a time in a zone; as it is at the ends of the calendar, where it may have none there."""
    try:
        return value.astimezone(zone)
    except OverflowError:
        return value


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def tasks_in(grids: Iterable[Grid]) -> set[Task]:
    return {cell.task for grid in grids for row in grid.rows for _, cell in grid.cells(row) if cell.task}


def rate(count: Any, whole: Any) -> float | None:
    """Return a count in percent of another one; ``None`` where one of them is unknown or there is nothing to divide."""
    return 100.0 * float(count) / float(whole) if count is not None and whole else None


_HERE = Path(__file__).parent
STYLE, SCRIPT = ((_HERE / "static" / name).read_text() for name in ("page.css", "page.js"))

OTHER_TEAMS = (
    "This Airflow has several teams, and this page shows the mail of all of them. Only users who belong to every team "
    "can see it."
)
"""Message for a user who must not see what the page shows."""

ZONE_COOKIE = "mail_zone"
"""The time zone of Airflow's UI, which the script of the page reads where Airflow keeps it: in the browser."""

_NOTHING = "\N{EN DASH}"
"""Stands for a value that the tables do not have."""

LOGIN = {
    401: "This page is for users who are logged in to Airflow.",
    403: "You may not see this page, or your login has ended. Who manages Airflow can let you see it: it needs the "
    "permission to view plugins.",
}
"""Messages of errors that a login may solve."""

TITLES = {400: "Not possible", 401: "Not logged in", 403: "No permission", 404: "Not found", 503: "No numbers now"}


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


HEADERS = {
    "Cache-Control": "no-store",
    # Each page has style and script in itself: also that of an error, for users who are not logged in.
    "Content-Security-Policy": "default-src 'none'; "
    f"script-src 'sha256-{_digest(SCRIPT)}'; style-src 'sha256-{_digest(STYLE)}'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response: nothing is loaded, and only Airflow may show the page in a frame."""


def zone_of(request: Request) -> ZoneInfo:
    """Return the time zone of a request; UTC where it names none, or one that does not exist."""
    try:
        return ZoneInfo(unquote(request.cookies.get(ZONE_COOKIE, "UTC")))
    except (KeyError, ValueError, OSError):
        return ZoneInfo("UTC")


@pass_context
def shown(context: Any, value: Any, kind: str) -> Any:
    if value is None:
        return _NOTHING if kind in ("number", "percent", "time") else ""
    if kind == "number":
        return f"{int(value):,}"
    if kind == "percent":
        return f"{float(value):.1f} %"
    if kind == "time":
        time = local(value, context["zone"])
        return Markup('<time datetime="{}">{:%Y-%m-%d %H:%M}</time>').format(time.isoformat(timespec="seconds"), time)
    return value


def plural(text: str, count: Any) -> str:
    """Return a text with a number ``{n}``, and the endings of its noun ``{s}`` and of its verb ``{v}``."""
    is_one = int(count) == 1
    return text.format(n=f"{int(count):,}", s="" if is_one else "s", v="s" if is_one else "")


def ceiling(value: float) -> float:
    """Return the round number at which the axis of a chart ends."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    rounded = (step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10))
    # A value that is one of these numbers is its own ceiling, although floating point may put it a little above.
    return next(number for number in rounded if number >= value * (1 - 1e-9))


def short(value: float) -> str:
    """Return a number in few characters: 1.5 k for 1,500."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _holds() -> Holds | None:
    """What every page shows of holds; ``None`` if they cannot be read."""
    try:
        return stored_holds()
    except SQLAlchemyError:
        return None


def address(path: str, **query: object) -> str:
    """Return a relative address, since the page may be below any path."""
    pairs = []
    for name, value in query.items():
        # A parameter with several values is repeated; one without a value is left out.
        values = value if isinstance(value, list | tuple) else [value]
        pairs += [(name, str(item)) for item in values if item not in ("", None)]
    return f"{path}?{urlencode(pairs)}" if pairs else path


@pass_context
def _csv_address(context: Any, grid: Grid) -> str:
    query = [(name, value) for name, value in context["request"].query_params.multi_items() if name != "page"]
    return f"?{urlencode([*query, ('csv', grid.name)])}"


_JOINERS = "\u200c\u200d"
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Characters without a shape that Unicode counts as letters, marks or symbols."""


def _is_invisible(character: str) -> bool:
    category = unicodedata.category(character)
    return character in _BLANK or (category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\t\n\r")


def visible(value: Any) -> Any:
    """Return a text with the numbers of its invisible characters, which may make a name look like another one.

    Marks of direction are among them: with one, ``gpj.exe`` is shown as ``exe.jpg``. Joiners between letters beyond
    ASCII stay, since Persian and many emoji need them. Templates show every value by this function, but those of
    forms, which are sent back and therefore escaped with ``| e``.
    """
    if not isinstance(value, str) or isinstance(value, Markup) or (value.isascii() and value.isprintable()):
        return value

    def is_letter(place: int) -> bool:
        letter = value[place : place + 1]
        return bool(letter) and not letter.isascii() and not _is_invisible(letter)

    def shown(place: int, character: str) -> str:
        joins = character in _JOINERS and place > 0 and is_letter(place - 1) and is_letter(place + 1)
        return f"\u2039U+{ord(character):04X}\u203a" if _is_invisible(character) and not joins else character

    return "".join(shown(place, character) for place, character in enumerate(value))


_environment = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    finalize=visible,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters["shown"] = shown
_environment.globals |= {
    "address": address,
    "csv_address": _csv_address,
    "plural": plural,
    "ceiling": ceiling,
    "short": short,
    "holds": _holds,
    "nothing": _NOTHING,
    "release": RELEASE,
    "documentation": documentation_url(),
    "variables": lambda: f"{base_path()}/variables",
    "style": Markup(STYLE),
    "script": Markup(SCRIPT),
}


def page(template: str, request: Request, **values: Any) -> str:
    return _environment.get_template(template).render(**values, zone=zone_of(request), request=request)


def error(status: int, message: str, request: Request, *, detail: str = "") -> str:
    login = ""
    if status in LOGIN and message != OTHER_TEAMS:
        message = LOGIN[status]
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "")).lstrip("/")
        here = f"{base_path()}{PAGE_PREFIX}/{path}{'?' if request.url.query else ''}{request.url.query}"
        login = f"{base_path()}/api/v2/auth/login?{urlencode({'next': here})}"
    values = {"title": TITLES.get(status, "Not possible"), "message": message, "detail": detail, "login": login}
    return page("error.html", request, **values, code=status)
