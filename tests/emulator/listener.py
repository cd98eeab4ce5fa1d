"""A real HTTP listener for webhook pushes."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar


class Listener:
    """Keeps every push with its headers; ``statuses`` are the answers to the next pushes, 200 after that."""

    def __init__(self) -> None:
        self.pushes: list[tuple[str, dict[str, str], list[dict[str, Any]]]] = []
        self.statuses: list[int] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version: ClassVar[str] = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                listener.pushes.append((self.path, headers, json.loads(body.decode("utf-8"))))
                self.send_response(listener.statuses.pop(0) if listener.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def events(self, path: str | None = None) -> list[dict[str, Any]]:
        return [event for where, _, events in self.pushes if path in (None, where) for event in events]

    def codes(self, path: str | None = None) -> list[str]:
        return [event["EventCode"] for event in self.events(path)]

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
