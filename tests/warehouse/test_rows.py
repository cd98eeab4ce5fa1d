"""Values on their way into a database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.rows import json_text

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.text(), st.none() | st.text() | NUMBERS))
def test_json_has_one_spelling(value: dict[str, Any]) -> None:
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    assert json_text(value) == json_text(dict(reversed(value.items()))) == plain


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": float("nan")}, {"a": b""}, {"a": "\ud800"}])
def test_what_json_cannot_say(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        json_text(value).encode()
