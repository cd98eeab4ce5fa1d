"""The rows of an import: who each is, and the rows of each person, in buckets on disk."""

from __future__ import annotations

import pickle
import re
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec

from airflow_provider_mail.api._core.addresses import address_key
from airflow_provider_mail.api.flows.import_contacts import SelectedRows
from airflow_provider_mail.api.flows.validate_rows import as_text

Rows = Iterable[Sequence[Sequence[Any]]]

BUCKETS = 64
"""Parts of an audience, by a hash of the person. A million people are 16,000 in each: a few MB in memory."""

_KNOWN = 1 << 63
"""Set in the digest of a row, so that no digest is one of the small numbers of `state`."""
_BUFFERED_ROWS = 40_000
_PART = 50
"""Rows that are looked at one by one if the address of one of them is in an unusual spelling."""
_NUMBER_BITS = 32
"""Of a row's place: its number in the source, above which is the line of the file."""
_PLAIN = frozenset({str, int, bool, type(None)})
"""Types of values that JSON has as the import sends them."""
_UNFIT = re.compile(r"[\s\x00-\x1f]")
_ENCODER = msgspec.json.Encoder()


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
        # Only line breaks between the addresses, and no other white space.
        return keys if len(keys) == len(rows) and len(text.split()) == len(rows) else None

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
            return key if key and key.encode() and not _UNFIT.search(key) else None
        except UnicodeEncodeError:
            return None


def picked_rows(rows: SelectedRows, places: Sequence[int]) -> SelectedRows:
    """Return the rows at some places."""
    return SelectedRows(
        [rows[place] for place in places],
        [rows.numbers[place] for place in places],
        [rows.lines[place] for place in places] if rows.lines else (),
    )


def bucket_of(key: bytes) -> int:
    return zlib.crc32(key) % BUCKETS


def digests(lines: Sequence[bytes]) -> list[int]:
    """Return a number for each row, which differs if the row does.

    A digest is compared only with that of the same person's row before: by both sums, not one in 10^15 changes is
    missed. A cryptographic digest takes three times as long, half as long as reading the row.
    """
    pairs = zip(map(zlib.crc32, lines), map(zlib.adler32, lines), strict=True)
    return [_KNOWN | check << 32 | sum_ for check, sum_ in pairs]


def _encoded(row: Sequence[Any]) -> bytes:
    """Return a row as a line of JSON; nothing for one with a value that the import will reject."""
    texts = [as_text(value) for value in row]
    if not _PLAIN.issuperset(map(type, texts)):
        return b""
    try:
        return _ENCODER.encode(texts) + b"\n"
    except (ValueError, OverflowError):
        return b""


class People:
    """The rows of a source, by bucket, in a temporary file: of two rows of one person, the last one.

    Rows that nobody can be recognized in are kept as they are, since the import rejects each of them.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=1_000_000)  # noqa: SIM115
        self._segments: list[list[int]] = [[] for _ in range(BUCKETS)]
        self._buffers: list[list[tuple[bytes, bytes, int]]] = [[] for _ in range(BUCKETS)]
        self._buffered = 0
        self._odd: dict[int, Sequence[Any]] = {}
        self.unknown: list[tuple[int, Sequence[Any]]] = []
        """Place and values of the rows without a person."""
        self.repeated = 0
        """Rows of people who have a later row, in the buckets that were read."""

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def add(self, rows: SelectedRows, keys: Sequence[bytes]) -> None:
        """Add rows, with the keys of their people."""
        places: Sequence[int] = rows.numbers
        if rows.lines:
            places = [number | line << _NUMBER_BITS for number, line in zip(rows.numbers, rows.lines, strict=True)]
        lines = self._lines(rows, places)
        adders = [buffer.append for buffer in self._buffers]
        if b"" in keys:
            self.unknown += [(place, row) for place, row, key in zip(places, rows, keys, strict=True) if not key]
            for row in zip(keys, lines, places, strict=True):
                if row[0]:
                    adders[bucket_of(row[0])](row)
        else:
            for hash_, row in zip(map(zlib.crc32, keys), zip(keys, lines, places, strict=True), strict=True):
                adders[hash_ % BUCKETS](row)
        self._buffered += len(rows)
        if self._buffered >= _BUFFERED_ROWS:
            self._flush()

    def _lines(self, rows: SelectedRows, places: Sequence[int]) -> list[bytes]:
        """Return rows as lines of JSON, which are the same for the same values."""
        if _PLAIN.issuperset(map(type, chain.from_iterable(rows))):
            try:
                return _ENCODER.encode_lines(rows).splitlines(keepends=True)
            except (ValueError, OverflowError):
                pass
        lines = [_encoded(row) for row in rows]
        for index, line in enumerate(lines):
            if not line:
                self._odd[places[index]] = rows[index]
                lines[index] = f"{places[index]}\n".encode()
        return lines

    def _flush(self) -> None:
        for segments, buffer in zip(self._segments, self._buffers, strict=True):
            if buffer:
                keys, lines, places = zip(*buffer, strict=True)
                segments.append(self._file.tell())
                columns = (b"\n".join(keys), b"".join(lines), array("Q", places))
                pickle.dump(columns, self._file, pickle.HIGHEST_PROTOCOL)
                buffer.clear()
        self._buffered = 0

    def bucket(self, number: int) -> dict[bytes, tuple[bytes, int]]:
        """Return the row of each person of a bucket, by key: as JSON, and its place in the source."""
        self._flush()
        rows: dict[bytes, tuple[bytes, int]] = {}
        count = 0
        for offset in self._segments[number]:
            self._file.seek(offset)
            keys, lines, places = pickle.load(self._file)
            count += len(places)
            rows.update(zip(keys.split(b"\n"), zip(lines.splitlines(keepends=True), places, strict=True), strict=True))
        self._file.seek(0, 2)
        self.repeated += count - len(rows)
        return rows

    @staticmethod
    def number(place: int) -> int:
        """Return the number of a row in the source."""
        return place & ((1 << _NUMBER_BITS) - 1)

    def selected(self, rows: Iterable[Sequence[Any]]) -> SelectedRows:
        """Return rows to send.

        :param rows: line and place of each.
        """
        encoded, places = zip(*rows, strict=True)
        values = msgspec.json.decode(b"[" + b",".join(encoded) + b"]")
        if self._odd:
            values = [self._odd.get(place, row) for place, row in zip(places, values, strict=True)]
        return self._numbered(values, places)

    @staticmethod
    def _numbered(rows: Iterable[Sequence[Any]], places: Sequence[int]) -> SelectedRows:
        if max(places) >> _NUMBER_BITS == 0:
            return SelectedRows(rows, places)
        numbers = [place & ((1 << _NUMBER_BITS) - 1) for place in places]
        return SelectedRows(rows, numbers, [place >> _NUMBER_BITS for place in places])

    def without_person(self, size: int) -> Iterator[SelectedRows]:
        """Yield the rows that the import will reject, in lists of a size."""
        for begin in range(0, len(self.unknown), size):
            places, rows = zip(*self.unknown[begin : begin + size], strict=True)
            yield self._numbered(rows, places)
