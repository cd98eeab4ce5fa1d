"""Template fields that may be personal data: Airflow stores and shows the number of values instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class RedactedValue:
    """Wrapper that Airflow stores and shows as the number of values, not as the values."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        if isinstance(self.value, list | tuple):
            return f"not shown ({len(self.value)})"
        if callable(self.value):
            return f"from {getattr(self.value, '__qualname__', type(self.value).__name__)}"
        return "not shown"


class RedactedField:
    """Template field whose value becomes a :class:`RedactedValue` when Airflow has rendered it.

    Airflow stores rendered fields and shows them in its UI, which must not show addresses. A function is wrapped
    immediately: Airflow would call it while rendering (3.3), or store its memory address, which differs in every
    process (3.0).
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, operator: Any, owner: type) -> Any:
        return self if operator is None else operator.__dict__[self._name]

    def __set__(self, operator: Any, value: Any) -> None:
        # The first value is set by `__init__`, the next one by the rendering.
        rendered = self._name in operator.__dict__
        hide = rendered or callable(value) or isinstance(value, Iterator)
        operator.__dict__[self._name] = RedactedValue(value) if hide and not isinstance(value, RedactedValue) else value


def unwrap(operator: Any, value: Any, context: Any) -> Any:
    """Return the value of a template field, redacted or not."""
    if isinstance(value, RedactedValue):
        value = value.value
    # Airflow 3.0 does not replace the template if the rendered value is empty.
    return operator.render_template(value, context) if hasattr(value, "resolve") else value
