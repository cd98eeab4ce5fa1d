"""A real HTTP listener for webhook pushes."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Listener:
    """Keeps every push with its path and headers; ``statuses`` are those of the next responses, 200 after that."""

    def __init__(self) -> None:
        self.pushes: list[tuple[str, dict[str, str], list[dict[str, Any]]]] = []
        self.statuses: list[int] = []
        self.pushed = threading.Event()
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                listener.pushes.append((self.path, headers, json.loads(body)))
                self.send_response(listener.statuses.pop(0) if listener.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                listener.pushed.set()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def events(self, path: str | None = None) -> list[dict[str, Any]]:
        return [event for pushed_to, _, events in self.pushes if path in (None, pushed_to) for event in events]

    def codes(self) -> list[str]:
        return [event["EventCode"] for event in self.events()]

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
