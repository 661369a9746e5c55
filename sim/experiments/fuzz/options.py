"""The options of the fuzzer and the outcome of one history. The command line shows the options, so the
modules of the histories are not loaded here."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from covey.matcher.errors import InputError

if TYPE_CHECKING:
    from covey.sim.checkers import Finding

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


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """The options of `covey sim fuzz`, each with its help.

    With `motion` some pauses are so long that announcements have to be renewed. With `durable` the sessions
    of two clients in three are durable, and stay at their broker unless `moves` is on. With `faults`
    histories draw the kind of their overlay where options do not set it (`faulty.py`).
    """

    routing: Annotated[str, "parametric or static."] = "parametric"
    resubscribe: Annotated[str, "static routing: subscribe-first or unsubscribe-first."] = "subscribe-first"
    engine: Annotated[str, "Matching engine of brokers and clients."] = "naive"
    poset: Annotated[str, "forest, naive, diagram or diagram-local."] = "forest"
    steps: Annotated[int, "Steps per history."] = 60
    crashes: Annotated[bool, "Whether brokers crash."] = True
    gapless: Annotated[bool, "Make half of the updates gapless."] = False
    content: Annotated[bool, "Add content filters to advertisements."] = False
    damping: Annotated[float, "Damping of the brokers, in typical steps."] = 0.0
    motion: Annotated[bool, "Give half of the bounds a rate (Motion)."] = False
    operators: Annotated[bool, "Add filters with or, !=, prefix and the like."] = False
    calls: Annotated[
        bool, "Add filters that call named operators, which some brokers lack and which fail now and then."
    ] = False
    dense: Annotated[bool, "Only intervals on one attribute, so that filters often cover each other."] = False
    widen: Annotated[bool, "Widen event types on the way."] = False
    merging: Annotated[str, "off, perfect or budget."] = "off"
    merging_budget: Annotated[int, "Slots per link and type."] = 3
    defect: Annotated[
        str | None,
        "Inject a defect into the brokers: drop-update, keep-slot, swap-order, echo-event, "
        "early-acknowledge, claim-newest, no-replay, repeat-event, wrong-results (with --calls), "
        "no-last-events, no-departures, early-answer (with --views).",
    ] = None
    service: Annotated[str, "Order of messages at brokers: broker, fifo, control-first or two-lanes."] = (
        "broker"
    )
    stalls: Annotated[
        bool,
        "Clients that stop reading or publish what they read, and brokers that stop, beside uninvolved "
        "clients that must not notice. Of the other options only --steps applies.",
    ] = False
    durable: Annotated[bool, "Make all types durable, and two sessions in three; crash often."] = False
    moves: Annotated[bool, "Durable sessions that move between brokers, with --durable."] = False
    repair: Annotated[
        bool,
        "Links that move around brokers that die, for a time or for good, and around splits of the network.",
    ] = False
    validity: Annotated[bool, "Subscriptions with a validity period, some of which are renewed."] = False
    views: Annotated[bool, "Give event types keys, and clients views beside their subscriptions."] = False
    faults: Annotated[
        str,
        f"all, or some of {', '.join(FAULTS)}, with commas between them: histories with these faults and no "
        "others.",
    ] = ""

    def __post_init__(self) -> None:
        from covey.matcher.engine import engine_names
        from covey.overlay.core.merging.budget_merger import MERGINGS
        from covey.sim.baselines.options import POSET_ENGINE, POSETS
        from covey.sim.simulator.cores import SERVICES
        from covey.sim.simulator.defects import DEFECTS

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
                raise InputError(f"{name} is {value!r}: expected one of {known}")
        for name in self.fault_kinds:
            if name not in FAULTS:
                raise InputError(f"faults has {name!r}: expected all, or some of {', '.join(FAULTS)}")
        if self.faults and not self.crashes:
            raise InputError("crashes is off: expected it on with faults, which name crashes or do not")
        if self.faults and (self.stalls or self.motion):
            name = "stalls" if self.stalls else "motion"
            raise InputError(f"{name} is on: expected it off with faults, which have slow clients and clocks")
        if self.motion and self.routing == "static":
            raise InputError("motion is on: expected routing parametric, since static routing has no motion")
        if self.service != "broker" and (self.durable or self.faults):
            name = "durable" if self.durable else "faults"
            raise InputError(
                f"service is {self.service!r}: expected broker with {name}, since the other services accept "
                "events before they store them"
            )
        without = [name for name in ("widen", "calls", "repair", "stalls") if getattr(self, name)]
        without += ["routing static"] * (self.routing == "static")
        if self.views and without:
            raise InputError(f"views is on with {without[0]}: expected it off, as it is not played")
        if self.repair and self.durable:
            raise InputError("repair is on: expected durable off, since links of durable types do not move")

    @property
    def fault_kinds(self) -> tuple[str, ...]:
        return tuple(FAULTS) if self.faults == "all" else tuple(filter(None, self.faults.split(",")))

    @property
    def lossy(self) -> bool:
        return self.routing == "static" and self.resubscribe == "unsubscribe-first"

    def command(self, seed: int) -> str:
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
    """`error` is the exception that ended the history, as text."""

    seed: int
    findings: tuple[Finding, ...]
    steps: int
    delivered: int
    expected: int
    fired: int = 0
    """How often the injected defect changed the brokers' actions."""
    error: str = ""
    faults: tuple[tuple[str, int], ...] = ()
    """How often each of the named faults occurred."""
    damaged: int = 0
    """Events of records in which a bit has flipped."""

    @property
    def failed(self) -> bool:
        return bool(self.findings or self.error)
