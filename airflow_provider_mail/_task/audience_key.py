"""The key of a deployment, with which the state of an audience hides who is in it.

The state has a keyed digest of each person and of the values that were accepted, and the values that take a person off
the audience, encrypted. So the state shows no address without the key, and nobody can test whether an address is in it.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._config import setting

if TYPE_CHECKING:
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan

PERSON_BYTES = 16
CONTENT_BYTES = 8
_NONCE_BYTES = 12


class AudienceKey:
    """Digests and encrypts what the state of an audience stores.

    :param secret: the secret of the deployment.
    """

    def __init__(self, secret: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        root = hashlib.sha256(b"airflow_provider_mail.audience/" + secret.encode()).digest()
        self._person = hashlib.blake2b(key=root, digest_size=PERSON_BYTES, person=b"person")
        self._content = hashlib.blake2b(key=root, digest_size=CONTENT_BYTES, person=b"content")
        self._settings = hashlib.blake2b(key=root, digest_size=PERSON_BYTES, person=b"settings")
        self._cipher = AESGCM(hashlib.blake2b(key=root, digest_size=32, person=b"sealed").digest())

    @classmethod
    def of_deployment(cls) -> AudienceKey:
        """Derive the key of this deployment.

        :raises AirflowFailException: when there is no secret.
        """
        from airflow_provider_mail.version_compat import AirflowFailException, conf

        # With several Fernet keys, the first one is the current one.
        fernet_key = str(conf.get("core", "fernet_key", fallback="") or "").partition(",")[0]
        secret = setting("audience_key") or fernet_key
        if not secret:
            raise AirflowFailException(
                "changes_only: there is no secret to hide people in the state; set [mail] audience_key on every worker "
                "(AIRFLOW__MAIL__AUDIENCE_KEY)"
            )
        return cls(secret)

    def person(self, key: str) -> str:
        """Return the digest of a person.

        :param key: from `Identity.key`.
        """
        digest = self._person.copy()
        digest.update(key.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def content(self, row: Sequence[Any]) -> str:
        """Return the digest of the values of a row."""
        digest = self._content.copy()
        digest.update(_encoded(row))
        return digest.hexdigest()

    def settings(self, audience_id: str, plan: ImportPlan, config: ClientConfig, mode: str) -> str:
        """Return a digest of all that makes a state another one's: account, list, mapping, key.

        :param mode: whether the audience is exact.
        """
        digest = self._settings.copy()
        account = [config.base_url, sorted(config.credentials().items()), config.sandbox]
        digest.update(repr([audience_id, account, mode, plan.properties, plan.update_mode, plan.null_value]).encode())
        return digest.hexdigest()

    def seal(self, rows: Iterable[Sequence[Any]]) -> list[str]:
        """Encrypt rows, each on its own."""
        encoded = [_encoded(row) for row in rows]
        nonces, encrypt = os.urandom(_NONCE_BYTES * len(encoded)), self._cipher.encrypt
        sealed = []
        for number, content in enumerate(encoded):
            nonce = nonces[number * _NONCE_BYTES : (number + 1) * _NONCE_BYTES]
            sealed.append(base64.b64encode(nonce + encrypt(nonce, content, None)).decode())
        return sealed

    def unseal(self, sealed: str) -> list[Any]:
        """Decrypt a row.

        :raises ValueError: when it was changed, or encrypted with another key.
        """
        import msgspec
        from cryptography.exceptions import InvalidTag

        try:
            encrypted = base64.b64decode(sealed)
            content = self._cipher.decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], None)
        except InvalidTag:
            raise ValueError("it is not what was stored with this key") from None
        row: list[Any] = msgspec.json.decode(content)
        return row


def _encoded(row: Sequence[Any]) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(row)
    except (TypeError, ValueError, OverflowError):
        # Such values are rejected by the import, or converted to the same text.
        return msgspec.json.encode(
            [value if value is None else str(value).encode("utf-8", "replace").decode() for value in row]
        )
