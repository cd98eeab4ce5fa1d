"""How an operation is declared, and what its handler is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_provider_mail.emulator.faults import Plan
from airflow_provider_mail.emulator.fields import Body, Field
from airflow_provider_mail.emulator.responses import ServiceError
from airflow_provider_mail.emulator.settings import EmulatorSettings
from airflow_provider_mail.emulator.store import Store

#: The largest number that SQLite takes.
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Context:
    """What a handler works with: the state, the settings, the moment, and the fault that strikes this request."""

    store: Store
    settings: EmulatorSettings
    #: Virtual time, milliseconds since the epoch.
    now: int
    plan: Plan
    sandbox: bool = False

    def page(self, body: Body, largest: int | None = None) -> tuple[int, int]:
        """LIMIT and OFFSET for ``pageSize`` and ``pageIndex``, faults included."""
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
        """The SQL condition of a "contains" filter with one parameter."""
        return f"instr(lower({column}), lower(?))" if self.settings.contains_ignores_case else f"instr({column}, ?)"

    def not_found(self, what: str) -> None:
        """Refuse because something does not exist, unless the service is set to shrug at that."""
        if self.settings.not_found_code != 200:
            raise ServiceError(self.settings.not_found_code, f"{what} does not exist")


Handler = Callable[[Context, Body], dict[str, Any] | None]


@dataclass(frozen=True)
class Operation:
    """One ``POST`` operation of the document: its path, its fields, whether it takes sandboxMode, and what it does.

    Where the fields depend on the body, ``fields`` is a function that chooses them.

    The handler returns the fields of the answer beside ``code`` and ``message``. It runs in a transaction that is
    rolled back when it raises and in sandbox mode, so it need not know about either.
    """

    path: str
    fields: tuple[Field, ...] | Callable[[Body, EmulatorSettings], tuple[Field, ...]]
    handle: Handler
    sandbox: bool = False
