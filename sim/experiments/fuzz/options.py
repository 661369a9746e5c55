"""The options of the fuzzer: what all histories of a run have in common."""

from __future__ import annotations

from dataclasses import dataclass, fields

from covey.matcher.engine import engine_names
from covey.matcher.errors import CoveyError
from covey.overlay.core.baselines.options import POSET_ENGINE, POSETS
from covey.overlay.core.merging.mergers import MERGINGS
from covey.sim.simulator.defects import DEFECTS
from covey.sim.simulator.service import SERVICES


class FuzzError(CoveyError, ValueError):
    """An option has an unknown value."""


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """`gapless` makes half of the updates gapless; `content` adds content filters to most advertisements.

    `motion` gives half of the bounds a rate, and some pauses are so long that announcements have to be
    renewed. `operators` adds filters that are no conjunctions of intervals, `calls` filters that call named
    operators, which are missing at some brokers and fail now and then (`calls.py`);
    `dense` leaves only intervals on one attribute. `widen` adds attributes to an event type on the way, from
    publishers and subscribers, and filters over them. `damping` is that of the brokers, `defect` a name of
    `defects.DEFECTS`, `service` that of brokers (`simulator/service.py`). `stalls` plays histories of another
    kind (`stalling.py`), to which only `steps` applies.
    """

    routing: str = "parametric"
    resubscribe: str = "subscribe-first"
    engine: str = "naive"
    poset: str = "forest"
    steps: int = 60
    crashes: bool = True
    gapless: bool = False
    content: bool = False
    damping: float = 0.0
    motion: bool = False
    operators: bool = False
    calls: bool = False
    dense: bool = False
    widen: bool = False
    merging: str = "off"
    merging_budget: int = 3
    defect: str | None = None
    service: str = "broker"
    stalls: bool = False

    def __post_init__(self) -> None:
        for name, value, expected in (
            ("routing", self.routing, ("parametric", "static")),
            ("resubscribe", self.resubscribe, ("subscribe-first", "unsubscribe-first")),
            ("engine", self.engine, (*engine_names(), POSET_ENGINE)),
            ("poset", self.poset, tuple(POSETS)),
            ("merging", self.merging, MERGINGS),
            ("service", self.service, SERVICES),
            ("defect", self.defect, (None, *DEFECTS)),
        ):
            if value not in expected:
                known = ", ".join(each for each in expected if each is not None)
                raise FuzzError(f"{name} is {value!r}: expected one of {known}")
        if self.motion and self.routing == "static":
            raise FuzzError("motion is on: expected routing parametric, since static routing has no motion")

    @property
    def lossy(self) -> bool:
        """Whether a change may lose events."""
        return self.routing == "static" and self.resubscribe == "unsubscribe-first"

    def command(self, seed: int) -> str:
        """The command that replays the history of a seed."""
        words = [f"covey sim fuzz --seed {seed}"]
        default = FuzzOptions()
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(default, field.name):
                option = field.name.replace("_", "-")
                if isinstance(value, bool):
                    words.append(f"--{'' if value else 'no-'}{option}")
                else:
                    words.append(f"--{option} {value}")
        return " ".join(words)
