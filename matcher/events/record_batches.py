"""Arrow IPC messages with record batches, as others have sent them: read without a copy, and checked whole.

Invariant: what is returned is valid, and takes no more memory than the message. So buffers may not be
compressed: 500 bytes would become gigabytes.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from covey.matcher.errors import EventError

MALFORMED = (pa.ArrowException, OSError, ValueError, EOFError, MemoryError, IndexError, TypeError)
"""What pyarrow raises for bytes that are no message."""

_HEADER, _COMPRESSION = 2, 3
"""The fields `header` of the table Message, and `compression` of RecordBatch, in Arrow's Message.fbs."""


def read_record_batch(message: pa.ipc.Message, schema: pa.Schema, subject: str) -> pa.RecordBatch:
    """The record batch of a message; `EventError`, which begins with `subject`, for any other message."""
    try:
        if message.type != "record batch":
            raise EventError(f"{subject}: expected an Arrow record batch message, got {message.type}")
        if _is_compressed(message.metadata.to_pybytes()):
            raise EventError(f"{subject}: a compressed record batch, expected an uncompressed one")
        records = pa.ipc.read_record_batch(message, schema)
        records.validate(full=True)
    except EventError:
        raise
    except (*MALFORMED, struct.error) as error:
        raise EventError(f"{subject}: malformed record batch: {error}") from None
    return records


def _is_compressed(metadata: bytes) -> bool:
    """Whether the header of a message, a flatbuffer that pyarrow has verified, names a compression."""
    (root,) = struct.unpack_from("<I", metadata)
    header = _field(metadata, root, _HEADER)
    (offset,) = struct.unpack_from("<I", metadata, header)
    return _field(metadata, header + offset, _COMPRESSION) > 0


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table begins; 0 where it is absent."""
    virtual = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * number
    if entry + 2 > struct.unpack_from("<H", data, virtual)[0]:
        return 0
    (offset,) = struct.unpack_from("<H", data, virtual + entry)
    return table + offset if offset else 0
