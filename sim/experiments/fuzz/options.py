"""The options of the fuzzer, which all histories of a run have in common, and the outcome of one history."""

from __future__ import annotations

from dataclasses import dataclass, fields

from covey.matcher.engine import engine_names
from covey.matcher.errors import CoveyError
from covey.overlay.core.merging.mergers import MERGINGS
from covey.sim.baselines.options import POSET_ENGINE, POSETS
from covey.sim.checkers import Finding
from covey.sim.simulator.cores import SERVICES
from covey.sim.simulator.defects import DEFECTS

FAULTS = {
    "crashes": "brokers are killed at any time, or at a drawn kind of message, and start again",
    "power": "crashes are losses of power, which tear what is being written",
    "partitions": "links break for a time",
    "swizzles": "links break one after the other and come back in another order",
    "clogs": "what is sent over some connections arrives much later",
    "connections": "connections are dropped, opened late, or opened again while the first seems open",
    "slow": "clients stop reading for a while",
    "clocks": "clocks of brokers and clients are set by an hour, forward and back",
    "damage": "bits of stored records flip",
    "full": "disks are full, or fail to sync, until an operator starts the broker again",
    "moves": "clients move from broker to broker",
    "floods": "clients send frames that change nothing",
}
"""The faults of `covey sim fuzz --faults`."""
REFUSED_TOGETHER = (frozenset({"durable", "repair"}),)
"""Options of which a history draws one, since an overlay file cannot have both."""


class FuzzError(CoveyError, ValueError):
    """An option has an unknown value."""


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """Those of `covey sim fuzz`, whose help has what each does; `defect` is a name of `defects.DEFECTS`.

    With `motion` some pauses are so long that announcements have to be renewed. `stalls` plays histories of
    another kind (`stalling.py`), to which only `steps` applies; with `repair` links move (`repairing.py`).
    With `durable` the sessions of two clients in three are durable, and stay at their broker unless `moves`
    is on. With `faults`, names of `FAULTS` with commas between them or "all", histories have these and no
    others, and draw the kind of their overlay where options do not set it (`faulty.py`).
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
    durable: bool = False
    moves: bool = False
    repair: bool = False
    validity: bool = False
    views: bool = False
    faults: str = ""

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
        for name in self.fault_kinds:
            if name not in FAULTS:
                raise FuzzError(f"faults has {name!r}: expected all, or some of {', '.join(FAULTS)}")
        if self.faults and not self.crashes:
            raise FuzzError("crashes is off: expected it on with faults, which name crashes or do not")
        if self.faults and (self.stalls or self.motion):
            name = "stalls" if self.stalls else "motion"
            raise FuzzError(f"{name} is on: expected it off with faults, which have slow clients and clocks")
        if self.motion and self.routing == "static":
            raise FuzzError("motion is on: expected routing parametric, since static routing has no motion")
        if self.service != "broker" and (self.durable or self.faults):
            name = "durable" if self.durable else "faults"
            raise FuzzError(
                f"service is {self.service!r}: expected broker with {name}, since the other services accept "
                "events before they store them"
            )
        without = [name for name in ("widen", "calls", "repair", "stalls") if getattr(self, name)]
        without += ["routing static"] * (self.routing == "static")
        if self.views and without:
            raise FuzzError(f"views is on with {without[0]}: expected it off, as it is not played")
        if self.repair and self.durable and frozenset({"durable", "repair"}) in REFUSED_TOGETHER:
            raise FuzzError("repair is on: expected durable off, since links of durable types do not move")

    @property
    def fault_kinds(self) -> tuple[str, ...]:
        """The faults that histories have, if they are named."""
        return tuple(FAULTS) if self.faults == "all" else tuple(filter(None, self.faults.split(",")))

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
