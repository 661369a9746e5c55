from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` is the violated property, `time_ns` the time of detection."""

    what: str
    time_ns: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.what} at {self.time_ns / 1e9:.6f} s: {self.sentence}"


class Findings:
    """Keeps the first `keep` findings, in order of detection, and counts all by property."""

    def __init__(self, keep: int = 20) -> None:
        self.first: list[Finding] = []
        self.counts: dict[str, int] = {}
        self._keep = keep

    def add(self, what: str, time_ns: int, sentence: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        if len(self.first) < self._keep:
            self.first.append(Finding(what, time_ns, sentence))

    def __bool__(self) -> bool:
        return bool(self.counts)
