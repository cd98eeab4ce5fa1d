"""The base class of values that group arguments which belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import timedelta
from typing import Any, ClassVar, Self

from airflow.sdk import XComArg

from airflow_provider_mail._task.checks import problems


@dataclass(frozen=True, kw_only=True)
class ArgumentGroup:
    """Arguments that belong together, checked when the DAG file is parsed; durations become seconds.

    Airflow renders the fields in ``template_fields``, and shows those that differ from their defaults.
    """

    template_fields: ClassVar[tuple[str, ...]] = ()
    own_rules: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        if messages := list(problems(type(self), vars(self))):
            raise ValueError(f"{type(self).__name__}: {'; '.join(messages)}")
        for name, value in vars(self).items():
            if isinstance(value, timedelta):
                object.__setattr__(self, name, value.total_seconds())

    def rendered(self, values: Mapping[str, Any]) -> Self:
        """Return the group with the values of its templates."""
        return replace(self, **values)

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow stores and shows of the group; called by Airflow."""
        shown = ((field.name, getattr(self, field.name)) for field in fields(self) if field.default is not MISSING)
        defaults = {field.name: field.default for field in fields(self)}
        return {
            name: value if isinstance(value, str | int | float | bool) else str(value)
            for name, value in shown
            if value != defaults[name]
        }


def set_upstream_of_groups(task: Any, values: Mapping[str, Any]) -> None:
    """Make a task follow the tasks whose results its groups contain: Airflow does not look into them."""
    for group in values.values():
        if isinstance(group, ArgumentGroup):
            XComArg.apply_upstream_relationship(task, [getattr(group, name) for name in group.template_fields])
