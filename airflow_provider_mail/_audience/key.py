"""The key of a deployment, with which the state of an audience hides who is in it.

The state has the rows that were accepted, encrypted, and the log has a keyed digest of each person. So neither shows an
address without the key, and nobody can test whether an address is in it.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import TYPE_CHECKING

from airflow_provider_mail._config import setting
from airflow_provider_mail.version_compat import AirflowFailException, conf

if TYPE_CHECKING:
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan

PERSON_BYTES = 16
_NONCE_BYTES = 12


class AudienceKey:
    """Digests and encrypts what the state of an audience stores.

    :param secret: the secret of the deployment.
    """

    def __init__(self, secret: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        root = hashlib.sha256(b"airflow_provider_mail.audience/" + secret.encode()).digest()
        self._person = hashlib.blake2b(key=root, digest_size=PERSON_BYTES, person=b"person")
        self._settings = hashlib.blake2b(key=root, digest_size=PERSON_BYTES, person=b"settings")
        self._cipher = AESGCM(hashlib.blake2b(key=root, digest_size=32, person=b"sealed").digest())

    @classmethod
    def of_deployment(cls) -> AudienceKey:
        """Derive the key of this deployment.

        :raises AirflowFailException: when there is no secret.
        """
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

    def settings(self, audience_id: str, plan: ImportPlan, config: ClientConfig, mode: str) -> str:
        """Return a digest of all that makes a state another one's: account, list, mapping, key.

        :param mode: the arguments that decide who is on which list.
        """
        digest = self._settings.copy()
        account = [config.base_url, sorted(config.credentials().items()), config.sandbox]
        digest.update(repr([audience_id, account, mode, plan.properties, plan.update_mode, plan.null_value]).encode())
        return digest.hexdigest()

    def seal(self, content: bytes, place: str) -> str:
        """Encrypt a part of the state.

        :param place: identifies it: at another place it cannot be decrypted.
        """
        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, content, place.encode())).decode()

    def unseal(self, sealed: str, place: str) -> bytes:
        """Decrypt a part of the state.

        :raises ValueError: when it was changed or moved, or encrypted with another key.
        """
        from cryptography.exceptions import InvalidTag

        try:
            encrypted = base64.b64decode(sealed)
            return self._cipher.decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], place.encode())
        except InvalidTag:
            raise ValueError("a part is not what was stored with this key") from None
