"""JSON, by msgspec: a million contacts come in as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

encode = msgspec.json.encode


def decode(data: bytes | str) -> Any:
    """The decoded value; ``ValueError`` when the text is not JSON."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:  # a ValueError of its own only since msgspec 0.20
        raise ValueError(str(error)) from None
