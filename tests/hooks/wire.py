"""What lies between a client and the service in real networks: certificates of one's own, proxies."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    **dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    ),
)


class Authority:
    """A certificate authority that nobody trusts but those who are given its `bundle`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of the tests")])
        certificate = (
            self._certificate(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)  # from Python 3.13 on an authority must say so
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = folder / "ca.pem"
        self.bundle.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(self, address: str = "127.0.0.1") -> Path:
        """A certificate for a server at an IP address, with its key in the same file."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Server of the tests")])
        certificate = (
            self._certificate(subject, key)
            .add_extension(names, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self._folder / f"server-{address}.pem"
        path.write_bytes(
            certificate.public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return path

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )


class Proxy:
    """An HTTP proxy on loopback for one request a connection; a context manager.

    `seen` holds the first line of every request, such as `CONNECT 127.0.0.1:8443 HTTP/1.1`.

    :param refuses: answer 407 to everything.
    """

    def __init__(self, *, refuses: bool = False) -> None:
        self._refuses = refuses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen: list[str] = []

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._thread.join()

    def _accept(self) -> None:
        threads = []
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threads.append(threading.Thread(target=self._serve, args=(client,)))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65_536)
            line, rest = head.split(b"\r\n", 1)
            self.seen.append(line.decode())
            method, target, version = line.split(b" ")
            if self._refuses:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            tunnel = method == b"CONNECT"
            url = urlsplit(f"//{target.decode()}" if tunnel else target.decode())
            with socket.create_connection((url.hostname, url.port)) as server:
                self._open.append(server)
                if tunnel:
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    server.sendall(b" ".join([method, url.path.encode(), version]) + b"\r\n" + rest)
                back = threading.Thread(target=_pump, args=(server, client))
                back.start()
                _pump(client, server)
                back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """The URL of something that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
