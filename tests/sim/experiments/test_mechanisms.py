"""Random histories fail when a mechanism is switched off, or a defect is seeded; except for rare ones, within
as many as `make test` plays."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from draws import DRAWS

from covey.overlay.core.access.guard import Guard
from covey.overlay.core.client import reception
from covey.overlay.core.client.reception import Reception
from covey.overlay.core.endpoint.durability import Durability
from covey.overlay.core.endpoint.flow import Holds
from covey.overlay.core.endpoint.recovery import Recovery
from covey.overlay.core.endpoint.repairing import Repairing
from covey.overlay.core.link import link
from covey.overlay.core.link.event_queue import EventQueue, packed
from covey.overlay.core.link.link import Link
from covey.overlay.core.messages import CONTROL, Message, SyncEnd, Unadvertise
from covey.overlay.core.repair.uplink import Uplink, UplinkRule
from covey.overlay.core.routing import advertisements, broker
from covey.overlay.core.routing.acks import Acks
from covey.overlay.core.routing.tables import DurableType
from covey.overlay.node.broker_storage import BrokerStorage
from covey.overlay.storage import log, recovery, segment
from covey.overlay.storage.files import StorageError
from covey.sim.experiments.fuzz import FuzzOptions, play_history
from covey.sim.experiments.fuzz import history as fuzz_history

Patch = pytest.MonkeyPatch


def acknowledgements_that_do_not_wait(patch: Patch) -> None:
    genuine = Acks.open
    patch.setattr(Acks, "open", lambda acks, source, epoch, waits: genuine(acks, source, epoch, {}))


def resynchronisation_that_revokes_nothing(patch: Patch) -> None:
    genuine = broker._HANDLERS[SyncEnd]

    def handle(tables: Any, call: Any, message: SyncEnd, peer: Any) -> None:
        peer.stale_subscriptions, peer.stale_types = {}, {}
        genuine(tables, call, message, peer)

    patch.setitem(broker._HANDLERS, SyncEnd, handle)


def unadvertise_that_overtakes_events(patch: Patch) -> None:
    patch.setattr(link, "CONTROL", (*CONTROL, Unadvertise))


def clients_that_trust_every_deliver(patch: Patch) -> None:
    genuine = Reception.matches
    patch.setattr(
        Reception, "matches", lambda self, message, epoch: genuine(self, replace(message, epoch=2**62), epoch)
    )


def advertisements_that_draw_no_older_interest(patch: Patch) -> None:
    patch.setattr(advertisements, "forward", lambda *_: None)


def holds_of_all_types(patch: Patch) -> None:
    genuine = Holds.set_full

    def set_full(self: Holds, interface: str, types: Any) -> None:
        genuine(self, interface, list(self._sources) if list(types) else ())

    patch.setattr(Holds, "set_full", set_full)


def no_holds(patch: Patch) -> None:
    patch.setattr(Holds, "set_full", lambda *_: None)


def credit_at_once_after_a_restart(patch: Patch) -> None:
    patch.setattr(Recovery, "begins", lambda *_: False)


def held_types_in_the_way_of_others(patch: Patch) -> None:
    def append(self: EventQueue, message: Message) -> None:
        entry = packed(message)
        self._count(entry)
        self.ready.append(entry)

    def set_held(self: EventQueue, type_name: str, held: bool) -> None:
        for each, empty in ((self.aside, deque()), (self._held_bytes, 0)):
            each[type_name] = empty
            if not held:
                del each[type_name]

    def behind_held(genuine: Callable[[Link], Any]) -> Callable[[Link], Any]:
        def call(self: Link) -> Any:
            events, ready = self.events, self.events.ready
            if ready and ready[0].type_name in events.aside:
                events.ready = deque()
            try:
                return genuine(self)
            finally:
                events.ready = ready

        return call

    for method in (append, set_held):
        patch.setattr(EventQueue, method.__name__, method)
    patch.setattr(Link, "next_frame", behind_held(Link.next_frame))
    patch.setattr(Link, "ready", property(behind_held(Link.ready.fget)))


def gaps_that_are_not_told(patch: Patch) -> None:
    patch.setattr(Link, "tell_gap", lambda *_: None)


def newest_events_that_supersede_nothing(patch: Patch) -> None:
    patch.setattr(EventQueue, "conflate", lambda *_: [])


def links_upward_and_downward(patch: Patch) -> None:
    """Any broker accepts any other, so upward links make cycles."""

    def candidates(self: UplinkRule, broker: str) -> tuple[str, ...]:
        above = [self.parents[broker]] if broker in self.parents else []
        return tuple(dict.fromkeys([*above, *(each for each in self.order if each != broker)]))

    patch.setattr(UplinkRule, "candidates", candidates)
    patch.setattr(fuzz_history, "_LIVELOCK_STEPS", 2_000)


def downward_links_that_stay(patch: Patch) -> None:
    release = Repairing._end

    def end(self: Repairing, interface: str, now_ns: int) -> None:
        if interface == self._chosen:
            release(self, interface, now_ns)

    patch.setattr(Repairing, "_end", end)


def links_that_never_go_back(patch: Patch) -> None:
    patch.setattr(Uplink, "better", lambda *_: None)


def two_upward_links_at_a_time(patch: Patch) -> None:
    patch.setattr(Repairing, "_leave", lambda *_: None)


def flushes_that_overtake_events(patch: Patch) -> None:
    patch.setattr(Durability, "has_all", lambda *_: True)


def own_events_before_copies(patch: Patch) -> None:
    patch.setattr(Durability, "begin_behind", lambda *_: None)


def acknowledgements_before_the_sync(patch: Patch) -> None:
    patch.setattr(Durability, "hold", lambda *_: None)


def cursors_ahead_of_acknowledgements(patch: Patch) -> None:
    patch.setattr(Durability, "_cursor", lambda self, _, name: self.storage.end(name))


def durable_types_without_watermarks(patch: Patch) -> None:
    patch.setattr(DurableType, "fresh", lambda *_: None)


def clients_without_watermarks(patch: Patch) -> None:
    class Forgetful(reception.Watermarks):
        def fresh(self, batch: Any) -> None:
            return None

    patch.setattr(reception, "Watermarks", Forgetful)


def brokers_that_outlive_a_failed_sync(patch: Patch) -> None:
    genuine = BrokerStorage.end_sync

    def end_sync(storage: BrokerStorage) -> None:
        with suppress(StorageError):
            genuine(storage)

    patch.setattr(BrokerStorage, "end_sync", end_sync)


def records_without_checksums(patch: Patch) -> None:
    patch.setattr(segment, "crc32", lambda *_: 0)


def damage_that_is_not_told(patch: Patch) -> None:
    genuine = BrokerStorage.read

    def read(*arguments: Any) -> Any:
        return (*genuine(*arguments)[:2], 0)

    def recover(*arguments: Any) -> Any:
        segments, recovered = recovery.recover(*arguments)
        return segments, replace(recovered, missing=())

    patch.setattr(BrokerStorage, "read", read)
    patch.setattr(log, "recover", recover)


def brokers_without_policies(patch: Patch) -> None:
    patch.setattr(Guard, "restricted", lambda self, message, interface, rights: message)


def seeded(_: Patch) -> None:
    """The defect is one of the options."""


FEW = DRAWS["fuzzer, parametric"].few + 7 * DRAWS["fuzzer, other options"].few
STALLS = FuzzOptions(stalls=True)
REPAIR = FuzzOptions(repair=True, steps=30)
DURABLE = FuzzOptions(durable=True, steps=120)
MOVING = replace(DURABLE, moves=True)
FAULTY = FuzzOptions(durable=True, faults="all")
DEFECT = FuzzOptions(steps=120)
VIEWS = replace(DEFECT, views=True)
OF_VIEWS = "view answer, view state"

SWITCHED_OFF: list[tuple[Callable[[Patch], None], FuzzOptions, int, str]] = [
    # mechanism, options, number of histories, and one of these as the first finding, where stated
    (acknowledgements_that_do_not_wait, FuzzOptions(), FEW, ""),
    (resynchronisation_that_revokes_nothing, FuzzOptions(), FEW, ""),
    (unadvertise_that_overtakes_events, FuzzOptions(), FEW, ""),
    (clients_that_trust_every_deliver, FuzzOptions(), FEW, ""),
    (advertisements_that_draw_no_older_interest, FuzzOptions(), FEW, ""),
    (holds_of_all_types, STALLS, 24, ""),
    (no_holds, STALLS, 24, ""),
    (credit_at_once_after_a_restart, STALLS, 24, ""),
    (held_types_in_the_way_of_others, STALLS, 24, ""),
    (gaps_that_are_not_told, STALLS, 24, ""),
    (newest_events_that_supersede_nothing, STALLS, 24, ""),
    (links_upward_and_downward, REPAIR, 60, ""),
    (downward_links_that_stay, REPAIR, 60, ""),
    (links_that_never_go_back, REPAIR, 60, ""),
    (two_upward_links_at_a_time, REPAIR, 60, ""),
    (flushes_that_overtake_events, MOVING, 200, ""),
    (own_events_before_copies, MOVING, 200, ""),
    (acknowledgements_before_the_sync, DURABLE, 200, "coverage"),
    (cursors_ahead_of_acknowledgements, DURABLE, 200, "coverage"),
    (durable_types_without_watermarks, DURABLE, 200, "repetition"),
    (clients_without_watermarks, FAULTY, 400, "duplicate"),
    (brokers_that_outlive_a_failed_sync, replace(FAULTY, faults="full"), 400, "coverage"),
    (records_without_checksums, FAULTY, 400, "error"),
    (damage_that_is_not_told, replace(FAULTY, faults="damage,partitions,slow,crashes"), 400, "damage"),
    (brokers_without_policies, FAULTY, 400, "routing, strictness"),
    (seeded, replace(DEFECT, defect="drop-update"), 15, "routing, coverage"),
    (seeded, replace(DEFECT, defect="keep-slot"), 15, "routing"),
    (seeded, replace(DEFECT, defect="keep-slot", operators=True), 15, "routing"),
    (seeded, replace(DEFECT, defect="echo-event"), 15, "echo"),
    (seeded, replace(DEFECT, defect="early-acknowledge"), 15, "coverage"),
    (seeded, replace(DEFECT, defect="claim-newest"), 15, "strictness"),
    (seeded, replace(DEFECT, defect="no-replay", gapless=True), 45, "coverage"),
    (seeded, replace(DEFECT, defect="repeat-event"), 15, "repetition, duplicate"),
    (seeded, replace(DEFECT, defect="wrong-results", calls=True), 15, "coverage, strictness"),
    (seeded, replace(VIEWS, defect="no-last-events"), 15, OF_VIEWS),
    (seeded, replace(VIEWS, defect="no-departures"), 15, OF_VIEWS),
    (seeded, replace(VIEWS, defect="early-answer"), 15, "view answer"),
    (seeded, replace(VIEWS, defect="no-restored-keys", durable=True), 30, OF_VIEWS),
]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("switch_off", "options", "count", "found"),
    [pytest.param(*each, id=each[1].defect or each[0].__name__) for each in SWITCHED_OFF],
)
def test_histories_fail_without_a_mechanism(
    switch_off: Callable[[Patch], None], options: FuzzOptions, count: int, found: str, monkeypatch: Patch
) -> None:
    switch_off(monkeypatch)
    outcomes = (play_history(seed, options) for seed in range(count))
    failed = next(outcome for outcome in outcomes if outcome.failed)
    seen = "error" if failed.error else failed.findings[0].what
    assert not found or seen in found.split(", ")
    assert options.defect is None or failed.fired
