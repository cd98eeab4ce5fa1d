"""An answer with a long list: its body in a file, and the list out of it piece by piece, in flat memory.

Nothing here guesses. Text is cut where an element seems to end, and a cut is right exactly if what it cuts off is JSON
by itself: within a text or within an element it is not. Together with the list's two ends, which are right exactly if
the answer is JSON without what lies between them, that proves as much as decoding the whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import TypeVar
from uuid import uuid4

import pydantic_core

T = TypeVar("T")

SMALL = 1 << 17
"""Bytes. A shorter answer is decoded whole; of a longer one so much is looked through for the list's two ends."""

PIECE = 1 << 17
"""Bytes of the list that are decoded at a time; more where an element is longer."""

MAX_ELEMENT = 1 << 22
"""Bytes of one element of the list: a longer one is none of the service's, and would be decoded as a whole."""

_MOST_ENDS = 64
"""So many places are tried for each end; an honest answer has one or two."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{},]', re.DOTALL)


class ListFile:
    """Takes an answer's body in; see `BodyReader`. Closing it removes the file.

    :param key: of the answer's object, the list.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._opening = re.compile(rf'"{re.escape(key)}"\s*:\s*\['.encode())
        self._file = SpooledTemporaryFile(max_size=SMALL)  # noqa: SIM115
        self._first = self._last = 0

    def restart(self) -> None:
        """Forget what came: another answer begins."""
        self._file.seek(0)
        self._file.truncate()
        self._first = self._last = 0

    def write(self, piece: bytes) -> None:
        """Take a piece of the body in."""
        self._file.write(piece)

    def whole(self) -> bytes:
        """The body."""
        self._file.seek(0)
        return self._file.read()

    @property
    def holds_list(self) -> bool:
        """Whether :meth:`rest` has left the list to :meth:`read`."""
        return self._last > 0

    def rest(self) -> bytes:
        """The body with an empty list; unchanged where it is small or the list's ends are not found."""
        size = self._file.seek(0, 2)
        if size <= SMALL:
            return self.whole()
        self._file.seek(0)
        head = self._file.read(SMALL)
        for opening in islice(self._opening.finditer(head), _MOST_ENDS):
            # Somewhere within another field, or in a text, it cannot be closed like this.
            if _object(head[: opening.end()] + b"]}") is not None:
                break
        else:
            return self.whole()
        head = head[: opening.end()]
        begin = max(len(head), size - SMALL)
        self._file.seek(begin)
        tail = self._file.read()
        if (end := self._end(head[:-1], tail)) is None:
            return self.whole()
        self._first, self._last = len(head), begin + end
        return head + tail[end:]

    def read(self, decode: Callable[[bytes], T]) -> Iterator[T]:
        """What ``decode`` makes of the list, of some elements at a time; as often as wanted.

        :param decode: takes a JSON array; raises :class:`ValueError` where it is none.
        :raises ValueError: when the list is no JSON.
        """
        position, buffer, wanted, cut = self._first, b"", PIECE, False
        while position < self._last:
            self._file.seek(position)  # in between somebody else may have read
            more = self._file.read(min(wanted, self._last - position))
            position += len(more)
            buffer += more
            if position == self._last:
                break
            if (found := _cut_off(buffer, decode)) is None:
                if len(buffer) > MAX_ELEMENT:
                    raise ValueError("an element of the list is too long")
                wanted = len(buffer)  # twice as much each time, or a long element would take for ever
                continue
            elements, buffer = found
            wanted, cut = PIECE, True
            yield elements
        yield decode(_array(buffer) if cut else b"[%b]" % buffer)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _end(self, head: bytes, tail: bytes) -> int | None:
        """Where in the tail the list ends; of several places at which it may the first."""
        mark = uuid4().hex
        end, place = None, len(tail)
        for _ in range(_MOST_ENDS):
            if (place := tail.rfind(b"]", 0, place)) < 0:
                break
            answer = _object(b'%s"%s"%s' % (head, mark.encode(), tail[place + 1 :]))
            if answer is not None:
                # Not if the key comes again behind the list: the last one counts.
                end = place if answer.get(self._key) == mark else None
        return end


def _object(text: bytes) -> dict[str, object] | None:
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _cut_off(buffer: bytes, decode: Callable[[bytes], T]) -> tuple[T, bytes] | None:
    """The elements that are whole, and what comes behind their comma; ``None`` when none is.

    :raises ValueError: when it is no JSON.
    """
    # The comma behind the last object is hardly ever in a text; looking for it costs nothing.
    likely = buffer.rfind(b"},") + 1
    if likely:
        try:
            return decode(b"[%b]" % buffer[:likely]), buffer[likely + 1 :]
        except ValueError:
            pass
    surely = _last_comma(buffer)
    return None if surely is None else (decode(_array(buffer[:surely])), buffer[surely + 1 :])


def _array(elements: bytes) -> bytes:
    """What stands before or behind a comma, as an array."""
    if not elements.strip(b" \t\n\r"):
        raise ValueError("a comma with nothing before or behind it")
    return b"[%b]" % elements


def _last_comma(buffer: bytes) -> int | None:
    """Where the last comma between two elements is."""
    comma, depth = None, 0
    for token in _TOKEN.finditer(buffer):
        match token[0]:
            case b'"':
                break  # a text that does not end here
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
                if depth < 0:
                    raise ValueError("a bracket that was not opened")
            case b",":
                comma = comma if depth else token.start()
    return comma
