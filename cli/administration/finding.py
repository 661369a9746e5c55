"""What `covey doctor` has found about one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Something works less well, or is missing for some commands."""
    WRONG = "wrong"
    """No broker can start, or serve, with it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`text` is one sentence, with what to do unless it is OK; `page` is that of the documents."""

    subject: str
    state: State
    text: str
    page: str = ""
