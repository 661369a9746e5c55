"""Random histories in which every fault may meet every other (`covey sim fuzz --faults all`)."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import pytest
from commands import run
from draws import ALL, some_seeds
from histories import play_all

from covey.matcher import compile_kernels
from covey.matcher.errors import InputError
from covey.overlay.core.access.guard import Guard
from covey.overlay.core.client import reception
from covey.overlay.core.messages import Message
from covey.overlay.node.broker_storage import BrokerStorage
from covey.overlay.storage import log, recovery, segment
from covey.overlay.storage.files import StorageError
from covey.sim.experiments.fuzz import FuzzOptions, play_history
from covey.sim.experiments.fuzz.faulty import FaultyHistory
from covey.sim.experiments.fuzz.options import FAULTS, HistoryOutcome
from covey.sim.simulator.defects import RECEIVED_KINDS, SENT_KINDS, CrashPoint, Moment
from covey.sim.simulator.observer import Observer

Patch = pytest.MonkeyPatch
OPTIONS = FuzzOptions(faults="all")


@some_seeds("fuzzer, faults", parts=8, stated=True)
def test_histories(seeds: range) -> None:
    expected = play_all(seeds, replace(OPTIONS, steps=60 if ALL else 30))
    assert expected > len(seeds)


@pytest.mark.parametrize(
    "seed",
    [
        40031,  # a broker crashes before a gapless update has passed it
        44508,  # an event is damaged at two brokers and lost at one
        401535,  # what is damaged was stored for a client that has moved since
        901159,
        904389,  # the goodbye of a client that returns arrives late
    ],
)
def test_histories_that_have_failed(seed: int) -> None:
    play_all([seed], OPTIONS)


def test_types_are_widened_beside_faults() -> None:
    play_all(range(4), replace(OPTIONS, widen=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone(fault: str) -> None:
    outcomes = [play_history(seed, FuzzOptions(faults=fault)) for seed in range(1, 6)]
    assert not [(each.findings, each.error) for each in outcomes if each.failed]
    assert {name for each in outcomes for name, count in each.faults if count} == {fault}


@pytest.mark.parametrize("moment", Moment)
def test_brokers_crash_at_every_kind_of_message(moment: Moment) -> None:
    compile_kernels()
    for kind in RECEIVED_KINDS if moment is Moment.RECEIVED else SENT_KINDS:
        for seed in range(12):
            history = FaultyHistory(seed, FuzzOptions(faults="crashes", durable=True, steps=30))
            points = history.simulation.crash_points
            points.add(CrashPoint(moment, kind, 1))
            outcome = history.play()
            assert not outcome.failed, (kind, seed, outcome)
            if any(point.kind == kind for point in history.met):
                break
        else:
            pytest.fail(f"no broker crashed at {kind}, {moment.value}")


class Digest(Observer):
    """Of all messages that arrive, when, and of their events."""

    def __init__(self, history: FaultyHistory) -> None:
        self._clock = history.simulation.clock
        self.sha = hashlib.sha256()
        history.simulation.observers.append(self)

    def received(self, source: str, target: str, message: Message) -> None:
        values = {field.name: getattr(message, field.name) for field in fields(message)}
        batch = values.pop("batch", None)
        if batch is not None:
            values |= {"publisher": batch.publisher, "events": batch.to_pylist(), "at": batch.ingress_ns}
            values["sequences"] = batch.sequences().tolist()
        kind = type(message).__name__
        self.sha.update(f"{self._clock.now_ns} {source} {target} {kind} {values}\n".encode())


def digest_of(seed: int) -> tuple[HistoryOutcome, str]:
    """The outcome of a history, and the digest of its messages and of the files that it leaves."""
    compile_kernels()
    history = FaultyHistory(seed, OPTIONS)
    digest = Digest(history)
    outcome = history.play()
    for each in history.simulation.brokers.values():
        for files in () if each.storage is None else each.storage.files.values():
            for name in files.names():
                digest.sha.update(files.read(name, 0, files.size(name)))
    return outcome, digest.sha.hexdigest()


def test_one_seed_gives_one_history_byte_for_byte() -> None:
    digests = [digest_of(seed) for seed in range(3)]
    assert [digest_of(seed) for seed in range(3)] == digests
    assert len({digest for _, digest in digests}) == 3


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(InputError, match="faults has 'gremlins': expected all, or some of crashes, power"):
        FuzzOptions(faults="crashes,gremlins")
    with pytest.raises(InputError, match="stalls is on: expected it off with faults"):
        FuzzOptions(faults="all", stalls=True)
    with pytest.raises(InputError, match="service is 'two-lanes': expected broker with faults"):
        FuzzOptions(faults="all", service="two-lanes")


def test_the_command_says_how_often_there_was_each_fault(capsys: pytest.CaptureFixture[str]) -> None:
    words = FuzzOptions(faults="partitions,clocks", steps=100).command(1).split()
    assert words[-2:] == ["--faults", "partitions,clocks"]
    assert run(*words[1:]) == 0
    assert "faults: partitions " in capsys.readouterr().out


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

    patch.setattr(BrokerStorage, "read", read)
    patch.setattr(log, "recover", lambda *arguments: _untold(*recovery.recover(*arguments)))


def _untold(segments: Any, recovered: Any) -> Any:
    return segments, replace(recovered, missing=())


def brokers_without_policies(patch: Patch) -> None:
    patch.setattr(Guard, "restricted", lambda self, message, interface, rights: message)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("switch_off", "found", "faults"),
    [
        (clients_without_watermarks, "duplicate", "all"),
        (brokers_that_outlive_a_failed_sync, "coverage", "full"),
        (records_without_checksums, "", "all"),
        (damage_that_is_not_told, "damage", "damage,partitions,slow,crashes"),
        (brokers_without_policies, "routing or strictness", "all"),
    ],
    ids=lambda each: each.__name__ if callable(each) else None,
)
def test_histories_fail_without_a_mechanism(
    switch_off: Callable[[Patch], None], found: str, faults: str, monkeypatch: Patch
) -> None:
    """Of those that no other kind of history has. Any error will do where nothing is `found`."""
    switch_off(monkeypatch)
    options = FuzzOptions(faults=faults, durable=True)
    failed = next(outcome for outcome in (play_history(i, options) for i in range(400)) if outcome.failed)
    assert failed.findings[0].what in found.split(" or ") if found else failed.error
