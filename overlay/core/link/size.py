"""The size of a message on a link.

Invariant: both ends compute the same size for a message with events, so that the bytes counted against credit
are the bytes granted again.
"""

from __future__ import annotations

from covey.overlay.core.messages import Acknowledge, Deliver, Message, Publish, Refuse, Subscribe, Update

FIXED_BYTES = 64
_VALUE_BYTES = 32


def size_of(message: Message) -> int:
    """About how many bytes a message takes in a frame; of a batch, the serialised form plus 4 per offset and
    id."""
    if isinstance(message, Acknowledge):
        return FIXED_BYTES
    if isinstance(message, Update):
        return FIXED_BYTES + _values_bytes(message)
    if isinstance(message, Publish):
        return FIXED_BYTES + message.batch.nbytes
    if isinstance(message, Deliver):
        return FIXED_BYTES + message.batch.nbytes + 4 * (len(message.offsets) + len(message.ids))
    if isinstance(message, Subscribe):
        return FIXED_BYTES + len(str(message.filter)) + _values_bytes(message)
    if isinstance(message, Refuse):
        return FIXED_BYTES + len(message.reason)
    return FIXED_BYTES


def events_in(message: Message) -> int:
    """How many events a message carries."""
    return message.batch.count if isinstance(message, (Publish, Deliver)) else 0


def _values_bytes(message: Subscribe | Update) -> int:
    size = _VALUE_BYTES * len(message.values)
    for value in message.values.values():
        if isinstance(value, str):
            size += len(value)
    return size
