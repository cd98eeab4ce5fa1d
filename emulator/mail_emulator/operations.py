"""The declaration of an operation, the fields that several share, and the context of a handler."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mail_emulator import check
from mail_emulator.check import Body, Field
from mail_emulator.faults import Plan
from mail_emulator.responses import ServiceError
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Row, Store

# Fields that several operations share

SANDBOX = Field("sandboxMode", check.boolean, default=False)
LANGUAGES = ("zh-cn", "en", "ja", "ko", "de", "tt", "es", "zh-tw", "ar", "pt-br", "id", "vi", "th", "fr")
ATTACHMENT = Field(
    "attachment",
    check.record(Field("fileName", check.text, required=True), Field("fileData", check.text, required=True)),
)
#: The days of statistics.
WINDOW = (Field("startDate", check.date, required=True), Field("endDate", check.date, required=True))


def attachment_bytes(attachment: Body | None) -> int | None:
    """Return the size of an attachment, None without one; ValueError if it is not Base64."""
    return None if attachment is None else len(base64.b64decode(attachment["fileData"], validate=True))


def texts(*names: str, required: bool = False) -> tuple[Field, ...]:
    return tuple(Field(name, check.text, required) for name in names)


def paging(default_size: int) -> tuple[Field, Field]:
    """Return the fields of a list that is read page by page."""
    return Field("pageSize", check.integer(1), default=default_size), Field("pageIndex", check.integer(1), default=1)


#: The largest number that SQLite takes.
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Context:
    """The arguments of a handler: state, settings, time, and the effects of a fault on this request."""

    store: Store
    settings: EmulatorSettings
    #: Virtual time, milliseconds since the epoch.
    now: int
    plan: Plan
    sandbox: bool = False

    def page(self, body: Body, largest: int | None = None) -> tuple[int, int]:
        """Return LIMIT and OFFSET for ``pageSize`` and ``pageIndex``, changed by a fault.

        :param largest: maximum page size. Default: the setting ``max_page_size``.
        :raises ServiceError: 400, ``pageSize`` exceeds the maximum and ``oversized_page`` is ``reject``.
        """
        size, index = body["pageSize"], body["pageIndex"]
        largest = self.settings.max_page_size if largest is None else largest
        if size > largest and self.settings.oversized_page == "reject":
            raise ServiceError(400, f"invalid parameter: pageSize exceeds {largest}")
        size = min(size, largest, _LARGEST)
        if self.plan.page_cap is not None:
            size = min(size, self.plan.page_cap)
        index = max(1, index - self.plan.page_back)
        return size, min((index - 1) * size + self.plan.page_shift, _LARGEST)

    def contains(self, column: str) -> str:
        """Return the SQL condition of a "contains" filter with one parameter."""
        return f"instr(lower({column}), lower(?))" if self.settings.contains_ignores_case else f"instr({column}, ?)"

    def not_found(self, what: str) -> None:
        """Raise the error for a missing object, unless ``not_found_code`` is 200."""
        if self.settings.not_found_code != 200:
            raise ServiceError(self.settings.not_found_code, f"{what} does not exist")

    def select_page(
        self, body: Body, table: str, conditions: Sequence[str], values: Sequence[Any], *, order: str, descending: bool
    ) -> tuple[list[Row], int]:
        """Return a page of rows, and the number of rows on all pages."""
        direction = "DESC" if descending else "ASC"
        source = f"FROM {table} WHERE {' AND '.join(conditions)}"
        rows = self.store.rows(
            f"SELECT * {source} ORDER BY {order} {direction}, id {direction} LIMIT ? OFFSET ?",
            [*values, *self.page(body)],
        )
        return rows, self.store.value(f"SELECT count(*) {source}", values)


Handler = Callable[[Context, Body], dict[str, Any] | None]


@dataclass(frozen=True)
class Operation:
    """A ``POST`` operation of the specification: its path, its fields, and its handler.

    When the fields depend on the body, ``fields`` is a function that returns them. `SANDBOX` is one of them where the
    operation takes sandboxMode.

    The handler returns the fields of the response beside ``code`` and ``message``. It runs in a transaction that is
    rolled back on an error and in sandbox mode.
    """

    path: str
    fields: tuple[Field, ...] | Callable[[Body, EmulatorSettings], tuple[Field, ...]]
    handle: Handler

    def fields_for(self, body: Body, settings: EmulatorSettings) -> tuple[Field, ...]:
        """Return the fields that a request with this body may have."""
        return self.fields if isinstance(self.fields, tuple) else self.fields(body, settings)
