"""The rows of an import: who each is, and the rows of each person, in buckets on disk."""

from __future__ import annotations

import itertools
import sys
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, compress, repeat
from operator import call, itemgetter
from typing import Any, TypeAlias

import msgspec

from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.flows.import_contacts import SelectedRows
from airflow_provider_mail.api.flows.validate_rows import as_text

Rows = Iterable[Sequence[Sequence[Any]]]

BUCKETS = 64
"""Parts of an audience, by a hash of the person. A million people are 16,000 in each: a few MB in memory."""

LEFT_OUT, TO_SEND, ACCEPTED, REJECTED = range(4)
"""What is known of a row: that it is not sent, is to be sent or was and is in doubt, or the service's answer."""

_SPOOLED_ROWS = 40_000
_PART = 50
"""Rows that are looked at one by one if the address of one of them is in an unusual spelling."""
_PLAIN = frozenset({str, int, bool, type(None)})
"""Types of values that JSON gives back as they were."""
_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder()

_Part: TypeAlias = tuple[bytes, "array[int]", "array[int]"]
"""Keys, digests and numbers of some rows of a bucket."""


class Identity:
    """Who the person of a row is: the address in its one spelling, or the phone number of a row without one.

    :param properties: the property of each value of a row, by position.
    """

    def __init__(self, properties: Sequence[str]) -> None:
        self.email = properties.index("email") if "email" in properties else None
        self.phone = properties.index("phoneNumber") if "phoneNumber" in properties else None
        self._width = len(properties)

    def keyed(self, rows: Sequence[Sequence[Any]]) -> tuple[Sequence[Sequence[Any]], list[bytes]]:
        """Return rows with each address in the spelling that is sent, and the key of each row's person.

        A key is empty for a row that the import will reject.
        """
        if (keys := self._usual(rows)) is not None:
            return rows, keys
        if len(rows) > _PART:
            # One unusual address should not take the time of a thousand usual ones.
            parts = [self.keyed(rows[begin : begin + _PART]) for begin in range(0, len(rows), _PART)]
            return list(chain.from_iterable(part for part, _ in parts)), list(chain.from_iterable(k for _, k in parts))
        spelled, keys = [], []
        for row in rows:
            key = self.key(row)
            if key is not None and self.email is not None and key != row[self.email] and not key.startswith("tel:"):
                row = [*row[: self.email], key, *row[self.email + 1 :]]
            spelled.append(row)
            keys.append(b"" if key is None else key.encode())
        return spelled, keys

    def spelled(self, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """Return rows with each address in the spelling that is sent: the same rows if all have it."""
        try:
            text = "" if self.email is None else "\n".join([row[self.email] or "" for row in rows])
        except (TypeError, IndexError):
            return self.keyed(rows)[0]
        is_usual = text.isascii() and text == text.lower() and ".\n" not in f"{text}\n"
        return rows if is_usual else self.keyed(rows)[0]

    def _usual(self, rows: Sequence[Sequence[Any]]) -> list[bytes] | None:
        """Return the keys if all addresses have their usual spelling. One text, since this is the hot path."""
        if self.email is None or set(map(len, rows)) != {self._width}:
            return None
        try:
            text = "\n".join(map(itemgetter(self.email), rows))
        except TypeError:
            return None
        # One "@" for each row: a text without one is no address, and no person's key.
        if not text.isascii() or text != text.lower() or text.count("@") != len(rows):
            return None
        keys = text.encode().split(b"\n")
        # Only line breaks between the addresses, no other white space, and no dot at the end of one.
        is_usual = len(keys) == len(rows) and len(text.split()) == len(rows) and ".\n" not in f"{text}\n"
        return keys if is_usual else None

    def key(self, row: Sequence[Any]) -> str | None:
        """Return the key by which people are compared; ``None`` for a row that the import will reject."""
        if len(row) != self._width:
            return None
        key = None
        if self.email is not None and (value := row[self.email]) not in (None, ""):
            is_address = isinstance(value, str) and value == value.strip() and "@" in value
            key = address_key(value) if is_address else None
        elif self.phone is not None and (value := row[self.phone]) not in (None, ""):
            key = f"tel:{value}" if isinstance(value, str | int) else None
        try:
            return key if key and key.encode() and "\n" not in key else None
        except UnicodeEncodeError:
            return None


def split(lines: bytes) -> list[bytes]:
    """Return people, of which there is a line each."""
    return lines.split(b"\n") if lines else []


def bucket_of(key: bytes) -> int:
    # The upper half of Adler-32 spreads addresses as evenly as CRC-32, in half of the time.
    return (zlib.adler32(key) >> 16) % BUCKETS


_THIRD_BYTE = slice(2 if sys.byteorder == "little" else 1, None, 4)
_BUCKET_OF_BYTE = bytes(byte % BUCKETS for byte in range(256))


def _no_parts() -> tuple[list[Any], ...]:
    return tuple([new() for _ in range(BUCKETS)] for new in (list, partial(array, "I"), partial(array, "I")))


def _encoded(row: Sequence[Any]) -> bytes:
    """Return a row as a line of JSON; nothing for one with a value that the import will reject."""
    values = [value if type(value) in _PLAIN else as_text(value) for value in row]
    if _PLAIN.issuperset(map(type, values)):
        with suppress(ValueError, OverflowError):
            return _ENCODER.encode(values)
    return b""


class People:
    """The rows of a source, in temporary files: in their order, and by bucket a digest of the row of each person.

    Of two rows of one person the last one counts. A row without a person is always to be sent: the import rejects it.
    The digest of a row, its CRC-32, is compared only with that of the same person's row before: every change of up to
    four bytes is seen, and of others all but one in four billion. It takes a tenth of the time of a cryptographic one.

    :param mapping: what the values are: the same ones of another mapping have other digests.
    """

    def __init__(self, mapping: object = "") -> None:
        self._seed = zlib.crc32(repr(mapping).encode())
        self._rows: Spool[tuple[Any, Sequence[int], Sequence[int]]] = Spool()
        self._buckets: list[Spool[_Part]] = [Spool() for _ in range(BUCKETS)]
        self._added = _no_parts()
        """By bucket, keys, digests and numbers of rows that are not yet in the files."""
        self._waiting = 0
        self._chunks: dict[int, Sequence[int]] = {}
        self.marks = bytearray(1)
        """What is known of each row, by its number."""
        self.unknown: list[int] = []
        """Numbers of the rows without a person."""
        self.count = 0

    def close(self) -> None:
        """Remove the files."""
        self._rows.close()
        for spool in self._buckets:
            spool.close()

    def add(self, rows: SelectedRows, keys: Sequence[bytes]) -> None:
        """Add rows, with the keys of their people."""
        if not rows:
            return
        self.count += len(rows)
        self.marks += bytes([TO_SEND]) * (rows.numbers[-1] + 1 - len(self.marks))
        content, lines = self._lines(rows)
        self._rows.add((content, rows.numbers, rows.lines))
        columns: Any = (keys, map(zlib.crc32, lines, repeat(self._seed)), rows.numbers)
        if b"" in keys:
            self.unknown += [number for number, key in zip(rows.numbers, keys, strict=True) if not key]
            columns = [list(compress(column, keys)) for column in columns]
        # `bucket_of` for all keys at once. A loop in Python would take as long as all the rest.
        places = array("I", map(zlib.adler32, columns[0])).tobytes()[_THIRD_BYTE].translate(_BUCKET_OF_BYTE)
        for added, column in zip(self._added, columns, strict=True):
            adders = [each.append for each in added]
            deque(map(call, map(adders.__getitem__, places), column), maxlen=0)
        self._waiting += len(rows)
        if self._waiting >= _SPOOLED_ROWS:
            self._flush()

    @staticmethod
    def _lines(rows: SelectedRows) -> tuple[bytes | list[Sequence[Any]], list[bytes]]:
        """Return what keeps the rows, and each as a line of JSON, which is the same for the same values."""
        # In msgspec 0.19, its errors are no `ValueError`.
        with suppress(msgspec.ValidationError, ValueError, OverflowError):
            msgspec.convert(rows, list[tuple[str | int | bool | None, ...]])
            content = _ENCODER.encode_lines(rows)
            return content, content.splitlines()
        return list(rows), [_encoded(row) for row in rows]

    def _flush(self) -> None:
        """Write the people that were added since the last time to the files."""
        for spool, keys, digests, numbers in zip(self._buckets, *self._added, strict=True):
            if keys:
                spool.add((b"\n".join(keys), digests, numbers))
        self._added, self._waiting = _no_parts(), 0

    def bucket(self, bucket: int, known: bytes = b"") -> tuple[bytes, array[int], array[int]]:
        """Return the people of a bucket, a line each, with digests and numbers of their rows.

        Earlier rows of a person need not be sent.

        :param known: different people: if they are these, nobody has an earlier row.
        """
        if self._waiting:
            self._flush()
        parts = list(self._buckets[bucket])
        digests, numbers = array("I"), array("I")
        for part in parts:
            digests += part[1]
            numbers += part[2]
        lines = b"\n".join(part[0] for part in parts)
        if lines != known and len(set(keys := lines.split(b"\n"))) < len(keys):
            last = dict(zip(keys, itertools.count(), strict=False))
            for number in set(numbers).difference(map(numbers.__getitem__, last.values())):
                self.marks[number] = LEFT_OUT
            lines = b"\n".join(last)
            digests, numbers = (array("I", map(each.__getitem__, last.values())) for each in (digests, numbers))
        return lines, digests, numbers

    def people(self) -> Iterator[tuple[bytes, int]]:
        """Yield each person, and the number of the row."""
        for bucket in range(BUCKETS):
            lines, _, numbers = self.bucket(bucket)
            yield from zip(split(lines), numbers, strict=True)

    def send_only(self, rows: Iterable[Sequence[int]]) -> None:
        """Let only some rows be sent, by their numbers."""
        self.marks = marks = bytearray(len(self.marks))
        for numbers in rows:
            for number in numbers:
                marks[number] = TO_SEND

    def to_send(self, size: int) -> Iterator[SelectedRows]:
        """Yield the rows that are to be sent, in lists of a size. The import calls `accepted` for each list."""
        waiting: tuple[list[Any], ...] = ([], [], [])
        chunk = itertools.count()

        def made(rows: Any, numbers: Sequence[int], lines: Sequence[int]) -> SelectedRows:
            self._chunks[next(chunk)] = numbers
            if isinstance(rows, bytes):
                encoded = b"[" + rows[:-1].replace(b"\n", b",") + b"]"
            elif {*map(type, rows)} == {bytes}:
                encoded = b"[" + b",".join(rows) + b"]"
            else:
                decoded = (_DECODER.decode(row) if type(row) is bytes else row for row in rows)
                return SelectedRows(decoded, numbers, lines)
            return SelectedRows(_DECODER.decode(encoded), numbers, lines, encoded)

        for content, numbers, lines in self._rows:
            # Nearly always all numbers between the first and the last one.
            marks: Any = self.marks[numbers[0] : numbers[-1] + 1]
            if len(marks) > len(numbers):
                marks = bytes(map(self.marks.__getitem__, numbers))
            if TO_SEND not in marks:
                continue
            if isinstance(content, bytes):
                if len(numbers) == size and LEFT_OUT not in marks and not waiting[0]:
                    yield made(content, numbers, lines)
                    continue
                content = content.splitlines()
            for each, some in zip(waiting, (content, numbers, lines), strict=True):
                each += some if LEFT_OUT not in marks else compress(some, marks)
            while len(waiting[0]) >= size:
                yield made(*(each[:size] for each in waiting))
                for each in waiting:
                    del each[:size]
        if waiting[0]:
            yield made(*waiting)

    # --- the checkpoint of the import ---

    def lookup(self, chunk: int, first_number: int, checked: Any) -> None:
        """Let all rows be sent."""

    def prepare(self, chunk: int) -> None:
        """Nothing."""

    def accepted(self, chunk: int, rejected: Sequence[int]) -> None:
        """Note that the service has accepted a chunk, but for the rows that were reported as rejected."""
        numbers = self._chunks.pop(chunk)
        # All rows between the first and the last one that are to be sent are in this chunk.
        own = slice(numbers[0], numbers[-1] + 1)
        self.marks[own] = self.marks[own].replace(bytes([TO_SEND]), bytes([ACCEPTED]))
