"""The emulator in this process: a server in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mail_emulator.control_api import ControlApi
from mail_emulator.faults import FAULT_KINDS
from mail_emulator.inbox.pages import Pages
from mail_emulator.responses import Response, decode_json, encode_json
from mail_emulator.rpc import LocalChannel, find_control
from mail_emulator.server import CONTROL, Server
from mail_emulator.service import OPERATIONS, Request, Service
from mail_emulator.settings import EmulatorSettings

if TYPE_CHECKING:
    from mail_emulator.inbox.forward import Forwarder


class Emulator(ControlApi):
    """The emulated service; a context manager.

    Clients need ``base_url`` and ``api_key``. ``clock``, ``faults`` and ``journal`` are groups of the control
    interface; its other functions are methods of this class.

    :param settings: settings, which may be changed at any time. Default: the defaults of each.
    :param file: SQLite file that keeps the state. Default: memory.
    :param host: interface to listen on.
    :param port: port to listen on. Default: a free one.
    :param forward_smtp: ``HOST:PORT`` of an SMTP server that gets a copy of each delivered mail. Default: none.
    """

    def __init__(
        self,
        settings: EmulatorSettings | None = None,
        *,
        file: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        forward_smtp: str | None = None,
    ) -> None:
        self.settings = settings or EmulatorSettings()
        service = Service(self.settings, file)
        self._server = Server(service, self._control)
        super().__init__(LocalChannel(service, self._server, self._in_loop))
        self._pages = Pages(self)
        self._forwarder: Forwarder | None = None
        if forward_smtp:
            from mail_emulator.inbox.forward import Forwarder, parse_address

            self._forwarder = Forwarder(service, parse_address(forward_smtp))
        self._host, self._port = host, port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def api_key(self) -> str:
        """The accepted API key."""
        return self.settings.api_key

    @property
    def base_url(self) -> str:
        """Base URL, without a trailing slash."""
        scheme = "https" if self.settings.tls_certificate else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._server.port}"

    def start(self) -> None:
        """Start the server; return when it accepts requests.

        :raises OSError: when the port is not available.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="emulator", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(self._host, self._port), self._loop).result()
        except BaseException:
            self._end_loop()
            raise
        if self._forwarder is not None:
            self._forwarder.start()

    def stop(self) -> None:
        """Stop the server; requests in progress get no response."""
        if self._loop is None:
            return
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        if self._forwarder is not None:
            self._forwarder.stop()
        self._end_loop()
        self.service.store.close()

    def _end_loop(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = None

    def _in_loop(self, function: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(function)

    def __enter__(self) -> Emulator:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _control(self, request: Request) -> Response:
        """Handle a request for the control interface or a page."""
        if not self._is_ours(request.headers.get("host", "")):
            return Response(
                status=403,
                text="call the emulator as localhost, by an IP address, or by the name given as --host",
                content_type="text/plain",
            )
        if request.method == "POST" and _is_foreign(request):
            return Response(status=403, text="this page of another site may not do that", content_type="text/plain")
        if not request.path.startswith(CONTROL):
            return self._pages.respond(request)
        *group_names, name = request.path.removeprefix(CONTROL).strip("/").split("/")
        if not name:
            kinds = {name: {"meaning": kind.meaning, **kind.parameters} for name, kind in FAULT_KINDS.items()}
            return Response({"operations": sorted(OPERATIONS), "faults": kinds})
        function = find_control(self.groups().get("/".join(group_names)), name)
        if function is None:
            return Response(status=404, text=f"there is no control function {request.path}", content_type="text/plain")
        try:
            result = function(**decode_json(request.content or b"{}"))
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            return Response(status=400, text=str(error), content_type="text/plain")
        return Response(text=encode_json(result))

    def _is_ours(self, host: str) -> bool:
        """Whether a request is addressed to this server.

        Otherwise a foreign page may have resolved its own name to this server (DNS rebinding), so that browsers treat
        both as one site.
        """
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name in ("", "localhost", self._host.lower()) or name.endswith(".localhost") or _is_address(name):
            return True
        # In a container or a network, clients use a host name; those of the public DNS have dots.
        return self._host not in ("127.0.0.1", "localhost", "::1") and "." not in name


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


def _is_foreign(request: Request) -> bool:
    """Whether a page of another site, open in the same browser, makes the request. Only browsers send an Origin."""
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("host")
