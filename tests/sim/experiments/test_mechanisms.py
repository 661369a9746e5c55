"""Random histories, no more than `make test` plays, fail when a mechanism of the core is switched off."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from draws import DRAWS

from covey.overlay.core.client.reception import Reception
from covey.overlay.core.link import link
from covey.overlay.core.messages import CONTROL, SyncEnd, Unadvertise
from covey.overlay.core.routing import advertisements, broker
from covey.overlay.core.routing.acks import Acks
from covey.sim.experiments.fuzz import FuzzOptions, play_history

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


MECHANISMS = (
    acknowledgements_that_do_not_wait,
    resynchronisation_that_revokes_nothing,
    unadvertise_that_overtakes_events,
    clients_that_trust_every_deliver,
    advertisements_that_draw_no_older_interest,
)


@pytest.mark.parametrize("switch_off", MECHANISMS, ids=lambda mechanism: mechanism.__name__)
def test_histories_fail_without_a_mechanism(switch_off: Callable[[Patch], None], monkeypatch: Patch) -> None:
    switch_off(monkeypatch)
    histories = DRAWS["fuzzer, parametric"].few + 7 * DRAWS["fuzzer, other options"].few
    assert any(play_history(seed, FuzzOptions()).failed for seed in range(histories))
