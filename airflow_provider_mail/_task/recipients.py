"""Detects recipients that a mailing would mail more than once, and contacts that an import may store twice."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import struct
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from airflow_provider_mail.api._core.addresses import address_key
from airflow_provider_mail.api.errors import MailValidationError

MAX_NAMED = 10

MAX_UNUSUAL = 50_000
"""Maximum number of addresses in an unusual spelling that an import compares, so that memory use is bounded."""

_PART = 50
"""Addresses that are compared one by one if one of them is in an unusual spelling."""


class Recipients:
    """The recipients of one mailing, to detect duplicates.

    A duplicate is in ``to`` of two messages, or twice among ``to``, ``cc`` and ``bcc`` of one; addresses are the same
    if their `address_key` is. The same ``cc`` or ``bcc`` in several messages is intended: an archive, a manager.

    A digest of each address under a random key is stored in a private SQLite database, which moves from memory to a
    temporary file when it grows. So memory use stays constant, and no address is stored.

    :param on_duplicate: ``fail``: collect all duplicates for :meth:`check`; ``skip``: remove them except for the first
        occurrence; ``allow``: count them.
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
        """Return the message without removed recipients; ``None`` when ``to`` becomes empty."""
        in_message: set[bytes] = set()
        kept = dict(version)
        for part in ("to", "cc", "bcc"):
            if people := version.get(part):
                new = [person for person in people if not self._seen(person, number, part, in_message)]
                if self._skip and len(new) < len(people):
                    kept[part] = new
        return kept if kept.get("to") or not version.get("to") else None

    def check(self) -> None:
        """Reject the mailing when it has duplicates and ``on_duplicate`` is ``fail``.

        :raises MailValidationError: naming the first ones by their position.
        """
        if self._fail and self.count:
            more = f"; and {self.count - len(self._named):,} more" if self.count > len(self._named) else ""
            raise MailValidationError(
                f"SendBatch: {'; '.join(self._named)}{more}. {self.count:,} duplicate recipients: nothing was "
                "sent. on_duplicate_recipient='skip' mails each recipient once, 'allow' mails all"
            )

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    def _seen(self, person: Any, number: int, part: str, in_message: set[bytes]) -> bool:
        """Return whether the recipient is a duplicate, and count it; ``in_message``: digests of the same message."""
        email = person.get("email") if isinstance(person, Mapping) else None
        if not isinstance(email, str):
            return False
        name = address_key(email).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(name, digest_size=16, key=self._key).digest()
        first = number
        if digest not in in_message:
            in_message.add(digest)
            if part != "to" or self._is_new(digest, number):
                return False
            ((first,),) = self._database.execute("SELECT message FROM seen WHERE digest = ?", (digest,))
        self.count += 1
        if len(self._named) < MAX_NAMED:
            reason = "twice in this message" if first == number else f"the same recipient as messages[{first}]"
            self._named.append(f"messages[{number}].{part}: {reason}")
        return True

    def _is_new(self, digest: bytes, number: int) -> bool:
        return bool(self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (digest, number)).rowcount)


class Spellings:
    """The addresses of one import, to detect those that two rows spell differently, in constant memory.

    To the service, the same spelling twice is one contact; the specification does not say which other spellings are.
    The usual spelling is that of `address_key`. Nearly all addresses have it: their hashes are written to a temporary
    file. Of two spellings of an address, at least one is unusual; the unusual ones are compared with all others at the
    end. Python's hash of a text differs in every process, and no address is stored.
    """

    def __init__(self) -> None:
        self._usual = tempfile.SpooledTemporaryFile(max_size=1_000_000)  # noqa: SIM115
        self._unusual: dict[int, tuple[int, int]] = {}
        self._several: set[int] = set()
        self.complete = True
        """Whether all addresses are compared."""

    def watch(self, batches: Iterable[Sequence[Sequence[Any]]], place: int) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield the lists of rows unchanged."""
        first, address_of = 1, itemgetter(place)
        for batch in batches:
            try:
                addresses = list(map(address_of, batch))
            except IndexError:
                addresses = [row[place] if len(row) > place else None for row in batch]
            # Selected rows know their numbers in the source.
            self._note(addresses, getattr(batch, "numbers", None) or range(first, first + len(batch)))
            first += len(batch)
            yield batch

    def several(self) -> list[int]:
        """Return the numbers of rows, from 1, whose address another row spells differently."""
        if self._unusual:
            self._usual.seek(0)
            while block := self._usual.read(1 << 19):
                self._several |= self._unusual.keys() & set(array("q", block))
        return sorted(self._unusual[key][1] for key in self._several)

    def close(self) -> None:
        """Remove the file."""
        self._usual.close()

    def _note(self, addresses: list[Any], numbers: Sequence[int]) -> None:
        if usual_text(addresses) is not None:
            self._usual.write(struct.pack(f"{len(addresses)}q", *map(hash, addresses)))
            return
        if len(addresses) > _PART:
            # One unusual address should not take the time of a thousand usual ones.
            for begin in range(0, len(addresses), _PART):
                self._note(addresses[begin : begin + _PART], numbers[begin : begin + _PART])
            return
        usual = array("q")
        for row, address in zip(numbers, addresses, strict=True):
            if not isinstance(address, str):
                continue
            spelling, key = address.strip(), address_key(address)
            if key == spelling:
                usual.append(hash(key))
            elif (known := self._unusual.get(hash(key))) is not None:
                if known[0] != hash(spelling):
                    self._several.add(hash(key))
            elif len(self._unusual) < MAX_UNUSUAL:
                self._unusual[hash(key)] = hash(spelling), row
            else:
                self.complete = False
        self._usual.write(usual.tobytes())


def usual_text(addresses: list[Any]) -> str | None:
    """Return addresses as lines if all have their usual spelling. One text, since this is the hot path of an import."""
    try:
        text = "\n".join(addresses)
    except TypeError:
        return None
    return text if text.isascii() and " " not in text and text == text.lower() else None
