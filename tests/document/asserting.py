"""What the tests of limits and forms share: a parameter for each field, and what accepted and rejected mean."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from airflow_provider_mail.api.errors import MailValidationError
from tests.document.fact_types import Fact, Operation
from tests.document.models import REQUESTS, Steps, body_with, model_of, sent, spelled, walk
from tests.support.sampling import examples

Field = tuple[Operation, Steps, Fact]
FIELDS: list[Field] = [(operation, steps, fact) for operation in REQUESTS for steps, fact in walk(operation.request)]

quick = settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow])


def choose(chosen: Callable[[Fact], Any], of: Collection[str] | None = None) -> list[Field]:
    """The fields that are chosen, of all operations or of those with these keys."""
    found = [field for field in FIELDS if (of is None or field[0].key in of) and chosen(field[2])]
    assert found
    return found


def fields(chosen: Callable[[Fact], Any]) -> pytest.MarkDecorator:
    found = choose(chosen)
    ids = [f"{operation.key}:{'.'.join(map(str, steps))}" for operation, steps, _ in found]
    return pytest.mark.parametrize(("operation", "steps", "fact"), found, ids=ids)


def assert_accepted(operation: Operation, steps: Steps, value: Any, wire: Any = None) -> None:
    body: Any = sent(operation, body_with(operation, steps, value))
    for step in steps:
        body = body[step]
    assert body == (value if wire is None else wire)


def assert_rejected(operation: Operation, steps: Steps, *values: Any) -> str:
    """The message of the last value."""
    message = ""
    for value in values:
        with pytest.raises(MailValidationError) as raised:
            model_of(operation).model_validate(body_with(operation, steps, value))
        message = str(raised.value)
        assert spelled(operation, steps) in message, repr(value)
    return message
