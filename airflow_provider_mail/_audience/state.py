"""The state of an audience as one run reads and changes it; the run claims it, so that no other one does.

The state has the rows that were accepted, encrypted, and the log has a keyed digest of each person. So neither shows an
address without the key of the deployment, and nobody can test whether an address is in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from secrets import token_hex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.members import DOUBTFUL, LEAVING, LEFT, MEMBER, Members, Part, changes
from airflow_provider_mail._audience.store import NO_MEMBERS, Header, StateChangedError, StateStore, StoredPart
from airflow_provider_mail._config import setting
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException, conf

if TYPE_CHECKING:
    from airflow_provider_mail._audience.rows import Line
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan

NO_STATE = "there is no state yet"

CLAIM_SECONDS = 24 * 3600
"""Seconds after which a run that Airflow does not know any more has ended."""


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


@dataclass
class AudienceState:
    """The state of an audience in a store.

    :param header: the row of the audience, if the store has none.
    :param claimant: the task instance, as JSON of its ids.
    :param writes: whether this run changes the state; if not, the methods that do have no effect.
    :param size: the number of rows of people in the audience, once this run has changed them.
    """

    store: StateStore
    key: AudienceKey
    header: Header
    claimant: str
    writes: bool
    size: int | None = None
    members: Members = field(default_factory=Members)
    _settings: str = ""
    _expected: int = NO_MEMBERS

    def claim(self) -> None:
        """Read the row of the audience, and keep other runs from it.

        :raises AirflowException: when another run is importing the audience.
        """
        header = self.store.read()
        if header is None:
            if not self.writes:
                return
            self.store.create(self.header)
            header = self.store.read() or self.header
        if header.claimed_by not in ("", self.claimant) and not _has_ended(header):
            dag_id, task_id, run_id, _ = json.loads(header.claimed_by)
            raise AirflowException(
                f"run {run_id!r} of task {dag_id}.{task_id} is importing this audience now: try again when it has ended"
            )
        audience, self.header, self._expected = self.header.audience, header, header.members
        # With the name, which a damaged row does not have.
        self.update(audience=audience, claimed_by=self.claimant, members=NO_MEMBERS)

    def release(self, log: Any) -> None:
        """Let other runs import the audience, unless one has taken it already."""
        if self.header.claimed_by == self.claimant:
            try:
                self.update(claimed_by="")
            except StateChangedError:
                log.warning("Another run has changed the state of this audience meanwhile.")

    def load(self, settings: str) -> str:
        """Load the members; return why they cannot be trusted, or empty text.

        :param settings: from `AudienceKey.settings`.
        """
        self._settings = settings
        header, members = self.header, self.members
        if not header.generation:
            return NO_STATE
        if header.settings != settings:
            return "the state is that of another list, account, mapping or key"
        try:
            for number, membership, rows, voids, sealed in self.store.parts(header.generation):
                if number != len(members):
                    raise ValueError("a part is missing")
                content = self.key.unseal(sealed, _place(header.generation, number, membership, rows, voids))
                members.add(Part(membership, int(rows), voids, content))
            if len(members) < header.parts:
                raise ValueError("a part is missing")
            if self._expected not in (NO_MEMBERS, members.count()):
                raise ValueError(f"it has {members.count():,} of {self._expected:,} rows")
        except (ValueError, TypeError) as error:
            return f"the state is damaged: {error}"
        return ""

    def update(self, **values: Any) -> None:
        """Change the row of the audience.

        :raises StateChangedError: another run, which believes that this one has ended, has taken the audience.
        """
        if self.writes:
            self.header = self.store.update(self.header, **values)

    def forget_lists(self) -> None:
        """Let this run use none of the lists of the runs before."""
        self.header = replace(self.header, send_list_name="", repel_list_name="")

    def replace_members(self, members: Members) -> None:
        """Let this run have other members, which are not stored yet."""
        self.members.close()
        self.members = members

    def add(self, ended: Iterable[tuple[int, int]], lines: Iterable[Line], since: int | None = None) -> None:
        """Change and store the members in one step.

        :param ended: part and place of the lines that no longer count.
        :param lines: new lines, sorted by membership.
        :param since: the first part of which no line counts any more. Default: none.
        """
        if not self.writes:
            return
        first, voids = len(self.members), dict[int, list[int] | None]()
        for number, place in ended:
            places = voids.setdefault(number, [])
            assert places is not None
            places.append(place)
        if since is not None:
            voids |= dict.fromkeys(range(since, first))
        for part in changes(voids, lines):
            self.members.add(part)
        if len(self.members) > first:
            # Fails if another run has taken the audience.
            self.update()
            self.store.write(self.header.generation, self._sealed(self.header.generation, first))

    def rewrite(self, *, doubtful: bool = False, **values: Any) -> None:
        """Store all members anew, and let the row of the audience say that they are the current ones.

        :param doubtful: whether the run did not end.
        """
        if not self.writes:
            return
        old, generation = self.header.generation, token_hex(8)
        self.store.write(generation, self._sealed(generation, 0))
        counts = self._counts() | ({"members": NO_MEMBERS} if doubtful else {})
        self.update(settings=self._settings, generation=generation, **values, **counts)
        if old:
            self.store.drop(old)

    def complete(self) -> None:
        """Store that the members are complete."""
        if self.writes:
            self.update(**self._counts())

    def close(self) -> None:
        """Remove the members of this run."""
        self.members.close()

    def _counts(self) -> dict[str, int]:
        members = self.members
        self.size = members.count(MEMBER, DOUBTFUL)
        excluded = members.count(LEFT, LEAVING)
        return {"members": members.count(), "parts": len(members), "size": self.size, "excluded": excluded}

    def _sealed(self, generation: str, first: int) -> Iterator[StoredPart]:
        """Yield the parts from one on as the store has them."""
        for number in range(first, len(self.members)):
            membership, rows, voids, content = self.members.part(number)
            place = _place(generation, number, membership, rows, voids)
            yield number, membership, rows, voids, self.key.seal(content, place)


def _place(generation: str, number: int, membership: str, rows: int, voids: str) -> str:
    """Return what a part is encrypted with, so that none can be exchanged."""
    return f"{generation}/{number}/{membership}/{rows}/{voids}"


def _has_ended(header: Header) -> bool:
    """Return whether the task instance that imports an audience has ended without saying so."""
    from airflow_provider_mail._task.waiting import ENDED, task_instance_state

    dag_id, task_id, run_id, map_index = json.loads(header.claimed_by)
    try:
        state = task_instance_state(SimpleNamespace(dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index))
    except Exception:
        # Airflow cannot be asked, for example outside of a task.
        state = None
    # A run that Airflow does not know may still be going on while its claim is young.
    return state in ENDED or (state is None and time.time() - header.updated_at >= CLAIM_SECONDS)
