"""Certificates of one's own."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

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
