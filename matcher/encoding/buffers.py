"""The buffers of Arrow arrays, as kernels take them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_EMPTY = np.zeros(0, dtype=np.uint8)


def as_bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """A buffer as an array; None, and a buffer of no bytes, as an empty one."""
    return np.frombuffer(buffer, dtype=np.uint8) if buffer is not None and buffer.size else _EMPTY


def string_buffers(
    column: pa.StringArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The bitmap of what is valid (empty where all is), the offsets, and the text."""
    valid, offsets, text = column.buffers()
    starts = (
        np.zeros(1, np.int32) if offsets is None or not offsets.size else np.frombuffer(offsets, np.int32)
    )
    return as_bytes(valid if column.null_count else None), starts, as_bytes(text)
