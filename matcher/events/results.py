"""The answers of operators about the events of one batch, so that no call is evaluated twice.

Results stay with their batch: its parts and joined batches have them, and on the wire they travel beside the
events, so that the next broker does not compute them again. A call's `key` is a 64-bit hash of the operator's
name and version and its arguments with values. Invariant: `rows` ascend, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

RESULT_BYTES = 16  # approximate bytes of a call's answers on the wire, besides their rows and solutions

Rows = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
_NO_ROWS: Rows = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one call: `truths[i]` for the event at `rows[i]`; with free variables also its
    solutions, a ListArray as the operator returns it, empty where the truth is false."""

    rows: Rows
    truths: Truths
    solutions: pa.ListArray | None = None
    _serialized: bytes | None = field(default=None, compare=False, repr=False)  # as received, or cached

    def serialized_solutions(self) -> bytes:
        """The solutions as an Arrow IPC stream of one batch with one column; empty without any."""
        if self.solutions is None:
            return b""
        if self._serialized is None:
            sink = pa.BufferOutputStream()
            batch = pa.record_batch([self.solutions], names=["solutions"])
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            object.__setattr__(self, "_serialized", sink.getvalue().to_pybytes())
        assert self._serialized is not None
        return self._serialized

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        size = RESULT_BYTES + 4 * len(self.rows)
        return size if self.solutions is None else size + len(self.serialized_solutions())

    def positions(self, rows: Rows) -> tuple[Rows, Truths]:
        """The places of these rows among the answers, and whether they have one: int64[n], bool[n]."""
        if not len(self.rows):
            return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return places, self.rows[places] == rows

    def at(self, places: Rows, rows: Rows) -> Answers:
        """The answers at these places, for `rows` instead, which ascend."""
        solutions = None if self.solutions is None else self.solutions.take(pa.array(places))
        return Answers(rows, self.truths[places], solutions)

    def agrees(self, other: Answers) -> bool:
        if self.solutions is None or other.solutions is None:
            return self.solutions is other.solutions
        return bool(self.solutions.type == other.solutions.type)

    def taken(self, positions: Rows) -> Answers | None:
        """The answers of a batch of the events at these positions, in that order; None for none."""
        places, known = self.positions(positions)
        rows = np.flatnonzero(known)
        return self.at(places[rows], rows) if len(rows) else None

    def joined(self, other: Answers) -> Answers:
        """The answers of both, which agree and have no row in common."""
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows, kind="stable")
        solutions = None
        if self.solutions is not None:
            solutions = pa.concat_arrays([self.solutions, other.solutions]).take(pa.array(order))
        return Answers(rows[order], np.concatenate([self.truths, other.truths])[order], solutions)


class Results:
    __slots__ = ("_answers", "_positions", "_whole")

    def __init__(self, answers: dict[int, Answers] | None = None) -> None:
        self._answers: dict[int, Answers] = {} if answers is None else answers
        self._whole: dict[int, Answers] | None = None
        """Answers of another batch, which has these events at `_positions`, as far as they are not taken."""
        self._positions: Rows = _NO_ROWS

    def __len__(self) -> int:
        return len(self._all())

    def items(self) -> Iterator[tuple[int, Answers]]:
        return iter(self._all().items())

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return sum(answers.nbytes for answers in self._all().values())

    def copy(self) -> Results:
        copy = Results(dict(self._answers))
        copy._whole, copy._positions = self._whole, self._positions
        return copy

    def get(self, key: int) -> Answers | None:
        known = self._answers.get(key)
        if known is None and self._whole is not None and (whole := self._whole.get(key)) is not None:
            known = whole.taken(self._positions)
            if known is not None:
                self._answers[key] = known
        return known

    def add(self, key: int, answers: Answers) -> bool:
        """Add answers for rows that have none; false, and no change, if their solutions have another type."""
        known = self.get(key)
        if known is not None and not known.agrees(answers):
            return False
        self._answers[key] = answers if known is None else known.joined(answers)
        return True

    def discard(self, key: int) -> None:
        self._answers.pop(key, None)

    def take(self, positions: Rows) -> Results | None:
        """The results of a batch of the events at these positions, in that order; None for none."""
        if not len(positions):
            return None
        taken: dict[int, Answers] = {}
        for key, answers in self._answers.items():
            mine = answers.taken(positions)
            if mine is not None:
                taken[key] = mine
        results = Results(taken)
        if self._whole is not None:
            results._whole, results._positions = self._whole, self._positions[positions]
        return results if taken or self._whole is not None else None

    def part(self, positions: Rows) -> Results:
        """As `take`, but each call's answers are taken on demand: most of many parts need few calls."""
        part = Results()
        part._whole, part._positions = self._all(), positions
        return part

    def _all(self) -> dict[int, Answers]:
        if self._whole is not None:
            for key in self._whole:
                self.get(key)
            self._whole = None
        return self._answers


def joined_results(parts: Sequence[tuple[Results | None, int]]) -> Results | None:
    """The results of a concatenation of batches, given with their numbers of events; None for none. Of a
    call, answers that do not agree with the first ones are dropped."""
    if all(results is None for results, _ in parts):
        return None
    by_key: dict[int, list[Answers]] = {}
    firsts: dict[int, list[int]] = {}
    first = 0
    for results, count in parts:
        for key, answers in () if results is None else results.items():
            mine = by_key.setdefault(key, [])
            if not mine or mine[0].agrees(answers):
                mine.append(answers)
                firsts.setdefault(key, []).append(first)
        first += count
    joined = {key: _in_turn(each, firsts[key]) for key, each in by_key.items()}
    return Results(joined) if joined else None


def _in_turn(each: list[Answers], firsts: list[int]) -> Answers:
    """Answers that agree, as those of one batch in which their rows begin at these positions."""
    rows = np.concatenate([answers.rows for answers in each])
    rows += np.repeat(firsts, [len(answers.rows) for answers in each])
    solutions = [answers.solutions for answers in each if answers.solutions is not None]
    return Answers(
        rows,
        np.concatenate([answers.truths for answers in each]),
        pa.concat_arrays(solutions) if solutions else None,
    )
