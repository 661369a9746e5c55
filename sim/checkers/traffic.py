"""The judge of traffic: an event crosses a link at most once, and never goes back where it came from.

In a tree an event of one publisher reaches a broker over one interface, and events of one publisher and type
keep their order; so the highest sequence number that has crossed in each direction is enough to know. Events
that are replayed for an update without gaps are out of order; of those the numbers themselves are kept.

From a crash until all is quiet again a neighbour may send again what it cannot know to have arrived, in the
same direction, and brokers may drop events; later it may still replay what one that crashed has forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from covey.overlay.core.messages import Drop, Message, Publish
from covey.sim.checkers.findings import Findings
from covey.sim.simulator.observer import Observer


class Traffic(Observer):
    """Watches all links between brokers; `now` says the virtual time."""

    def __init__(self, findings: Findings, now: Callable[[], int]) -> None:
        self.events = 0
        """Events that have crossed a link, once for each link."""
        self._findings = findings
        self._now = now
        self._marks: dict[tuple[str, str, str, str], int] = {}
        self._replayed: set[tuple[str, str, str, str, int]] = set()
        self._crashes = False

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
            self._say("echo", f"{source} sent event {first} of {batch.publisher} back to {target}")
        if message.replayed:
            for sequence in sequences.tolist():
                if (*key, sequence) in self._replayed and not self._crashes:
                    self._say("repetition", f"{source} replayed event {sequence} to {target} twice")
                self._replayed.add((*key, sequence))
            return
        if first <= self._marks.get(key, -1) and not self._crashes:
            self._say("repetition", f"{source} sent event {first} of {batch.publisher} to {target} twice")
        self._marks[key] = max(last, self._marks.get(key, -1))

    def crashed(self, broker: str) -> None:
        self._crashes = True

    def quiet(self) -> None:
        """All is quiet: a crash is no excuse for what happens from now on."""
        if self._crashes:
            self._crashes = False
            self._replayed.clear()

    def dropped(self, broker: str, action: Drop) -> None:
        if action.reason != "not connected" and not self._crashes:
            self._say(
                "drop", f"{broker} dropped {action.events} events of {action.type_name}: {action.reason}"
            )

    def _say(self, what: str, sentence: str) -> None:
        self._findings.add(what, self._now(), sentence)
