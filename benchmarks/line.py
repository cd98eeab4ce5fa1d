"""A line on which packets take time, to a service on this machine, with or without TLS.

    python -m benchmarks.line ROUND_TRIP_MS SERVICE_PORT [FOLDER]

Prints the kind of the line, its host and its port, and serves until its standard input ends. Where the user may create
network devices (root on Linux), the line is a TUN device: the kernel's own TCP runs over it, with its handshakes, its
slow start and its windows. Elsewhere a relay imitates them: each connection takes one round trip to open, sends ten
segments in its first round trip, and twice as many in each later one, up to `MAX_WINDOW`. `BENCHMARK_LINE=relay`
chooses it.

With a folder, which gets its certificates, it uses TLS up to its far end, so a service needs none.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import ssl
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEGMENT = 1460
FIRST_WINDOW = 10 * SEGMENT
MAX_WINDOW = 1 << 20
"""Bytes that the relay lets be under way on a connection in each direction."""
_PIECE = 1 << 16

# Of linux/if_tun.h.
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 0x01, 0x02
_VNET_HEADER = 10
_SOURCE = slice(_VNET_HEADER + 12, _VNET_HEADER + 16)
_DESTINATION = slice(_VNET_HEADER + 16, _VNET_HEADER + 20)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Address:
    """Where a service is reached.

    :param ca_bundle: the file with the authority of its certificate; it uses TLS if there is one.
    :param line: what is between.
    """

    port: int
    host: str = "127.0.0.1"
    ca_bundle: Path | None = None
    line: str = "loopback"

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return "https" if self.ca_bundle else "http"

    @property
    def url(self) -> str:
        """Without a path."""
        return f"{self.scheme}://{self.host}:{self.port}"


def line_name(round_trip_ms: int, tls: bool) -> str:
    """Return the name of a line in tables."""
    return f"{round_trip_ms} ms{', TLS' if tls else ''}"


@contextmanager
def reached(port: int, round_trip_ms: int, folder: Path, *, tls: bool = False) -> Iterator[Address]:
    """Put a line before a service; with no round trip and no TLS, there is none.

    :param port: the service's on loopback.
    :param folder: for certificates.
    """
    if not round_trip_ms and not tls:
        yield Address(port)
        return
    command = [sys.executable, "-m", "benchmarks.line", str(round_trip_ms), str(port), *([str(folder)] if tls else [])]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        kind, host, listening = process.stdout.readline().split()
        try:
            yield Address(int(listening), host, folder / "ca.pem" if tls else None, f"{kind}, {round_trip_ms} ms")
        finally:
            process.stdin.close()


class _Tun:
    """A network device whose packets come back after half a round trip, with source and destination exchanged.

    So a connection to its far address arrives at a server that listens on its near one. Checksums stay as they are.

    :param delay: half a round trip in seconds.
    :raises OSError: the user may not create one.
    :raises subprocess.CalledProcessError: the user may not configure one.
    """

    def __init__(self, delay: float) -> None:
        name, network = f"line{os.getpid()}"[:15], f"198.18.{os.getpid() % 256}"  # addresses for benchmarks: RFC 2544
        self.near, self.far = f"{network}.1", f"{network}.2"
        self._delay = delay
        self._device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(self._device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        # Packets of up to 64 kB, which the kernel counts as the segments that they stand for.
        fcntl.ioctl(self._device, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
        for command in (f"addr add {self.near} peer {self.far} dev {name}", f"link set {name} up txqueuelen 10000"):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        self._loop = asyncio.get_running_loop()
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._loop.add_reader(self._device, self._receive)

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = bytearray(os.read(self._device, _VNET_HEADER + 65_535))
                packet[_SOURCE], packet[_DESTINATION] = packet[_DESTINATION], packet[_SOURCE]
                if not self._under_way:
                    self._loop.call_later(self._delay, self._deliver)
                self._under_way.append((self._loop.time() + self._delay, bytes(packet)))

    def _deliver(self) -> None:
        while self._under_way and self._under_way[0][0] <= self._loop.time():
            with contextlib.suppress(OSError):  # not IPv4: the kernel looks for neighbors
                os.write(self._device, self._under_way.popleft()[1])
        if self._under_way:
            self._loop.call_at(self._under_way[0][0], self._deliver)


async def _relay(port: int, delay: float) -> int:
    """Start the relay; return its port.

    :param port: where it connects to.
    :param delay: half a round trip in seconds.
    """
    loop = asyncio.get_running_loop()

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        window, under_way, acknowledged = FIRST_WINDOW, 0, asyncio.Event()

        def acknowledge(size: int) -> None:
            nonlocal window, under_way
            under_way -= size
            window = min(window + size, MAX_WINDOW)
            acknowledged.set()

        while data := await reader.read(window - under_way):
            under_way += len(data)
            loop.call_later(delay, writer.write, data)
            loop.call_later(2 * delay, acknowledge, len(data))
            while under_way >= window:
                acknowledged.clear()
                await acknowledged.wait()
        loop.call_later(delay, writer.close)

    async def open_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * delay)
        await _both_ways(send, reader, writer, port)

    return await _listen(open_connection, "127.0.0.1")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _both_ways(copy: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    with contextlib.suppress(OSError, asyncio.CancelledError):  # one of them, or this process, ends
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))


async def _listen(serve: Serve, host: str, tls: ssl.SSLContext | None = None) -> int:
    server = await asyncio.start_server(serve, host, 0, ssl=tls, backlog=1000)
    return int(server.sockets[0].getsockname()[1])


def _tls(host: str, folder: Path) -> ssl.SSLContext:
    from tests.hooks.wire import Authority

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(folder).issue(host))
    return context


async def _serve(round_trip: float, port: int, folder: Path | None) -> None:
    kind, near, far = "relay", "127.0.0.1", "127.0.0.1"
    if os.environ.get("BENCHMARK_LINE") != "relay":
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            tun = _Tun(round_trip / 2)
            kind, near, far = "TUN", tun.near, tun.far

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _both_ways(_copy, reader, writer, port)

    listening = await _listen(forward, near, _tls(far, folder) if folder else None)
    if kind == "relay":
        listening = await _relay(listening, round_trip / 2)
    print(kind, far, listening, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]) / 1000, int(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None))
