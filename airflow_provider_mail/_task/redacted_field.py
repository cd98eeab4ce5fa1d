"""Template fields whose values Airflow must neither store nor show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class RedactedValue:
    """Keeps a value out of Airflow's sight: what it stores and shows of it is how much there is, not what.

    :param value: what is hidden.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        if isinstance(self.value, list | tuple):
            return f"not shown ({len(self.value)})"
        if callable(self.value):
            return f"from {getattr(self.value, '__qualname__', type(self.value).__name__)}"
        return "not shown"


class HiddenField:
    """A template field that is :class:`RedactedValue` as soon as Airflow has rendered it.

    Airflow stores rendered fields and shows them in its UI, where addresses do not belong. A function is hidden from
    the beginning: Airflow would call it while rendering (3.3), or write down its place in memory, another one in every
    process (3.0).
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, operator: Any, owner: type) -> Any:
        return self if operator is None else operator.__dict__[self._name]

    def __set__(self, operator: Any, value: Any) -> None:
        # It is set for the first time by the initialiser, then by the rendering.
        rendered = self._name in operator.__dict__
        hide = rendered or callable(value) or isinstance(value, Iterator)
        operator.__dict__[self._name] = RedactedValue(value) if hide and not isinstance(value, RedactedValue) else value


def unwrap(operator: Any, value: Any, context: Any) -> Any:
    """What a hidden field holds.

    :param operator: whose field it is.
    :param value: the field's.
    """
    if isinstance(value, RedactedValue):
        value = value.value
    # Airflow 3.0 leaves a field as it was whose rendering is empty.
    return operator.render_template(value, context) if hasattr(value, "resolve") else value
