"""A Flask application on a port of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask, request
from werkzeug.serving import WSGIRequestHandler, make_server


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        pass


@contextmanager
def served(app: Flask) -> Iterator[str]:
    """Serve an application as long as the `with` lasts; gives its address."""
    # Of 404, the clients think that it is about a table or an object; others they repeat.
    app.register_error_handler(404, lambda _: (f"not implemented: {request.method} {request.path}", 400))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
