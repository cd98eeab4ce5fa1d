"""What these tests share: a test of each field, what accepted and rejected mean, and texts of any characters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

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


def _for_each(cases: Iterable[dict[str, Any]]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Let one test check all cases, each of which takes less time than the set-up of a test."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def check_all() -> None:
            for case in cases:
                try:
                    check(**case)
                except BaseException as error:
                    error.add_note(f"{case['operation'].key} {case.get('steps', '')}")
                    raise

        check_all.__name__, check_all.__doc__ = check.__name__, check.__doc__
        return check_all

    return decorate


for_each_operation = _for_each([{"operation": operation} for operation in REQUESTS])


def fields(chosen: Callable[[Fact], Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Let a test check each of the chosen fields."""
    return _for_each([dict(zip(("operation", "steps", "fact"), field, strict=True)) for field in choose(chosen)])


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


IN_A_LINE = st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])
"""Characters that do not end a line or control a device, for what becomes part of a header."""


@st.composite
def text_of_bytes(draw: st.DrawFn, size: int, alphabet: st.SearchStrategy[str]) -> str:
    """Text of exactly so many bytes in UTF-8, with at least one character of more than one byte."""
    text = draw(alphabet.filter(lambda character: len(character.encode()) > 1))
    for character in draw(st.text(alphabet, max_size=size)):
        text += character if len((text + character).encode()) <= size else ""
    return text + "a" * (size - len(text.encode()))
