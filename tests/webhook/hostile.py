"""Bodies that a sender who knows the token might send."""

from __future__ import annotations

import json

from hypothesis import strategies as st

MAX_EVENTS = 1000

ODD_EVENTS = (
    b'{"EventCode":"Opened","Email":"\\ud83d"}',
    b'{"EventCode":"Opened","Email":"\xe9"}',
    b'{"EventCode":"Opened","Email":"\x01"}',
    b'{"EventCode":"Opened","Email":"a\\u0000"}',
    b'{"EventCode":"Opened","Extra":' + b"[" * 1100 + b"]" * 1100 + b"}",
    b'{"EventCode":"Opened","Extra":' + b'{"a":' * 100 + b"1" + b"}" * 100 + b"}",
    b'{"EventCode":"Opened","Extra":"[}"\\}',
    b"null",
    b"5",
    b'"a,b"',
    b"[1,2]",
    b"{a}",
)
"""Events that cannot be stored."""

_TEXT = st.text(max_size=20)
_SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    _SCALARS | _TEXT, lambda each: st.lists(each, max_size=4) | st.dictionaries(_TEXT, each, max_size=4), max_leaves=8
)
CODES = st.sampled_from(["Delivered", "Opened", "TaskStatus", "Unknown", "", "\x00", "'; DROP TABLE mail_inbox; --"])
EVENTS = st.dictionaries(_TEXT, VALUES, max_size=4) | st.fixed_dictionaries({"EventCode": CODES, "Email": _TEXT})
PUSHES = st.lists(EVENTS, max_size=5) | st.integers(0, MAX_EVENTS + 3).map(lambda count: [{}] * count)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A push that is cut, or in which bytes are changed, repeated or put in."""
    body = bytearray(json.dumps(draw(PUSHES), ensure_ascii=draw(st.booleans())).encode(errors="replace"))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(len(body), start + 10)))
        body[start:end] = draw(st.binary(max_size=4)) + bytes(body[start:end]) * draw(st.integers(0, 2))
    return bytes(body)


# Parsers give up somewhere near 1,000, not all of them at the same depth.
DEPTHS = st.integers(1, 500) | st.integers(2000, 5000)

BODIES = st.one_of(
    PUSHES.map(lambda events: json.dumps(events).encode()),
    VALUES.map(lambda value: json.dumps(value).encode()),
    damaged(),
    st.sampled_from(ODD_EVENTS).flatmap(lambda odd: st.sampled_from([b"\xef\xbb\xbf[%b, {}]" % odd, b" [" + odd])),
    st.binary(max_size=200),
    st.integers(1, 50_000).map(lambda depth: b"[" * depth),
    DEPTHS.map(lambda depth: b'[{"a":' + b"[" * depth + b"]" * depth + b"}]"),
)


def is_push(body: bytes) -> bool:
    """Whether it begins as an array does, and Python's own parser finds no more than 1,000 events in it."""
    if not body.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n").startswith(b"["):
        return False
    try:
        events = json.loads(body.removeprefix(b"\xef\xbb\xbf").decode(errors="replace"))
    except (ValueError, RecursionError):
        return True
    return len(events) <= MAX_EVENTS
