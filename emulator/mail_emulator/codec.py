"""JSON by msgspec, for imports of a million contacts."""

from __future__ import annotations

from typing import Any

import msgspec

encode = msgspec.json.encode


def decode(data: bytes | str) -> Any:
    """Decode JSON.

    :raises ValueError: it is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:  # a ValueError of its own only since msgspec 0.20
        raise ValueError(str(error)) from None
