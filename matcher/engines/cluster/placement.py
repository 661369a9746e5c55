"""Where the rows of a cluster engine are: in one arrangement, or in two while the second replaces the first.

Added rows wait until the next match. Another arrangement is planned and filled when rows have doubled since
the configuration was chosen, bounds have drifted, or many rows were removed. It is filled in steps: each call
does some, in proportion to its own work, so no call takes long. A load, more rows waiting than placed, is
placed at once.

Rows move in the order in which they will be placed, by bucket or neighbouring leaves, so a bucket has room
for exactly its rows. Rows that change meanwhile move at once, and new ones are placed in the new arrangement.
Invariant: a row is in one arrangement, or waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster import placing_kernels as k
from covey.matcher.engines.cluster.arrangement import Arrangement
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.coding import Coding
from covey.matcher.engines.cluster.measuring import (
    Population,
    count_checks,
    measure,
    range_classes,
    sample_bounds,
    sample_ranges,
)
from covey.matcher.engines.cluster.room import empty_arrays, empty_beside, is_sparse
from covey.matcher.engines.cluster.tuning.configuration import Policy
from covey.matcher.engines.cluster.tuning.maintenance import Maintenance, improved
from covey.matcher.engines.cluster.tuning.planning import choose_schemas, first_configuration, plan
from covey.matcher.engines.cluster.tuning.statistics import EventSample
from covey.matcher.engines.cluster.tuning.steps import STEP, Steps, parts
from covey.matcher.engines.cluster.worker import Worker
from covey.matcher.engines.rows.arrays import Numbers, Runs, grown
from covey.matcher.engines.rows.row_kernels import ROW_SIGNATURE
from covey.matcher.engines.rows.store import Signatures
from covey.matcher.errors import CoveyError
from covey.matcher.events.int64 import LAST

_KEPT_TESTS = 8  # tests of a row whose codes are kept until it is placed
_CHUNK = 1 << 14
_MOST_CHUNKS = 64  # in which rows are sorted by order; each takes a pass over all rows
_SAMPLE = 4096
_ROWS_PER_STEP = STEP // 4
_SCANNED_PER_UNIT, _SORTED_PER_UNIT = 512, 8


def move_rows(former: Arrangement | None, target: Arrangement, row_top: int, most_tests: int) -> Steps[None]:
    """Move all rows below `row_top` to `target`, from `former` or, if it is None, those that wait."""
    codes = np.empty((row_top, 2 * min(most_tests, _KEPT_TESTS)), dtype=np.uint16)
    orders = np.empty(row_top, dtype=np.int64)
    for start, stop in parts(0, row_top, _ROWS_PER_STEP):
        target.order(start, stop, codes, orders)
        yield stop - start
    target.reserve_leaves(int(np.count_nonzero(orders >= k.IN_LEAVES)))
    for rows in _chunks(orders, at_once=former is None):
        yield len(orders) // _SCANNED_PER_UNIT + len(rows) // _SORTED_PER_UNIT
        sizes = _run_lengths(orders[rows])
        for start, stop in parts(0, len(rows), _ROWS_PER_STEP):
            some, room = rows[start:stop], sizes[start:stop]
            if former is not None:
                where = former.arrays.where[some]
                stayed = (where[:, a.PLACE] >= 0) & (
                    where[:, a.BLOCK] & 1 == int(former.arrays.state[a.GENERATION])
                )
                some, room = some[stayed], room[stayed]
                former.remove(some, a.WAITING)
            target.place(some, codes, room)
            yield 2 * (stop - start)


def _chunks(orders: Numbers, *, at_once: bool) -> Iterator[Numbers]:
    """The rows that have an order, by order, in chunks; rows of equal order are in one chunk."""
    count = 1 if at_once else max(1, min(_MOST_CHUNKS, len(orders) // _CHUNK))
    sample = np.sort(orders[:: max(1, len(orders) // _SAMPLE)])
    limits = np.unique(sample[np.arange(1, count) * len(sample) // count]) if len(sample) else sample
    limits = limits[limits > 0]
    for low, high in zip([0, *limits.tolist()], [*limits.tolist(), None], strict=True):
        chosen = orders >= low
        rows = np.flatnonzero(chosen if high is None else chosen & (orders < high))
        yield rows[np.argsort(orders[rows], kind="stable")]


def _run_lengths(values: Numbers) -> Numbers:
    ends = np.append(np.flatnonzero(np.diff(values)) + 1, len(values))
    lengths = np.diff(ends, prepend=0)
    return np.repeat(lengths, lengths)


FEW = 64
AT_ONCE = 1 << 13  # rows up to which an arrangement is replaced at once
_RENEWED, _MANY = 4, 1 << 16  # changes per row, and more, until cuts are chosen anew: bounds may drift
_SCATTERED = 4  # rows are placed anew after one in so many is removed: its successors lie scattered
_MOST_WAITING = 1 << 10  # rows; more are placed without a match
_UNCHECKED = 16  # events matched before a check of what is due, which takes 3 us, a third of a match
_PER_CALL, _PER_EVENT, _PER_CHANGE = 128, 4, 8
"""Units of due work per match, event and changed row: it is done long before the next becomes due."""


class Placement:
    """Arrangements of the rows that `row_numbers` numbers; `tops` are the highest keys of attributes."""

    def __init__(
        self, tops: Keys, policy: Policy, signatures: Signatures, row_numbers: Runs, worker: Worker
    ) -> None:
        self._tops = tops
        self._policy = policy
        self._signatures = signatures
        self._row_numbers = row_numbers
        self._worker = worker
        arrays = empty_arrays(tops)._replace(reaches=range_classes(0, 1))
        self.arrangement = self._empty(arrays)  # where rows are placed
        self.former: Arrangement | None = None  # replaced by `arrangement`, while it has rows
        self._planned: Arrangement | None = None
        self.events = EventSample()
        self.moves = np.zeros(len(tops), dtype=np.int64)  # new values of equalities, by column
        self.work = 0  # units ever done to place rows and to tune
        self._maintenance = Maintenance() if policy.maintains else None
        self._steps: Steps[None] | None = None
        self._due = 0  # units of work to do
        self._was_replaced = False
        self.was_interrupted = False  # then rows wait unlisted, or have old codes, until `prepare`
        self._waiting: list[Numbers] = []
        self._waiting_count = 0  # at least as many rows wait; all of them are in _waiting, or too many
        self._row_count = 0
        self._configured = 0  # rows when cuts were chosen
        self._turnover = 0  # rows ever inserted, and removed
        self._turnover_before = 0  # when cuts were chosen
        self._written = 0  # since then, as those that follow
        self._removed = 0
        self.unchecked = 0  # events that may be matched before `prepare`: none once a row has changed
        self._uncut = 0  # rows inserted with tests on columns that have no cuts yet

    def _empty(self, arrays: a.StoreArrays) -> Arrangement:
        return Arrangement(arrays, first_configuration(self._policy), ordered=not self._policy.propagation)

    @property
    def searched(self) -> list[Arrangement]:
        """Arrangements with rows."""
        return [self.arrangement] if self.former is None else [self.arrangement, self.former]

    @property
    def _all(self) -> list[Arrangement]:
        return [*self.searched, *([] if self._planned is None else [self._planned])]

    def widen(self, tops: Keys) -> None:
        """Allow tests on more columns. An arrangement that is only planned is planned anew."""
        self.unchecked = 0
        if self._planned is not None and self._steps is not None:
            self._steps.close()
            self._steps = self._planned = None
            self._due = self._configured = 0
        for each in self._all:
            each.widen(tops, len(self._tops))
        self._tops = tops
        self.moves = grown(self.moves, max(len(self.moves), len(self.arrangement.arrays.coding)))

    def replace(self, **arrays: Any) -> None:
        for each in self._all:
            each.arrays = each.arrays._replace(**arrays)

    def write_signatures(self, signatures: list[int], size: int, tests: list[int]) -> None:
        """As `Arrangement.write_signatures`."""
        columns = [self._signatures.columns[signature] for signature in signatures]
        for each in self._all:
            each.write_signatures(signatures, columns, size, tests)
        self.moves = grown(self.moves, max(len(self.moves), len(self.arrangement.arrays.coding)))

    # --- changes of rows --------------------------------------------------------------------------

    def insert(self, rows: Numbers, signatures: list[int], counts: Numbers) -> None:
        """Add rows, which wait; counts[i] of them have signatures[i]."""
        self.unchecked = 0
        columns = [self._signatures.columns[signature] for signature in signatures]
        tested = {c for each in columns for c in each if c < a.NARROW_COLUMNS}
        uncut = tested - self.arrangement.cut_columns
        if uncut:
            self._uncut += int(counts[[not uncut.isdisjoint(each) for each in columns]].sum())
        self._row_count += len(rows)
        self._turnover += len(rows)
        self._waiting_count += len(rows)
        if self._waiting_count <= _MOST_WAITING:
            self._waiting.append(rows)
        elif 2 * self._waiting_count < self._row_count:
            self._waiting.append(rows)
            self._place_waiting()
        else:
            self._waiting.clear()  # too many to list
        self._add_work(_PER_CHANGE * len(rows))

    def remove(self, rows: Numbers) -> None:
        self.unchecked = 0
        for each in self.searched:
            each.remove(rows)
        self._row_count -= len(rows)
        self._removed += len(rows)
        self._turnover += len(rows)
        self._add_work(_PER_CHANGE * len(rows))

    def update(self, rows: Numbers) -> None:
        self.unchecked = 0
        self._written += len(rows)
        try:
            if self.former is not None:
                self.former.remove(rows, a.WAITING)
                self.arrangement.place(rows)
            self.arrangement.update(rows)
        except BaseException:
            self.was_interrupted = True
            raise
        self._add_work(_PER_CHANGE * len(rows))

    def _place_waiting(self) -> None:
        rows = self._rows_waiting()
        self.arrangement.place(rows)
        self.work += len(rows)
        self._waiting.clear()
        self._waiting_count = 0

    def _rows_waiting(self) -> Numbers:
        if self._waiting:
            return np.concatenate(self._waiting)
        if not self._waiting_count:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self.arrangement.arrays.where[: self._row_numbers.top, a.PLACE] == a.WAITING)

    # --- steps ------------------------------------------------------------------------------------

    def prepare(self, events: int) -> bool:
        """Begin a match of so many events, unless they are `unchecked`: place waiting rows, and rearrange or
        tune if due. Returns whether all rows have been placed anew since the last call.
        """
        has_doubled = self._row_count > 2 * self._configured + FEW
        is_due = has_doubled or self._is_worn()
        if self.was_interrupted or (is_due and 2 * self._waiting_count > self._row_count):
            self._rearrange_at_once(choose=has_doubled)
            is_due = False
        elif self._waiting_count:
            self._place_waiting()
        if self._steps is None:
            maintenance = self._maintenance
            if is_due:
                self._steps = self._rearrange(self.arrangement, choose=has_doubled)
            elif maintenance and maintenance.is_due(self.events.count, self._turnover, self._row_count):
                self._steps = self._maintain(maintenance)
        self._add_work(_PER_CALL + _PER_EVENT * events)
        if self.was_interrupted:
            self._rearrange_at_once(choose=has_doubled)
        was_replaced, self._was_replaced = self._was_replaced, False
        self.unchecked = _UNCHECKED if self._steps is None and not self.was_interrupted else 0
        return was_replaced

    def _is_worn(self) -> bool:
        changed = self._written + self._turnover - self._turnover_before
        return (
            changed > _RENEWED * self._configured + _MANY
            or self._uncut > FEW + self._configured // FEW
            or _SCATTERED * self._removed > self._row_count + _MANY // 4
            or is_sparse(self.arrangement.arrays.leaves)
        )

    def _add_work(self, units: int) -> None:
        """Do so many units of due work, and the rest of the step; all of it where there are few rows."""
        if self._steps is None:
            return
        self._due += units
        while self._due > 0 or self._row_count <= AT_ONCE:
            try:
                done = next(self._steps)
            except StopIteration:
                self._steps, self._due = None, 0
                return
            except (CoveyError, MemoryError):  # no room: the change stands, and a match begins anew
                self._steps, self._due, self.was_interrupted = None, 0, True
                return
            self._due -= done
            self.work += done

    def _rearrange_at_once(self, *, choose: bool) -> None:
        if self._steps is not None:
            self._steps.close()
            self._steps, self._due = None, 0
        self.was_interrupted = True
        self.former = self._planned = None
        where = self.arrangement.arrays.where[: self._row_numbers.top]
        where[where[:, a.PLACE] >= 0, a.PLACE] = a.WAITING
        self._waiting.clear()
        self._waiting_count = 0
        for units in self._rearrange(None, choose=choose):
            self.work += units
        self.was_interrupted = False

    def _rearrange(self, former: Arrangement | None, *, choose: bool) -> Steps[None]:
        """Move rows of `former`, or waiting ones, to new cuts and configuration; new schemas if `choose`."""
        self._configured, self._turnover_before = self._row_count, self._turnover
        self._written = self._removed = self._uncut = 0
        planned = self._planned = self._empty(empty_beside(self.arrangement.arrays, self._row_count))
        rows = self._population()
        samples = yield from sample_bounds(planned, rows)
        tops = np.full(max(len(samples), len(planned.arrays.coding)), LAST, dtype=np.int64)
        tops[: len(self._tops)] = self._tops
        coding = yield from Coding.of(samples, rows.row_count, tops)
        planned.recode(coding, frozenset(c for c, sample in enumerate(samples) if len(sample)))
        ranges = yield from sample_ranges(planned, rows)
        planned.arrays = planned.arrays._replace(reaches=range_classes(*ranges.span()))
        statistics = yield from measure(planned, rows, samples, ranges, self.events, self._moves_per_event())
        schemas = list(self.arrangement.configuration.schemas)
        if choose and self._policy.chooses_schemas:
            schemas = yield from choose_schemas(self._policy, statistics)
        configuration = yield from plan(self._policy, statistics, schemas)
        yield from planned.configure(configuration, self._signatures.in_use())
        planned.begin()
        self.arrangement, self.former, self._planned = planned, former, None
        most_tests = max((len(self._signatures.columns[n]) for n in self._signatures.in_use()), default=0)
        yield from move_rows(former, planned, self._row_numbers.top, most_tests)
        self.former = None
        self._was_replaced = True

    def _maintain(self, maintenance: Maintenance) -> Steps[None]:
        """Look for a better configuration, and move the rows that it concerns."""
        arrangement, rows = self.arrangement, self._population()
        checks = yield from count_checks(arrangement, self.events.keys(rows.columns), self._worker)
        total, better = float(checks.sum()), None
        if maintenance.is_search_due(total, self._turnover, self._row_count):
            samples = yield from sample_bounds(arrangement, rows)
            ranges = yield from sample_ranges(arrangement, rows)
            moves = self._moves_per_event()
            statistics = yield from measure(arrangement, rows, samples, ranges, self.events, moves)
            better = yield from improved(arrangement.configuration, statistics, checks)
            maintenance.settled = total if better is None else -1.0
        maintenance.reviewed(self.events.count, self._turnover, self._row_count, improved=better is not None)
        if better is None:
            return
        before = arrangement.arrays.signatures[:, a.SIGN_TEMPLATE].copy()
        in_use = self._signatures.in_use()
        yield from arrangement.configure(better, in_use)
        moved = arrangement.arrays.signatures[: len(before), a.SIGN_TEMPLATE] != before
        concerned = sum(self._signatures.row_counts[n] for n in np.flatnonzero(moved).tolist())
        if 2 * concerned > self._row_count:  # then hashed ranges and first tests are chosen as well
            yield from self._rearrange(arrangement, choose=False)
            return
        for start, stop in parts(0, self._row_numbers.top):
            signatures = arrangement.arrays.rows[start:stop, ROW_SIGNATURE]
            known = (signatures >= 0) & (signatures < len(moved))
            arrangement.update(start + np.flatnonzero(known & moved[np.where(known, signatures, 0)]))
            yield stop - start

    def _population(self) -> Population:
        return Population(self._row_numbers.top, self._row_count, self._signatures, len(self._tops))

    def _moves_per_event(self) -> npt.NDArray[np.float64]:
        return self.moves / max(self.events.count, 1)
