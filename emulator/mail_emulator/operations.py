"""The declaration of an operation, and the context of its handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mail_emulator.faults import Plan
from mail_emulator.fields import Body, Field
from mail_emulator.responses import ServiceError
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Store

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
        """Raise the error for a missing object, unless ``not_found_code`` is 200.

        :param what: what is missing, for the message.
        :raises ServiceError: with ``not_found_code``.
        """
        if self.settings.not_found_code != 200:
            raise ServiceError(self.settings.not_found_code, f"{what} does not exist")


Handler = Callable[[Context, Body], dict[str, Any] | None]


@dataclass(frozen=True)
class Operation:
    """A ``POST`` operation of the specification: its path, its fields, its handler, and whether it takes sandboxMode.

    When the fields depend on the body, ``fields`` is a function that returns them.

    The handler returns the fields of the response beside ``code`` and ``message``. It runs in a transaction that is
    rolled back on an error and in sandbox mode.
    """

    path: str
    fields: tuple[Field, ...] | Callable[[Body, EmulatorSettings], tuple[Field, ...]]
    handle: Handler
    sandbox: bool = False
