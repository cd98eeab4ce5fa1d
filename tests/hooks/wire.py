"""What lies between a client and the service in real networks: certificates of one's own, proxies."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import threading
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_OTHER_USES = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
               "crl_sign", "encipher_only", "decipher_only")  # fmt: skip


class Authority:
    """A certificate authority that only those trust who have its `bundle`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of the tests")])
        signs = x509.KeyUsage(key_cert_sign=True, **dict.fromkeys(_OTHER_USES, False))
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        # From Python 3.13 on an authority must say that it signs certificates.
        certificate = builder.add_extension(signs, critical=True).sign(self._key, hashes.SHA256())
        self.bundle = folder / "ca.pem"
        self.bundle.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(self, address: str = "127.0.0.1") -> Path:
        """A certificate for a server at an IP address, with its key in the same file."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Server of the tests")]), key)
        builder = builder.add_extension(names, critical=False).add_extension(identifier, critical=False)
        path = self._folder / f"server-{address}.pem"
        path.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - hour).not_valid_after(now + hour)
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


class Proxy:
    """An HTTP proxy on loopback for one request a connection; a context manager.

    `seen` holds the first line of every request, such as `CONNECT 127.0.0.1:8443 HTTP/1.1`.

    :param rejects: respond to everything with 407.
    """

    def __init__(self, *, rejects: bool = False) -> None:
        self._rejects = rejects
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
            if self._rejects:
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
