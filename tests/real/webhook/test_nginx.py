"""The configuration of nginx in docs/receiver.md: no token in a log, whatever happens to a push."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.wire import Authority
from tests.support.env import ROOT
from tests.support.processes import Component, free_port, wait_until
from tests.support.receiver import HEADERS, RunningReceiver, sqlite_connection
from tests.webhook.pushes import body, event

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or ""
pytestmark = pytest.mark.skipif(not NGINX, reason="nginx is not installed")
HOST = "events.example.com"
(BLOCK,) = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / "receiver.md").read_text(), re.DOTALL)
QUIET = ("    access_log off;\n", "    error_log /dev/null; ")


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningReceiver]:
    folder = tmp_path_factory.mktemp("receiver")
    with RunningReceiver(folder, sqlite_connection(folder / "inbox.db")) as running:
        yield running


class Nginx:
    """nginx with a server block behind another one that is the default, logs, and has a certificate for both.

    :param upstream: the port that takes the place of the receiver's.
    """

    def __init__(self, folder: Path, block: str, upstream: int) -> None:
        folder.mkdir()
        self.folder, self.port = folder, free_port()
        certificate = Authority(folder).issue()
        block = block.replace("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl").replace("8026", str(upstream))
        block = block.replace("proxy_read_timeout 40s", "proxy_read_timeout 1s")
        paths = "\n".join(
            f"    {name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"user root;\npid {folder}/pid;\nerror_log {folder}/error.log info;\nevents {{}}\nhttp {{\n{paths}\n"
            f"    access_log {folder}/access.log;\n    ssl_certificate {certificate};\n"
            f"    ssl_certificate_key {certificate};\n"
            f"    server {{ listen 127.0.0.1:{self.port} ssl default_server; server_name other.example.com; }}\n"
            f"{block}}}\n"
        )
        command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
        self.process = Component("nginx", command, env={}, log=folder / "output.log")

    def __enter__(self) -> Nginx:
        self.process.start()
        wait_until(self._listens, what="nginx listens", interval=0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop(timeout=60)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def send(self, request: bytes, *, answers: bool = True) -> bytes:
        """Send bytes as a client that trusts any certificate; return the first line of the response."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection,
            context.wrap_socket(connection, server_hostname=HOST) as client,
        ):
            with contextlib.suppress(OSError):  # it may answer and close before it has read everything
                client.sendall(request)
            with contextlib.suppress(OSError):
                return client.recv(65536).partition(b"\r\n")[0] if answers else b""
            return b""

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))


def _request(target: str, content: bytes = b"[]", *more: str, version: str = "1.1") -> bytes:
    lines = {"Host": HOST, "Content-Length": str(len(content)), "Connection": "close", **HEADERS}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "".join(f"{line}\r\n" for line in more)
    return f"POST {target} HTTP/{version}\r\n{head}\r\n".encode() + content


def _misfortunes(nginx: Nginx, token: str) -> list[bytes]:
    """What nginx writes about with the request line: each sort of request that it does not pass on."""
    results = [
        nginx.send(_request(f"/{token}", b"x" * (9 * 2**20))[: 2**16]),
        nginx.send(_request(f"/{token}", b"[]", "Bad header")),
        nginx.send(_request(f"/{token}", b"[]", "X: " + "x" * 40_000)),
        nginx.send(_request(f"/{token}{'x' * 40_000}")),
        nginx.send(_request(f"/{token}", version="9.9")),
        nginx.send(_request(f"/{token}%zz")),
        nginx.send(_request(f"/../{token}")),
        nginx.send(_request(f"/x?{token}")),
    ]
    nginx.send(_request(f"/{token}", b"[" + b" " * 1000)[:-500], answers=False)
    return results


@pytest.mark.parametrize("left_out", ["", *QUIET])
def test_no_log_of_nginx_has_a_token(receiver: RunningReceiver, tmp_path: Path, left_out: str) -> None:
    """A receiver that works, one that is down, one that does not answer; without a directive, the token is there."""
    assert left_out in BLOCK
    block = BLOCK.replace(left_out, "    # ") if left_out else BLOCK
    with Nginx(tmp_path / "up", block, receiver.port) as nginx:
        stored = len(receiver.events())
        assert nginx.send(_request(f"/{receiver.token}", body(event(1)))) == b"HTTP/1.1 200 OK"
        assert len(receiver.events()) == stored + 1
        statuses = {line.split()[1] for line in _misfortunes(nginx, receiver.token) if line}
        assert statuses >= {b"413", b"414", b"400"}
        logs = nginx.logs()
    with Nginx(tmp_path / "down", block, free_port()) as nginx:
        assert b" 502 " in nginx.send(_request(f"/{receiver.token}"))
        logs += nginx.logs()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Nginx(tmp_path / "silent", block, silent.getsockname()[1]) as nginx,
    ):
        assert b" 504 " in nginx.send(_request(f"/{receiver.token}"))
        logs += nginx.logs()
    for folder in ("up", "down", "silent"):
        logs += "".join(path.read_text(errors="replace") for path in (tmp_path / folder).glob("*.log"))
    assert (receiver.token in logs) == bool(left_out)
