"""Responses, and errors that become responses; JSON by msgspec, for imports of a million contacts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

encode_json = msgspec.json.encode


def decode_json(data: bytes | str) -> Any:
    """Decode JSON; ValueError for anything else."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:  # a ValueError of its own only since msgspec 0.20
        raise ValueError(str(error)) from None


class ServiceError(Exception):
    """An error response with the body ``code`` and ``message`` of the specification's section "Errors".

    :param keep: whether changes made so far are committed ("the created task is kept").
    :param http_status: HTTP status. Default: as the settings say.
    """

    def __init__(self, code: int, message: str, *, keep: bool = False, http_status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.keep = keep
        self.http_status = http_status


@dataclass
class Response:
    """An HTTP response; ``payload`` is encoded as JSON unless ``text`` is given."""

    payload: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    text: str | bytes | None = None
    content_type: str = "application/json;charset=UTF-8"
    headers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        if self.text is None:
            return encode_json(self.payload)
        return self.text.encode() if isinstance(self.text, str) else self.text

    @property
    def code(self) -> int | None:
        """Code of the body; None without one."""
        code = self.payload.get("code") if self.text is None else None
        return int(code) if code is not None else None


def html(title: str, content: str, status: int = 200) -> Response:
    """Return a small HTML page."""
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><h1>{title}</h1>{content}</body></html>"
    )
    return Response(status=status, text=text, content_type="text/html; charset=utf-8")
