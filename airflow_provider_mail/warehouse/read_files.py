"""Reads the rows of a file in constant memory: CSV, JSON Lines or Parquet."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

import msgspec

from airflow_provider_mail.api._core.responses import exact_number
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.rows import (
    ReadValue,
    UnreadableValue,
    batched,
    read_fields,
    read_float16,
    read_float32,
    read_items,
)

Row = tuple[Any, ...]
Batches = Iterator[list[Row]]

SUFFIXES = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
FORMATS = ("csv", "jsonl", "parquet")

MAX_ROW = 1_000_000
"""Limit for characters in a row of CSV and bytes in a line of JSON Lines. A longer one is a sign of a file of another
kind, which would be read into memory as a whole.
"""

_LINES, _PIECE = 500, 1 << 14
"""Lines of CSV that are parsed at once, if all are shorter than the second number."""

_SEPARATOR = re.compile(r"sep=([^\r\n\"])\r?\n?", re.IGNORECASE)

_DAMAGED = (EOFError, lzma.LZMAError, zlib.error)


class WrongWidth(tuple[Any, ...]):
    """A row that has too many or too few values."""

    problem: str

    @classmethod
    def of(cls, values: Sequence[Any], problem: str) -> WrongWidth:
        row = cls(values)
        row.problem = problem
        return row


class FileBatch(list[Any]):
    """Rows of a file with lines.

    :param lines: for each row the line of the file in which it begins, from 1.
    """

    def __init__(self, rows: Sequence[Any], lines: Sequence[int]) -> None:
        super().__init__(rows)
        self.lines = lines


def _numbered(rows: Iterator[tuple[int, Row]], size: int) -> Batches:
    """Yield rows, each of which comes with the line in which it begins, in lists."""
    for batch in batched(rows, size):
        lines, records = zip(*batch, strict=True)
        yield FileBatch(records, lines)


class FileRows(NamedTuple):
    """The rows of a file.

    :param total: number of rows; ``None`` unless the file states it.
    :param all_columns: the names of all columns, if some are not read; more may be found later.
    """

    columns: Sequence[str]
    batches: Batches
    total: int | None
    all_columns: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """How a file is read.

    :param escape: the character in CSV behind which one of meaning is a value, such as in ``\\"``.
    :param wanted: the columns that are needed. ``None``: all; a key of JSON Lines that the first rows lack is an error.
    :param may_be_empty: whether CSV may have no header: it has no columns then.
    """

    file_format: str
    compression: str | None = None
    encoding: str = "utf-8"
    delimiter: str = ","
    escape: str | None = None
    column_names: Sequence[str] | None = None
    wanted: Sequence[str] | None = None
    size: int = 5000
    may_be_empty: bool = False

    @property
    def utf8(self) -> bool:
        return self.encoding.lower().replace("_", "-") in ("utf-8", "utf8")


def form_of(name: str) -> tuple[str | None, str | None, str]:
    """Format, compression and delimiter, as far as a name shows them: ``a.tsv.gz`` is CSV with tabs, and gzip."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes[-2:]]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    last = ("", *suffixes)[-2 if compression else -1]
    return SUFFIXES.get(last), compression, "\t" if last == ".tsv" else ","


@contextmanager
def file_rows(file: IO[bytes], name: str, form: FileForm) -> Iterator[FileRows]:
    """Read a file once, from its beginning.

    :param name: its name, which error messages end with: log views cut them at the right.
    :raises WarehouseError: when the file is invalid, on entering or later; names the line, never its content.
    """
    line = [0]

    def run(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except (*_DAMAGED, WarehouseError, csv.Error, msgspec.DecodeError, OSError, ValueError) as error:
            message = _safe_message(error, form)
            if message is None:
                raise
            trace = error.__traceback__
        # Outside of `except`, so that an exception that may hold values is not chained.
        position = f", line {line[0]}" if line[0] else ""
        raise WarehouseError(f"path{position}: {message} ({name})").with_traceback(trace)

    def batches(rows: Batches) -> Batches:
        while (batch := run(lambda: next(rows, None))) is not None:
            yield batch

    with run(lambda: _decompressed(file, form)) as plain:
        read: FileRows = run(lambda: _READERS[form.file_format](plain, form, line))
        yield read._replace(batches=batches(read.batches))


def _safe_message(error: Exception, form: FileForm) -> str | None:
    """Describe an error without values; ``None`` when it is not about the file's content."""
    if isinstance(error, WarehouseError):
        return str(error)
    if isinstance(error, UnicodeError):
        return f"is not {form.encoding} (the encoding argument says which it is)"
    if isinstance(error, csv.Error):
        # Its messages never quote a field.
        return f"is no CSV with {form.delimiter!r} between the values: {error}"
    if isinstance(error, msgspec.DecodeError):
        return f"is no JSON object: {str(error).partition(' - ')[0]}"
    if type(error).__module__.startswith("pyarrow"):
        return f"cannot be read as {form.file_format}: {str(error).partition(chr(10))[0]}"
    if isinstance(error, _DAMAGED) or (form.compression and isinstance(error, OSError) and error.errno is None):
        return f"is cut short or damaged, or not compressed with {form.compression}"
    return None


def _decompressed(file: IO[bytes], form: FileForm) -> Any:
    compression = form.compression
    if compression is None:
        return nullcontext(file)
    if form.file_format == "parquet":
        raise WarehouseError("a Parquet file is compressed internally: compression must be 'none'")
    opened: Mapping[str, Callable[[IO[bytes]], Any]]
    opened = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zstd": _zstd}
    return opened[compression](file)


def _zstd(file: IO[bytes]) -> Any:
    # Not zstandard's own reader, which does not notice a truncated file.
    try:
        import pyarrow
    except ImportError as error:
        raise WarehouseError(f"zstd needs pyarrow ({error}); pip install 'airflow-provider-mail[parquet]'") from None
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")


def _csv(file: IO[bytes], form: FileForm, line: list[int]) -> FileRows:
    # The wrapper must not close the caller's file, not even when it is collected.
    plain = io.BufferedReader(_UnownedFile(file), 1 << 20)
    text = io.TextIOWrapper(plain, encoding=_encoding(plain, form), newline="")
    pieces = iter(partial(text.readline, _PIECE), "")
    waiting: deque[str] = deque()
    failure: UnicodeDecodeError | None = None
    row, size, taken, width, delimiter = 1, 0, 0, 0, form.delimiter

    def fill() -> bool:
        """Return whether lines are waiting, after reading some if there are none."""
        nonlocal failure
        if not waiting and failure is None:
            try:
                waiting.extend(islice(pieces, _LINES))
            except UnicodeDecodeError as error:
                failure = error
        if not waiting and failure is not None:
            # Text is decoded some lines ahead.
            line[0] = taken + 1 + failure.object[: failure.start].count(b"\n")
            raise failure
        return bool(waiting)

    def lines() -> Iterator[str]:
        nonlocal size, taken
        while fill():
            piece = waiting.popleft()
            while size + len(piece) < MAX_ROW and not piece.endswith(("\n", "\r")) and fill():
                piece += waiting.popleft()
            # A quoted value may span lines.
            size += len(piece)
            if size >= MAX_ROW:
                raise WarehouseError(
                    f"row {row} is longer than {MAX_ROW:,} characters: is a quotation mark not closed, or is it no CSV?"
                )
            taken += 1
            yield piece

    def reader(of: Iterable[str]) -> Any:
        return csv.reader(of, delimiter=delimiter, escapechar=form.escape, strict=True)

    def one_by_one() -> Iterator[tuple[int, Row]]:
        """Yield the rows of the waiting lines, and of those that the last one needs."""
        nonlocal row, size
        began = line[0] = taken + 1
        for values in reader(lines()):
            row, size, line[0] = row + 1, 0, taken + 1
            if values:
                # CSV has no other form of a missing value.
                record = tuple(value or None for value in values)
                if len(record) != width and width:
                    record = WrongWidth.of(record, f"has {len(record)} values instead of {width}")
                yield began, record
            began = line[0]
            if values and not waiting:
                return

    def at_once() -> list[Row] | None:
        """Return the rows of the waiting lines, if each is one row of the usual width."""
        nonlocal row, taken
        try:
            found = [*reader(waiting)]
        except csv.Error:
            return None
        if len(found) != len(waiting) or {*map(len, found)} != {width} or max(map(len, waiting)) >= _PIECE:
            return None
        row, taken = row + len(found), taken + len(found)
        waiting.clear()
        return [tuple(values) if all(values) else tuple(value or None for value in values) for values in found]

    def batches() -> Batches:
        records: list[Row] = []
        begins: list[int] = []
        while fill():
            first = taken + 1
            if (found := at_once()) is not None:
                begins += range(first, first + len(found))
                records += found
            for began, record in one_by_one() if found is None else ():
                begins.append(began)
                records.append(record)
                if len(records) == form.size:  # before what follows may fail
                    yield FileBatch(records, begins)
                    records, begins = [], []
            while len(records) >= form.size:
                yield FileBatch(records[: form.size], begins[: form.size])
                del records[: form.size], begins[: form.size]
        if records:
            yield FileBatch(records, begins)

    if fill() and (declared := _SEPARATOR.fullmatch(waiting[0])):  # as Excel writes it
        delimiter, taken = declared[1], 1
        waiting.popleft()
    if form.column_names is not None:
        width = len(form.column_names)
        return FileRows(list(form.column_names), batches(), None)
    _, header = next(one_by_one(), (0, None))
    if header is None and form.may_be_empty:
        return FileRows([], iter(()), None)
    if header is None:
        raise WarehouseError("is empty: a line with the names of the columns is needed (or column_names)")
    if not any(header):
        raise WarehouseError("no column has a name (column_names, if this line is no header)")
    width = len(header)
    # A column without a name, such as the index of pandas, cannot be mapped.
    return FileRows([str(name or "").strip() for name in header], batches(), None)


def _json_lines(file: IO[bytes], form: FileForm, line: list[int]) -> FileRows:
    objects = _objects(file, form, line)
    first = list(islice(objects, form.size))
    names = list(dict.fromkeys(chain.from_iterable(record for _, record in first)))
    # All names of the first rows, so that the caller notices a misspelled one before anything is sent.
    columns = list(form.wanted) if form.wanted is not None and set(form.wanted) <= set(names) else [*names]
    known_names = set(names)

    def row(numbered: tuple[int, Mapping[str, Any]]) -> tuple[int, Row]:
        number, record = numbered
        if not known_names.issuperset(record):
            if form.wanted is None:
                raise WarehouseError(
                    f"has a key that none of the first {form.size} rows has. Say what is imported with "
                    'columns={"<key>": "<property>"}; keys left out there are not sent'
                )
            names.extend(name for name in record if name not in known_names)
            known_names.update(record)
        return number, tuple(record.get(name) for name in columns)

    # The iterator, unlike the list, is released when its rows have been read.
    return FileRows(columns, _numbered(map(row, chain(iter(first), objects)), form.size), None, names)


def _objects(file: IO[bytes], form: FileForm, line: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    plain = io.BufferedReader(_UnownedFile(file), 1 << 20)
    decode = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number).decode
    lines: Any = plain
    if (encoding := _encoding(plain, form)) != "utf-8-sig":
        lines = io.TextIOWrapper(plain, encoding=encoding, newline="\n")
    while text := lines.readline(MAX_ROW):
        line[0] += 1
        if len(text) == MAX_ROW:
            raise WarehouseError(f"is longer than {MAX_ROW:,} bytes: is it one JSON object a line?")
        if line[0] == 1 and lines is plain:
            text = text.removeprefix(codecs.BOM_UTF8)
        if not text.isspace():
            try:
                record = decode(text)
            except msgspec.DecodeError:
                if (fallback := _with_surrogates(text)) is None:
                    raise
                record = fallback
            yield line[0], record


def _with_surrogates(text: str | bytes) -> dict[str, Any] | None:
    """Decode an object with half a surrogate pair, so that its row is rejected and names the column."""
    try:
        decoded = json.loads(text)
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) else None


def _encoding(plain: io.BufferedReader[_UnownedFile], form: FileForm) -> str:
    """The encoding that the byte order mark shows, which must not become part of a name, or else the given one."""
    if not form.utf8:
        return form.encoding
    return "utf-16" if plain.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def _parquet(file: IO[bytes], form: FileForm, line: list[int]) -> FileRows:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise WarehouseError(
            f"Parquet needs pyarrow ({error}); pip install 'airflow-provider-mail[parquet]', or write CSV or JSON "
            "Lines, which need nothing"
        ) from None
    opened = pyarrow.parquet.ParquetFile(file)
    names = opened.schema_arrow.names
    selected = names if form.wanted is None or not set(form.wanted) <= set(names) else list(form.wanted)

    def batches() -> Batches:
        for batch in opened.iter_batches(batch_size=form.size, columns=selected):
            # Columns have the file's order, not that of `wanted`.
            columns = [_python_values(batch.column(batch.schema.get_field_index(name))) for name in selected]
            yield list(zip(*columns, strict=True))

    return FileRows(selected, batches(), opened.metadata.num_rows, names)


def _python_values(column: Any) -> list[Any]:
    """The values of a column of Arrow; those that Python cannot represent as `UnreadableValue`."""
    import pyarrow

    arrow_type = column.type
    if getattr(arrow_type, "unit", "") == "ns":  # Python's times have microseconds
        if pyarrow.types.is_timestamp(arrow_type):
            microseconds = pyarrow.timestamp("us", tz=arrow_type.tz)
        else:
            microseconds = pyarrow.time64("us") if pyarrow.types.is_time(arrow_type) else pyarrow.duration("us")
        column = column.cast(microseconds, safe=False)
    try:
        values = list(column.to_pylist())
    except (ArithmeticError, ValueError):
        values = [_python_value(scalar) for scalar in column]
    read = _reader(arrow_type)
    return [*map(read, values)] if read else values


def _reader(arrow_type: Any) -> ReadValue | None:
    """The conversion that the values of a type need, which Arrow returns in a wider type."""
    from pyarrow import types

    if types.is_float16(arrow_type) or types.is_float32(arrow_type):
        return read_float16 if types.is_float16(arrow_type) else read_float32
    if types.is_struct(arrow_type):
        return read_fields({field.name: _reader(field.type) for field in arrow_type})
    if types.is_map(arrow_type):
        item = _reader(arrow_type.item_type)
        return item and (lambda pairs: pairs if pairs is None else [(key, item(value)) for key, value in pairs])
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):  # of one value a row
        return _reader(arrow_type.value_type)
    return read_items(_reader(arrow_type.value_type)) if hasattr(arrow_type, "value_type") else None


def _python_value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ArithmeticError, ValueError):
        return UnreadableValue()


class _UnownedFile(io.RawIOBase):
    """The caller's file for Python's buffers: of any kind, and not closed with them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._file.read(len(buffer))
        buffer[: len(read)] = read
        return len(read)


_READERS: Mapping[str, Callable[[IO[bytes], FileForm, list[int]], FileRows]] = {
    "csv": _csv,
    "jsonl": _json_lines,
    "parquet": _parquet,
}
