"""HTTP servers of tests: on a free port of loopback, in a thread, without a log."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Handler(BaseHTTPRequestHandler):
    """Handles requests and logs nothing."""

    def log_message(self, *_: Any) -> None: ...


class Server(ThreadingHTTPServer):
    """Serves while it is used as a context."""

    daemon_threads = True

    def __init__(self, handler: Any) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.base_url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
