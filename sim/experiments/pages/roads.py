"""The roads of the map, and the vehicles on them.

The city of the highway traffic management (HTM) of Jayaram et al., section 5.4: 1000 x 1000, crossed by
highways from west to east and from south to north. Vehicles drive along their highway, take another one at
some crossings, and turn back at its end. Where a vehicle is, is one number: the way along all highways laid
end to end. So all vehicles move by a few array operations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EXTENT = 1000.0
"""The edge of the city."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_WEST_EAST = (150.0, 390.0, 640.0, 870.0)
_SOUTH_NORTH = (120.0, 340.0, 590.0, 850.0)
_BEND = 42.0
_STEP = 4.0
_GAP = 1_000.0
"""Between two highways that are laid end to end, so that nothing is interpolated across."""
_LANE = 2.5
_TURNS = 0.35


class RoadNetwork:
    """Highways as curves through their crossings, the same in every run."""

    def __init__(self) -> None:
        draw = np.random.default_rng(7)
        crossings = np.empty((len(_WEST_EAST), len(_SOUTH_NORTH), 2))
        for row, y in enumerate(_WEST_EAST):
            for column, x in enumerate(_SOUTH_NORTH):
                crossings[row, column] = np.array((x, y)) + draw.uniform(-_BEND, _BEND, 2)
        self.highways: list[Floats] = []
        """By highway, its points (n, 2)."""
        knots: list[tuple[Floats, Ints]] = []
        for row in range(len(_WEST_EAST)):
            ends = ((0.0, crossings[row, 0, 1]), (EXTENT, crossings[row, -1, 1]))
            knots.append(self._add(crossings[row], ends))
        for column in range(len(_SOUTH_NORTH)):
            ends = ((crossings[0, column, 0], 0.0), (crossings[-1, column, 0], EXTENT))
            knots.append(self._add(crossings[:, column], ends))
        self._lay(knots)

    def _add(self, through: Floats, ends: tuple[tuple[float, float], ...]) -> tuple[Floats, Ints]:
        """A highway through these points; its lengths so far, and the positions of the points in it."""
        given = np.vstack((ends[0], through, ends[1]))
        points, indices = [given[0]], []
        for piece in range(len(given) - 1):
            before, after = given[max(piece - 1, 0)], given[min(piece + 2, len(given) - 1)]
            a, b = given[piece], given[piece + 1]
            count = max(2, int(np.hypot(*(b - a)) / _STEP))
            t = np.linspace(0.0, 1.0, count + 1)[1:, None]
            points.extend(
                0.5 * (2 * a + (b - before) * t + (2 * before - 5 * a + 4 * b - after) * t**2
                       + (3 * a - before - 3 * b + after) * t**3)
            )  # fmt: skip
            indices.append(len(points) - 1)
        highway = np.array(points).clip(0.0, EXTENT)
        self.highways.append(highway)
        lengths = np.concatenate(([0.0], np.hypot(*np.diff(highway, axis=0).T).cumsum()))
        return lengths, np.array(indices[:-1])

    def _lay(self, knots: list[tuple[Floats, Ints]]) -> None:
        offset, arcs, starts, ends, at = 0.0, [], [], [], []
        for lengths, indices in knots:
            arcs.append(offset + lengths)
            starts.append(offset)
            ends.append(offset + lengths[-1])
            at.append(offset + lengths[indices])
            offset += lengths[-1] + _GAP
        self._arcs = np.concatenate(arcs)
        points = np.vstack(self.highways)
        tangents = np.vstack([np.gradient(highway, axis=0) for highway in self.highways])
        tangents /= np.hypot(*tangents.T)[:, None]
        self._points, self._normals = points, np.column_stack((-tangents[:, 1], tangents[:, 0]))
        self._starts, self._ends = np.array(starts), np.array(ends)
        across = np.array(at[: len(_WEST_EAST)])  # [row, column]
        along = np.array(at[len(_WEST_EAST) :]).T
        crossings = np.concatenate((across.ravel(), along.ravel()))
        partners = np.concatenate((along.ravel(), across.ravel()))
        order = np.argsort(crossings)
        self._crossings, self._partners = crossings[order], partners[order]

    def random_places(self, count: int, draw: np.random.Generator) -> Floats:
        """Ways along the highways, evenly spread."""
        lengths = self._ends - self._starts
        highway = draw.choice(len(lengths), size=count, p=lengths / lengths.sum())
        return np.asarray(self._starts[highway] + draw.random(count) * lengths[highway])

    def positions(self, ways: Floats, directions: Floats) -> tuple[Floats, Floats]:
        """x and y, on the lane of the direction."""
        lane = _LANE * directions
        x, y = (
            np.interp(ways, self._arcs, self._points[:, i])
            + lane * np.interp(ways, self._arcs, self._normals[:, i])
            for i in (0, 1)
        )
        return x.clip(0.0, EXTENT), y.clip(0.0, EXTENT)

    def drive(
        self, ways: Floats, directions: Floats, steps: Floats, draw: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """The ways and directions after steps, which are shorter than the distance of two crossings."""
        after = ways + directions * steps
        highway = np.searchsorted(self._starts, ways, "right") - 1
        starts, ends = self._starts[highway], self._ends[highway]
        directions = np.where((after < starts) | (after > ends), -directions, directions)
        after = after.clip(starts, ends)
        low, high = (np.searchsorted(self._crossings, each) for each in (ways, after))
        turning = np.flatnonzero((low != high) & (draw.random(len(ways)) < _TURNS))
        after[turning] = self._partners[np.minimum(low, high)[turning]]
        directions[turning] = draw.choice((-1.0, 1.0), size=len(turning))
        return after, directions


class Fleet:
    """Vehicles: `x` and `y` now, `speeds` in units per second."""

    def __init__(self, roads: RoadNetwork, count: int, seed: int = 0) -> None:
        self._roads = roads
        self._draw = np.random.default_rng(seed)
        self._ways = roads.random_places(count, self._draw)
        self._directions = self._draw.choice((-1.0, 1.0), size=count)
        self.speeds = self._draw.uniform(14.0, 34.0, count)
        self.x, self.y = roads.positions(self._ways, self._directions)

    def __len__(self) -> int:
        return len(self.x)

    def drive(self, seconds: float, factor: float) -> None:
        """Let all drive for a time at their speeds times a factor."""
        steps = np.minimum(self.speeds * seconds * factor, 60.0)
        self._ways, self._directions = self._roads.drive(self._ways, self._directions, steps, self._draw)
        self.x, self.y = self._roads.positions(self._ways, self._directions)
