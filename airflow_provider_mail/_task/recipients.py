"""Who a mailing mails more than once: a JOIN that repeats rows does it, and nobody notices but the recipients."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Mapping
from typing import Any

from airflow_provider_mail.api.errors import MailValidationError

ON_DUPLICATE_RECIPIENT = ("fail", "skip", "allow")

MOST_NAMED = 10


class Recipients:
    """The recipients of one mailing, to notice those that come more than once.

    A recipient comes more than once who is in ``to`` of two messages, or twice among ``to``, ``cc`` and ``bcc`` of one.
    The same ``cc`` or ``bcc`` in many messages is meant: an archive, a manager. Capitals make no difference.

    A digest of each, under a random key, is kept in a private SQLite database, which moves from memory to a temporary
    file when it grows. So memory stays flat, and no address is written down.

    :param on_duplicate: ``fail``: find all of them, see :meth:`check`; ``skip``: leave them out but for the first time;
        ``allow``: count them.
    """

    def __init__(self, on_duplicate: str) -> None:
        self._skip = on_duplicate == "skip"
        self._fail = on_duplicate == "fail"
        self._key = secrets.token_bytes(16)
        self._database = sqlite3.connect("", isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE seen (digest BLOB PRIMARY KEY, message INTEGER) WITHOUT ROWID",
            "BEGIN",
        ):
            self._database.execute(statement)
        self._named: list[str] = []
        self.count = 0

    def keep(self, number: int, version: dict[str, Any]) -> dict[str, Any] | None:
        """The message without those that are left out; ``None`` when nobody remains in ``to``.

        :param number: of the message, from 0.
        :param version: with lists of dictionaries as ``to``, ``cc`` and ``bcc``. What is wrong in it is not looked at.
        """
        here: set[bytes] = set()
        kept = dict(version)
        for part in ("to", "cc", "bcc"):
            if people := version.get(part):
                new = [person for person in people if not self._seen(person, number, part, here)]
                if self._skip and len(new) < len(people):
                    kept[part] = new
        return kept if kept.get("to") or not version.get("to") else None

    def check(self) -> None:
        """Refuse the mailing when somebody comes more than once and that is not allowed.

        :raises MailValidationError: naming the first places.
        """
        if self._fail and self.count:
            more = f"; and {self.count - len(self._named):,} more" if self.count > len(self._named) else ""
            raise MailValidationError(
                f"SendBatch: {'; '.join(self._named)}{more}. {self.count:,} recipients come more than once: nothing "
                "was sent. on_duplicate_recipient='skip' leaves them out but for the first time, 'allow' mails all"
            )

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    def _seen(self, person: Any, number: int, part: str, here: set[bytes]) -> bool:
        """Whether somebody is mailed already; noted, if so.

        :param here: who is in the same message.
        """
        email = person.get("email") if isinstance(person, Mapping) else None
        if not isinstance(email, str):
            return False
        name = email.strip().casefold().encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(name, digest_size=16, key=self._key).digest()
        first = number
        if digest not in here:
            here.add(digest)
            if part != "to" or self._is_new(digest, number):
                return False
            ((first,),) = self._database.execute("SELECT message FROM seen WHERE digest = ?", (digest,))
        self.count += 1
        if len(self._named) < MOST_NAMED:
            where = "twice in this message" if first == number else f"the same recipient as messages[{first}]"
            self._named.append(f"messages[{number}].{part}: {where}")
        return True

    def _is_new(self, digest: bytes, number: int) -> bool:
        return bool(self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (digest, number)).rowcount)
