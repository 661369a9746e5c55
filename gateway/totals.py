"""What all sessions of a gateway have had so far; `metrics.py` says what it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Totals:
    """Counters of one gateway."""

    received_messages: int = 0
    sent_messages: int = 0
    sent_events: int = 0
    sent_bytes: int = 0
    dropped_notices: int = 0
    pending_bytes: int = 0
    """Of events that wait for all browsers at present."""
    missed_events: Counter[str] = field(default_factory=Counter)
    overflows: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
