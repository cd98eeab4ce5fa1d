"""Redact what httpx and httpcore log about the package's requests, at any level.

Both log the reason phrase, headers and malformed lines of a response, in which the service may repeat the request; and
the token exchange has the client secret in its query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx

_is_own_request = ContextVar("_is_own_request", default=False)


@contextmanager
def redact_http_logs() -> Iterator[None]:
    """Redact the HTTP logs of requests in the ``with`` block; those of other requests stay unchanged."""
    token = _is_own_request.set(True)
    try:
        yield
    finally:
        _is_own_request.reset(token)


class _RedactingFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not _is_own_request.get():
            return True
        if isinstance(record.args, tuple) and record.args:  # httpx: method, URL, version, status, reason
            record.args = tuple(
                arg.copy_with(query=None) if isinstance(arg, httpx.URL) else arg for arg in record.args[:4]
            ) + tuple("" for _ in record.args[4:])
        elif not record.args:  # httpcore: the event and its result
            for marker in (" return_value=", " exception="):
                record.msg = str(record.msg).partition(marker)[0]
        return True


for _name in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks"):
    logging.getLogger(_name).addFilter(_RedactingFilter())
