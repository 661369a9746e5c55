"""What a hashing configuration is chosen by, measured in steps: sampled bounds and ranges, and checks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster import placing_kernels as k
from covey.matcher.engines.cluster import sample_kernels as s
from covey.matcher.engines.cluster.arrangement import Arrangement
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.tuning.maintenance import LARGEST_MARGIN
from covey.matcher.engines.cluster.tuning.statistics import (
    EventSample,
    RangeSample,
    SignatureUse,
    Statistics,
    equalities,
)
from covey.matcher.engines.cluster.tuning.steps import STEP, Steps, in_steps, parts
from covey.matcher.engines.cluster.worker import Worker
from covey.matcher.engines.rows.arrays import grown
from covey.matcher.engines.rows.row_kernels import ROW_SIGNATURE
from covey.matcher.engines.rows.store import Signatures

_SAMPLED_ROWS = 1 << 17  # rows whose bounds are sampled
_SORTED_BOUNDS = 1 << 16  # the most sampled bounds of a column
_RANGED_ROWS = 1 << 12  # rows whose ranges are measured
_ROWS_PER_STEP = STEP // 4
_READ_PER_UNIT = 4  # rows or buckets read in the time that placing a row takes


@dataclass(frozen=True, slots=True)
class Population:
    """The rows of a store, all below `row_top`, and their signatures."""

    row_top: int
    row_count: int
    signatures: Signatures
    attributes: int

    @property
    def columns(self) -> int:
        """One more than the highest column that has codes and that rows test."""
        tested = (c + 1 for columns in self.signatures.columns for c in columns if c < a.NARROW_COLUMNS)
        return max(self.attributes, *tested, 0)


def sample_bounds(arrangement: Arrangement, rows: Population) -> Steps[list[Keys]]:
    """Sampled bounds by column, in two passes: the first counts, since one array takes all samples."""
    step = max(1, rows.row_count // _SAMPLED_ROWS)
    counts = np.zeros(rows.columns, dtype=np.int64)
    every, samples = np.ones_like(counts), np.zeros(0, dtype=np.int64)
    for turn in range(2):
        if turn == 1:
            every = np.maximum(-(-counts // _SORTED_BOUNDS), 1)
            samples = np.zeros(int((counts // every).sum()), dtype=np.int64)
        starts = np.cumsum(np.append(0, counts // every))
        counts = np.zeros_like(counts)
        for start, stop in parts(0, rows.row_top, step * STEP):
            s.sample_bounds(arrangement.arrays, start, stop, step, every, starts, samples, counts)
            yield STEP // _READ_PER_UNIT
    taken = np.minimum(counts // every, np.diff(starts))
    return [samples[first : first + count] for first, count in zip(starts, taken.tolist(), strict=False)]


def sample_ranges(arrangement: Arrangement, rows: Population) -> Steps[RangeSample]:
    step = max(1, rows.row_top // _RANGED_ROWS)
    signatures, ranges = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 7), dtype=np.int64)]
    for start, stop in parts(0, rows.row_top, step * _ROWS_PER_STEP):
        sampled = np.arange(start, stop, step, dtype=np.int64)
        sampled = sampled[arrangement.arrays.where[sampled, a.PLACE] != a.ABSENT]
        measured = np.zeros((len(sampled), 7), dtype=np.int64)
        s.sample_ranges(arrangement.arrays, sampled, arrangement.scratch, measured)
        signatures.append(arrangement.arrays.rows[sampled, ROW_SIGNATURE].astype(np.int64))
        ranges.append(measured)
        yield _ROWS_PER_STEP
    return RangeSample(np.concatenate(signatures), np.concatenate(ranges))


def measure(
    arrangement: Arrangement,
    rows: Population,
    samples: list[Keys],
    ranges: RangeSample,
    events: EventSample,
    moves: npt.NDArray[np.float64],
) -> Steps[Statistics]:
    uses: dict[int, SignatureUse] = {}
    known = rows.signatures
    for units, numbers in in_steps(known.in_use()):
        for number in numbers:
            uses[number] = SignatureUse(known.columns[number], known.shapes[number], known.row_counts[number])
        yield units
    equal = yield from equalities(uses, samples, events, moves)
    lines = arrangement.arrays.signatures.copy()  # choosing a configuration writes to them
    return Statistics(uses, lines, equal, ranges, arrangement.arrays.reaches)


def count_checks(arrangement: Arrangement, keys: Keys, worker: Worker) -> Steps[npt.NDArray[np.float64]]:
    """Checks per event by signature, in clusters with too large a benefit margin; `keys` are of events."""
    arrays = arrangement.arrays
    probed = np.zeros(len(arrays.buckets), dtype=np.int64)
    checks = np.zeros(len(arrays.signatures), dtype=np.float64)
    for start, stop in parts(0, len(keys), _ROWS_PER_STEP):
        arrays, some = arrangement.arrays, np.ascontiguousarray(keys[start:stop])
        worker.fit(arrangement.probes, arrays.leaves)
        buffers = worker.buffers
        if len(arrays.buckets) > len(probed):
            probed = grown(probed, len(arrays.buckets))
        s.count_probes(arrays, some, arrangement.codes(some), buffers.probe, buffers.queue, probed)
        yield STEP
    for start, stop in parts(0, min(len(probed), int(arrays.state[a.BUCKET_TOP]))):
        least = LARGEST_MARGIN * len(keys)
        looked_at = s.count_checks(arrangement.arrays, probed, start, stop, least, checks)
        yield (stop - start + looked_at) // _READ_PER_UNIT
    return checks / max(len(keys), 1)


def range_classes(narrow: int, widest: int) -> Keys:
    """The reach of every class of ranges: half an octave apart, `widest` at an even place. The last two reach
    across all codes, so that every range has a class; reaches below `narrow` are negative, so that no range
    is in their classes."""
    middle = 1 << k.CLASS_BITS - 1
    reaches = np.array([ceil(widest * 2.0 ** ((i - middle) / 2)) for i in range(2 * middle)], dtype=np.int64)
    reaches[-2:] = np.maximum(reaches[-2:], a.NEVER)
    reaches[: int(np.searchsorted(reaches, narrow)) & ~1] = -1
    return reaches
