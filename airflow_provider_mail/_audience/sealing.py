"""What hides people in the state of an audience: its parts are encrypted, and the log has keyed digests."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import msgspec

from airflow_provider_mail._config import setting
from airflow_provider_mail.version_compat import AirflowFailException, conf

PERSON_BYTES = 16
_NONCE_BYTES = 12


class AudienceKey:
    """Digests and encrypts what the state of an audience stores.

    :param secrets: of the deployment; the first one is the current one, the others decrypt what was stored with them.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        roots = [hashlib.sha256(b"airflow_provider_mail.audience/" + secret.encode()).digest() for secret in secrets]
        self._people = [hashlib.blake2b(key=root, digest_size=PERSON_BYTES, person=b"person") for root in roots]
        self._ciphers = [AESGCM(hashlib.blake2b(key=root, digest_size=32, person=b"sealed").digest()) for root in roots]

    @classmethod
    def of_deployment(cls) -> AudienceKey:
        """Derive the key of this deployment.

        :raises AirflowFailException: when there is no secret.
        """
        secrets = [setting("audience_key"), *str(conf.get("core", "fernet_key", fallback="") or "").split(",")]
        if not any(secrets):
            raise AirflowFailException(
                "[mail] audience_key: there is no secret to hide people in the state of changes_only or in the memory: "
                "set it on every worker (AIRFLOW__MAIL__AUDIENCE_KEY)"
            )
        return cls([secret.strip() for secret in secrets if secret])

    def people(self, key: bytes) -> list[str]:
        """Return the digests of a person, the current one first."""
        digests = []
        for keyed in self._people:
            digest = keyed.copy()
            digest.update(key)
            digests.append(digest.hexdigest())
        return digests

    def seal(self, content: bytes, place: str) -> str:
        """Encrypt a part of the state.

        :param place: identifies it: at another place it cannot be decrypted.
        """
        nonce = os.urandom(_NONCE_BYTES)
        # Base64, in a fourth of the standard library's time to decode it.
        text: str = msgspec.to_builtins(nonce + self._ciphers[0].encrypt(nonce, content, place.encode()))
        return text

    def unseal(self, sealed: str, place: str) -> bytes:
        """Decrypt a part of the state.

        :raises ValueError: when it was changed or moved, or encrypted with a key that the deployment does not have.
        """
        from cryptography.exceptions import InvalidTag

        try:
            encrypted = msgspec.convert(sealed, bytes)
        except msgspec.ValidationError as error:  # no ValueError in msgspec 0.19
            raise ValueError(str(error)) from None
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], place.encode())
            except InvalidTag:
                continue
        raise ValueError("a part is not what was stored with this key")
