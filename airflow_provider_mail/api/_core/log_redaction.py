"""What httpx and httpcore log of our requests, at any level, says nothing of what was sent and answered.

Both log what the service says beside an answer's body (reason phrase, headers, broken lines), and it may repeat there
what it was sent; and the token exchange carries the client secret in its query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx

_ours = ContextVar("_ours", default=False)


@contextmanager
def redact_http_logs() -> Iterator[None]:
    """Whatever is logged while this lasts belongs to a request of ours; others' are left alone."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


class _RedactingFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not _ours.get():
            return True
        if isinstance(record.args, tuple) and record.args:  # httpx: method, URL, version, status, reason
            record.args = tuple(
                arg.copy_with(query=None) if isinstance(arg, httpx.URL) else arg for arg in record.args[:4]
            ) + tuple("" for _ in record.args[4:])
        elif not record.args:  # httpcore: what happens, and what came of it
            for words in (" return_value=", " exception="):
                record.msg = str(record.msg).partition(words)[0]
        return True


for _name in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks"):
    logging.getLogger(_name).addFilter(_RedactingFilter())
