"""Reads the rows of a file in constant memory: CSV, JSON Lines or Parquet."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

import msgspec

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.rows import batched

Row = tuple[Any, ...]
Batches = Iterator[list[Row]]

SUFFIXES = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
FORMATS = ("csv", "jsonl", "parquet")

MAX_ROW = 1_000_000
"""Limit for characters in a row of CSV and bytes in a line of JSON Lines. A longer one is a sign of a file of another
kind, which would be read into memory as a whole.
"""

_DAMAGED = (EOFError, lzma.LZMAError, zlib.error)


class FileRows(NamedTuple):
    """The rows of a file.

    :param columns: names of the columns, by position.
    :param batches: the rows, in lists.
    :param total: number of rows; ``None`` unless the file states it.
    """

    columns: Sequence[str]
    batches: Batches
    total: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """How a file is read.

    :param file_format: ``csv``, ``jsonl`` or ``parquet``.
    :param compression: ``gzip``, ``bz2``, ``xz``, ``zstd`` or ``None``.
    :param encoding: character encoding of CSV and JSON Lines.
    :param delimiter: the character between the values of CSV.
    :param column_names: names of the columns of CSV without a header.
    :param wanted: the columns that are needed. ``None``: all; a key of JSON Lines that the first rows lack is an error.
    :param size: the largest number of rows in a list.
    """

    file_format: str
    compression: str | None = None
    encoding: str = "utf-8"
    delimiter: str = ","
    column_names: Sequence[str] | None = None
    wanted: Sequence[str] | None = None
    size: int = 5000

    @property
    def utf8(self) -> bool:
        """Whether the encoding is UTF-8, in any spelling."""
        return self.encoding.lower().replace("_", "-") in ("utf-8", "utf8")


def form_of(name: str) -> tuple[str | None, str | None, str]:
    """Infer format, compression and delimiter from a file's name.

    :param name: the name; ``contacts.tsv.gz`` is CSV with tabs, and gzip.
    :return: the three; format and compression are ``None`` when the name does not show them.
    """
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes[-2:]]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    last = ("", *suffixes)[-2 if compression else -1]
    return SUFFIXES.get(last), compression, "\t" if last == ".tsv" else ","


@contextmanager
def file_rows(file: IO[bytes], name: str, form: FileForm) -> Iterator[FileRows]:
    """Read a file once, from its beginning.

    :param file: the file, open for reading bytes.
    :param name: its name, for errors.
    :param form: how it is read.
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
        where = f", line {line[0]}" if line[0] else ""
        raise WarehouseError(f"{name}{where}: {message}").with_traceback(trace)

    def batches(rows: Batches) -> Batches:
        while (batch := run(lambda: next(rows, None))) is not None:
            yield batch

    with run(lambda: _decompressed(file, form)) as plain:
        columns, rows, total = run(lambda: _READERS[form.file_format](plain, form, line))
        yield FileRows(columns, batches(rows), total)


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
    """A context manager for the decompressed file."""
    kind = form.compression
    if kind is None:
        return nullcontext(file)
    if form.file_format == "parquet":
        raise WarehouseError("a Parquet file is compressed internally: compression must be 'none'")
    if kind == "zstd":
        return _zstd(file)
    opened: Mapping[str, Callable[[IO[bytes]], Any]] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}
    return opened[kind](file)


def _zstd(file: IO[bytes]) -> Any:
    # Not zstandard's own reader, which does not notice a truncated file.
    try:
        import pyarrow
    except ImportError as error:
        raise WarehouseError(f"zstd needs pyarrow ({error}); pip install 'airflow-provider-mail[parquet]'") from None
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")


def _csv(file: IO[bytes], form: FileForm, line: list[int]) -> tuple[Sequence[str], Batches, None]:
    # A byte order mark, as spreadsheets write one, is not part of a name.
    encoding = "utf-8-sig" if form.utf8 else form.encoding
    # The wrapper must not close the caller's file, not even when it is collected.
    text = io.TextIOWrapper(io.BufferedReader(_UnownedFile(file), 1 << 20), encoding=encoding, newline="")
    row, size = 1, 0

    def lines() -> Iterator[str]:
        nonlocal size
        while piece := text.readline(MAX_ROW):
            # A quoted value may span lines.
            size += len(piece)
            if size >= MAX_ROW:
                raise WarehouseError(
                    f"row {row} is longer than {MAX_ROW:,} characters: is a quotation mark not closed, or is it no CSV?"
                )
            yield piece

    reader = csv.reader(lines(), delimiter=form.delimiter, strict=True)

    def rows() -> Iterator[Row]:
        nonlocal row, size
        line[0] = 1
        try:
            for values in reader:
                line[0] = reader.line_num + 1
                row, size = row + 1, 0
                if values:
                    # CSV has no other form of a missing value.
                    yield tuple(value or None for value in values)
        except UnicodeDecodeError as error:
            # Text is decoded some lines ahead.
            line[0] = reader.line_num + 1 + error.object[: error.start].count(b"\n")
            raise

    found = rows()
    if form.column_names is not None:
        return list(form.column_names), batched(found, form.size), None
    header = next(found, None)
    if header is None:
        raise WarehouseError("is empty: a line with the names of the columns is needed (or column_names)")
    if None in header:
        raise WarehouseError(f"column {header.index(None) + 1} has no name (column_names, if this line is no header)")
    return [str(name).strip() for name in header], batched(found, form.size), None


def _json_lines(file: IO[bytes], form: FileForm, line: list[int]) -> tuple[Sequence[str], Batches, None]:
    objects = _objects(file, form, line)
    first = list(islice(objects, form.size))
    seen = list(dict.fromkeys(chain.from_iterable(first)))
    # All names of the first rows, so that the caller notices a misspelt one before anything is sent.
    columns = list(form.wanted) if form.wanted is not None and set(form.wanted) <= set(seen) else seen
    known = set(columns)

    def row(found: Mapping[str, Any]) -> Row:
        if form.wanted is None and not known.issuperset(found):
            raise WarehouseError(
                f"has a key that none of the first {form.size} rows has. Say what is imported with "
                'columns={"<key>": "<property>"}; keys left out there are not sent'
            )
        return tuple(found.get(name) for name in columns)

    return columns, batched(map(row, chain(_drained(first), objects)), form.size), None


def _drained(rows: list[Any]) -> Iterator[Any]:
    rows.reverse()
    while rows:
        yield rows.pop()


def _objects(file: IO[bytes], form: FileForm, line: list[int]) -> Iterator[dict[str, Any]]:
    plain = io.BufferedReader(_UnownedFile(file), 1 << 20)
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    utf8 = form.utf8
    while text := plain.readline(MAX_ROW):
        line[0] += 1
        if len(text) == MAX_ROW:
            raise WarehouseError(f"is longer than {MAX_ROW:,} bytes: is it one JSON object a line?")
        if line[0] == 1:
            text = text.removeprefix(b"\xef\xbb\xbf")
        if not text.isspace():
            yield decode(text if utf8 else text.decode(form.encoding))


def _parquet(file: IO[bytes], form: FileForm, line: list[int]) -> tuple[Sequence[str], Batches, int]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise WarehouseError(
            f"Parquet needs pyarrow ({error}); pip install 'airflow-provider-mail[parquet]', or write CSV or JSON "
            "Lines, which need nothing"
        ) from None
    opened = pyarrow.parquet.ParquetFile(file)
    names = opened.schema_arrow.names
    wanted = names if form.wanted is None or not set(form.wanted) <= set(names) else list(form.wanted)

    def batches() -> Batches:
        for batch in opened.iter_batches(batch_size=form.size, columns=wanted):
            # Columns have the file's order, not that of `wanted`.
            columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in wanted]
            yield list(zip(*columns, strict=True))

    return wanted, batches(), opened.metadata.num_rows


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


_READERS: Mapping[str, Callable[[IO[bytes], FileForm, list[int]], tuple[Sequence[str], Batches, int | None]]] = {
    "csv": _csv,
    "jsonl": _json_lines,
    "parquet": _parquet,
}
