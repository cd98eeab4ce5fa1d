"""Writes rows of a declared table as a file: Parquet or JSON Lines."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.rows import Encoder, Source, aware, each, json_text
from airflow_provider_mail.warehouse.table import Table

if TYPE_CHECKING:
    import pyarrow

Rows = Iterable[Sequence[Any]]


def check_format(file_format: str) -> None:
    """Check that a format is known and its package installed.

    :raises WarehouseError: naming the package to install.
    """
    if file_format not in FORMATS:
        raise WarehouseError(f"file_format: {file_format!r} is none of {', '.join(FORMATS)}")
    if file_format == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise WarehouseError(
                f"file_format: 'parquet' needs pyarrow ({error}); pip install 'airflow-provider-mail[parquet]', "
                "or use file_format='jsonl', which needs nothing"
            ) from error


def _json_lines(table: Table, rows: Rows, first: int) -> bytes:
    """Encode one JSON object per row, in UTF-8.

    Dates are ``YYYY-MM-DD``, times ISO 8601 in UTC with microseconds.
    """
    encoder = Encoder(table, each({"date": datetime.date.isoformat, "timestamp": _iso_utc, "json": json_text}))
    columns = [
        # Checked as text, written as values: warehouses read objects into columns for JSON.
        [None if value is None else json.loads(value) for value in values] if column.type.name == "json" else values
        for column, values in zip(table.columns, encoder.columns(first, list(rows)), strict=True)
    ]
    lines = (
        json.dumps(
            dict(zip(table.names, values, strict=True)), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        for values in zip(*columns, strict=True)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _parquet(table: Table, rows: Rows, first: int) -> bytes:
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(arrow_table(table, rows, first), file)
    return file.getvalue()


def arrow_table(table: Table, rows: Rows, first: int = 1) -> pyarrow.Table:
    """Build an Arrow table with the table's columns; times are microseconds in UTC, JSON is text."""
    import pyarrow

    columns = _encoder(table).columns(first, list(rows))
    schema = _schema(table)
    arrays = [pyarrow.array(values, field.type) for field, values in zip(schema, columns, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


FORMATS: Mapping[str, Callable[[Table, Rows, int], bytes]] = {"parquet": _parquet, "jsonl": _json_lines}
"""Encodes rows to a file, by the name of the format, which is the extension of the file, too."""


def encode(table: Table, rows: Rows, file_format: str, *, written: Sequence[Any], first: int = 1) -> bytes:
    """Encode a file with the rows of a load.

    :param written: the values of the table's ``load_columns``, in all rows.
    """
    return FORMATS[file_format](table.as_stored, [(*row, *written) for row in rows], first)


def encode_files(
    table: Table, source: Source, file_format: str, *, rows_per_file: int, written: Sequence[Any]
) -> Iterator[tuple[int, bytes]]:
    """Encode the rows of a load as files; yield the number of rows of each, and its content.

    :param written: the values of the table's ``load_columns``, in all rows.
    """
    return source.batches(
        rows_per_file,
        _encoder(table),
        lambda first, rows: encode(table, rows, file_format, written=written, first=first),
    )


def decode(table: Table, content: bytes, file_format: str) -> list[tuple[Any, ...]]:
    """Return the rows of a file of this table, without the values of ``load_columns``; absent columns are ``None``."""
    if file_format == "parquet":
        import pyarrow.parquet

        records = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
    else:
        records = [json.loads(line) for line in content.splitlines()]
    parse = {"date": datetime.date.fromisoformat, "timestamp": datetime.datetime.fromisoformat, "json": _from_json}
    converts = [parse.get(column.type.name, str) for column in table.columns]
    return [
        tuple(
            convert(value) if isinstance(value := record.get(name), str) else value
            for name, convert in zip(table.names, converts, strict=True)
        )
        for record in records
    ]


def _from_json(text: str) -> Any:
    return json.loads(text) if text[:1] in "[{" else text


def _encoder(table: Table) -> Encoder:
    return Encoder(table, each({"timestamp": aware, "json": json_text}))


def _schema(table: Table) -> pyarrow.Schema:
    import pyarrow

    types = {
        "text": pyarrow.string(),
        "bigint": pyarrow.int64(),
        "integer": pyarrow.int32(),
        "double": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "date": pyarrow.date32(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "json": pyarrow.string(),
    }
    return pyarrow.schema(
        [pyarrow.field(column.name, types[column.type.name], column.nullable) for column in table.columns]
    )


def _iso_utc(value: datetime.datetime) -> str:
    return aware(value).astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
