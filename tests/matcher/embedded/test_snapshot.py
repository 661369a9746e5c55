"""Snapshots: their format, atomic writing, and invalid files."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from draws import SEED

from covey.matcher import EventType, Matcher, SnapshotError, parse
from covey.matcher.embedded import snapshot

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "open": "bool", "time": "timestamp"})
TRADE = EventType("Trade", {"firm": "string", "size": "int64"})
FILTER = parse("firm == $firm and price < $limit and open == $open and time > $since", QUOTE)
VALUES = {"firm": "é", "limit": -0.0, "open": True, "since": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)}


@pytest.fixture
def matcher() -> Matcher:
    matcher = Matcher(QUOTE, TRADE, engine="naive")
    matcher.add(2**63 - 1, FILTER, VALUES, interface=65_535)
    matcher.add(-(2**63), parse('firm == "a\\"b"', TRADE))
    matcher.add(5, parse('firm == "a\\"b"', QUOTE))
    matcher.add_many(range(10, 13), parse("size > $x", TRADE), {"x": [2**63 - 1, 1.5, float("inf")]})
    matcher.remove(11)
    return matcher


def test_a_snapshot_is_an_arrow_file(matcher: Matcher, tmp_path: Path) -> None:
    matcher.save(tmp_path / "saved")
    with pa.memory_map(str(tmp_path / "saved")) as file:
        reader = pa.ipc.open_file(file)
        rows = reader.read_all().to_pylist()
    assert reader.schema.metadata[b"covey.snapshot"] == b"1"
    assert rows[0] == {
        "id": 2**63 - 1, "event_type": "Quote", "filter": str(FILTER),
        "values": ["é", 0.0, True, VALUES["since"]], "interface": 65_535,
    }  # fmt: skip
    assert [row["values"] for row in rows[3:]] == [[2**63 - 1], [float("inf")]]


def test_a_loaded_matcher_is_the_saved_one(
    matcher: Matcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_BATCH", 2)
    matcher.save(tmp_path / "saved")
    loaded = Matcher.load(tmp_path / "saved", engine="naive")
    assert list(loaded) == list(matcher)
    assert loaded.event_types == matcher.event_types
    Matcher(QUOTE, engine="naive").save(tmp_path / "saved")
    empty = Matcher.load(tmp_path / "saved", engine="naive")
    assert (len(empty), empty.event_types, os.listdir(tmp_path)) == (0, [QUOTE], ["saved"])


def test_a_failed_save_leaves_the_old_file(
    matcher: Matcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "saved"
    matcher.save(place)
    before = place.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        Matcher(engine="naive").save(place)
    assert (place.read_bytes(), os.listdir(tmp_path)) == (before, ["saved"])


def test_files_that_are_no_snapshots_are_refused(matcher: Matcher, tmp_path: Path) -> None:
    place = tmp_path / "saved"
    matcher.save(place)
    whole = place.read_bytes()
    for content in (b"", b"ids", whole[:-1], whole[:100], whole[: len(whole) // 2], whole[1:]):
        place.write_bytes(content)
        with pytest.raises(SnapshotError, match=r"saved: (no snapshot, or a truncated one|damaged)"):
            Matcher.load(place, engine="naive")
    with pytest.raises(FileNotFoundError):
        Matcher.load(tmp_path / "none", engine="naive")


def test_damaged_bytes_are_an_error_of_the_snapshot(matcher: Matcher, tmp_path: Path) -> None:
    place = tmp_path / "saved"
    matcher.save(place)
    whole = place.read_bytes()
    footer = whole.rindex(b"covey.subscriptions")
    for position in range(footer - 400 + SEED % 9, len(whole), 9):
        place.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        with suppress(SnapshotError):
            Matcher.load(place, engine="naive")


def test_ids_that_are_there_twice_are_an_error_of_the_snapshot(matcher: Matcher, tmp_path: Path) -> None:
    place = tmp_path / "saved"
    matcher.save(place)
    table = pa.ipc.open_file(place.read_bytes()).read_all()
    ids = pa.array([7] * len(table))
    with pa.ipc.new_file(str(place), table.schema) as writer:
        writer.write_table(table.set_column(0, "id", ids).cast(table.schema))
    with pytest.raises(SnapshotError, match="saved: subscriptions that cannot be added: subscription 7"):
        Matcher.load(place, engine="naive")


def test_a_snapshot_keeps_the_permissions_and_the_link_of_its_place(matcher: Matcher, tmp_path: Path) -> None:
    place, link = tmp_path / "saved", tmp_path / "link"
    matcher.save(place)
    place.chmod(0o600)
    link.symlink_to(place)
    matcher.remove(5)
    matcher.save(link)
    assert link.is_symlink()
    assert place.stat().st_mode & 0o777 == 0o600
    assert len(Matcher.load(place, engine="naive")) == len(matcher)


def rewritten(place: Path, metadata: dict[str, str], drop: int = 0) -> None:
    """The snapshot with other metadata, and without its last rows."""
    table = pa.ipc.open_file(place.read_bytes()).read_all()
    table = table.slice(0, len(table) - drop)
    old = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    kept = {key: value for key, value in (old | metadata).items() if value}
    with pa.ipc.new_file(str(place), table.schema.with_metadata(kept)) as writer:
        writer.write_table(table.replace_schema_metadata(kept))


@pytest.mark.parametrize(
    ("metadata", "drop", "message"),
    [
        ({"covey.snapshot": "2"}, 0, "a snapshot of version 2, expected version 1"),
        ({"covey.snapshot": ""}, 0, "an Arrow file that is no snapshot"),
        ({"covey.event_types": "[1]"}, 0, "event types that cannot be read"),
        ({"covey.event_types": '[["Quote", {"price": "int128"}]]'}, 0, "event types that cannot be read"),
        ({"covey.event_types": '[["Quote", 5]]'}, 0, "event types that cannot be read"),
        ({"covey.event_types": "[" * 100_000}, 0, "event types that cannot be read"),
        ({"covey.event_types": '[["Quote", {"price": "int64"}]]'}, 0, "damaged subscriptions in batch 0"),
        ({}, 1, "4 subscriptions, expected 5"),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_said(
    matcher: Matcher, tmp_path: Path, metadata: dict[str, str], drop: int, message: str
) -> None:
    place = tmp_path / "saved"
    matcher.save(place)
    rewritten(place, metadata, drop)
    with pytest.raises(SnapshotError, match=message):
        Matcher.load(place, engine="naive")
