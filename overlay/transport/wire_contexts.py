"""Trace contexts on the wire.

Invariant: what is no W3C traceparent of an event that is traced is ignored, as that standard demands, and no
batch has more than `MOST_CONTEXTS`.
"""

from __future__ import annotations

import re

from covey.matcher.events.trace_contexts import MOST_CONTEXTS, TraceContext, TraceContexts
from covey.proto import broker_pb2 as pb

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MOST_SEQUENCE = 1 << 63


def fill_contexts(wire: pb.Events, contexts: TraceContexts) -> None:
    for first, last, traceparent in contexts:
        wire.contexts.add(traceparent=traceparent, first_sequence=first, last_sequence=last)


def contexts_of(wire: pb.Events) -> TraceContexts:
    """The contexts of a batch."""
    return tuple(
        TraceContext(each.first_sequence, each.last_sequence, each.traceparent)
        for each in wire.contexts[:MOST_CONTEXTS]
        if traceparent_of(each.traceparent)
        and each.first_sequence <= each.last_sequence < _MOST_SEQUENCE
    )


def traceparent_of(text: str) -> str:
    """The text, if it is a traceparent, else nothing."""
    return text if _TRACEPARENT.fullmatch(text) else ""
