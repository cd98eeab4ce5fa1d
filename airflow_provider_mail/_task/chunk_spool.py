"""A spool of the validated requests of a mailing on disk, so that memory use stays constant."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator

from pydantic import TypeAdapter

from airflow_provider_mail.api.flows.batches import Chunk
from airflow_provider_mail.api.transactional import MessageVersion, SendBatch

MEMORY_BYTES = 1_000_000

_VERSIONS = TypeAdapter(list[MessageVersion])


class ChunkSpool:
    """Stores the chunks of one mailing, and yields them in order.

    All chunks are validated before the first one is sent, and a source may change between two reads. The fields that
    differ between chunks are stored in an unnamed temporary file, once they exceed a megabyte; shared fields, such as
    an attachment, are held once.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self._first: SendBatch | None = None
        self.count = 0

    def add(self, chunk: Chunk) -> None:
        """Store a chunk."""
        request = chunk.request
        assert isinstance(request, SendBatch)
        self._first = self._first or request
        record = [chunk.index, chunk.recipients, chunk.digest, request.unique_msg_id]
        versions = _VERSIONS.dump_json(request.message_versions, exclude_none=True)
        self._file.write(json.dumps(record).encode() + b"\n" + versions + b"\n")
        self.count += 1

    def __iter__(self) -> Iterator[Chunk]:
        self._file.seek(0)
        for line in self._file:
            index, recipients, digest, unique_msg_id = json.loads(line)
            assert self._first is not None
            request = self._first.model_copy(
                update={
                    "unique_msg_id": unique_msg_id,
                    "message_versions": _VERSIONS.validate_json(self._file.readline()),
                }
            )
            yield Chunk(index, request, recipients, digest)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
