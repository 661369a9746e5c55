"""What the fuzzer says of one history."""

from __future__ import annotations

from dataclasses import dataclass

from covey.sim.checkers import Finding


@dataclass(frozen=True, slots=True)
class HistoryOutcome:
    """The outcome of one history. `error` is the exception that ended it, as text."""

    seed: int
    findings: tuple[Finding, ...]
    steps: int
    delivered: int
    expected: int
    fired: int = 0
    """How often the injected defect changed the brokers' actions."""
    error: str = ""
    faults: tuple[tuple[str, int], ...] = ()
    """How often there was each fault, where faults are named."""
    damaged: int = 0
    """Events of records in which a bit has flipped."""

    @property
    def failed(self) -> bool:
        return bool(self.findings or self.error)
