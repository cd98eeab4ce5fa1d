"""What the tests of limits and forms share: a parameter per field, and what accepted and refused mean."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from airflow_provider_mail.api.errors import MailValidationError
from tests.document.fact_types import Fact, Operation
from tests.document.models import REQUESTS, Steps, body_with, model_of, sent, spelled, walk
from tests.support.sampling import examples

FIELDS = [(operation, steps, fact) for operation in REQUESTS for steps, fact in walk(operation.request)]

quick = settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow])


def fields(choose: Callable[[Fact], Any], of: Collection[str] | None = None) -> pytest.MarkDecorator:
    """The fields that are chosen, of all operations or of those with these keys."""
    chosen = [field for field in FIELDS if (of is None or field[0].key in of) and choose(field[2])]
    assert chosen
    ids = [f"{operation.key}:{'.'.join(map(str, steps))}" for operation, steps, _ in chosen]
    return pytest.mark.parametrize(("operation", "steps", "fact"), chosen, ids=ids)


def value_at(body: Any, steps: Steps) -> Any:
    for step in steps:
        body = body[step]
    return body


def assert_accepted(operation: Operation, steps: Steps, value: Any, wire: Any = None) -> None:
    body = sent(operation, body_with(operation, steps, value))
    assert value_at(body, steps) == (value if wire is None else wire)


def assert_refused(operation: Operation, steps: Steps, value: Any) -> str:
    with pytest.raises(MailValidationError) as refused:
        model_of(operation).model_validate(body_with(operation, steps, value))
    message = str(refused.value)
    assert spelled(operation, steps) in message
    return message
