"""The judge of traffic: an event crosses a link at most once, and never back. Events of one publisher and
type keep their order on a link, so the highest sequence number per direction is enough. Replays, for gapless
updates and for views, are out of order: all their numbers are stored. From a crash until all is at rest a
neighbour may repeat events in the same direction, and brokers may drop events; replays for views may repeat
events from the first crash on."""

from __future__ import annotations

from collections.abc import Callable

from covey.overlay.core.messages import Drop, Message, Publish
from covey.sim.checkers.findings import Findings
from covey.sim.simulator.observer import Observer


class Traffic(Observer):
    """Observes all links between brokers; `now` returns the time in ns."""

    def __init__(self, findings: Findings, now: Callable[[], int]) -> None:
        self.events = 0
        """Events times links crossed."""
        self._findings = findings
        self._now = now
        self._marks: dict[tuple[str, str, str, str], int] = {}
        self._replayed: set[tuple[str, str, str, str, bool, int]] = set()
        self._after_crash = self._has_crashed = False
        self._after_release = False

    def received(self, source: str, target: str, message: Message) -> None:
        if not (isinstance(message, Publish) and source.startswith("broker/") and len(message.batch)):
            return
        batch = message.batch
        self.events += len(batch)
        sequences = batch.sequences()
        first, last = int(sequences.min()), int(sequences.max())
        name = batch.event_type.name
        key = (source, target, batch.publisher, name)
        if first <= self._marks.get((target, source, batch.publisher, name), -1):
            self._report("echo", f"{source} sent event {first} of {batch.publisher} back to {target}")
        if message.for_views and not message.replayed:
            return  # judged by what views show
        if message.replayed:
            for sequence in sequences.tolist():
                excused = self._after_crash or (message.for_views and self._has_crashed)
                if (*key, message.for_views, sequence) in self._replayed and not excused:
                    self._report("repetition", f"{source} replayed event {sequence} to {target} twice")
                self._replayed.add((*key, message.for_views, sequence))
            return
        if first <= self._marks.get(key, -1) and not self._after_crash:
            self._report("repetition", f"{source} sent event {first} of {batch.publisher} to {target} twice")
        self._marks[key] = max(last, self._marks.get(key, -1))

    def crashed(self, broker: str) -> None:
        self._after_crash = self._has_crashed = True

    def released(self, broker: str, neighbour: str) -> None:
        self._after_release = True  # an Unadvertise overtakes events, which are dropped behind it

    def quiet(self) -> None:
        """Call it when all is at rest: then neither an earlier crash nor a moved link excuses anything but
        repeated replays for views."""
        self._after_release = False
        if self._after_crash:
            self._after_crash = False
            self._replayed.clear()

    def dropped(self, broker: str, action: Drop) -> None:
        if action.reason != "not connected" and not self._after_crash and not self._after_release:
            self._report(
                "drop", f"{broker} dropped {action.events} events of {action.type_name}: {action.reason}"
            )

    def _report(self, what: str, sentence: str) -> None:
        self._findings.add(what, self._now(), sentence)
