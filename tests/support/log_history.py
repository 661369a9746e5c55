"""A random history of a log on a simulated disk, beside a dictionary of confirmed records. The model reads
segments by the format's description, not by the log's code."""

import random
import struct
from contextlib import suppress
from zlib import crc32

import pytest

from covey.overlay.storage.files import StorageError
from covey.overlay.storage.log import Log
from covey.overlay.storage.recovery import verify
from covey.overlay.storage.segment import Missing, Record
from covey.sim.simulator.disk import SimulatedCrash, SimulatedFiles

HEADER = struct.Struct("<IIIqQQI")


class LogHistory:
    """One history. `confirmed` has the durable record by offset, `appended` all records that had an
    offset."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"log {seed}")
        self.files = SimulatedFiles(seed, sector_bytes=self.random.choice((16, 64, 512)))
        self.segment_bytes = self.random.choice((200, 1_000, 5_000))
        self.confirmed: dict[int, Record] = {}
        self.appended: dict[int, list[Record]] = {}
        self.gone: set[int] = set()
        """Offsets of damaged records that a recovery has cut, with the torn end behind."""
        self.first = 0
        """All before was removed, durably."""
        self.cut: set[int] = set()
        """Offsets that were confirmed, and cut behind damage."""
        self.epoch = 0
        """The end at the opening: earlier records without confirmation are void."""
        self.log = self.opened()

    # --- steps ----------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.random.choice(
                [self.append] * 4
                + [self.sync] * 4
                + [self.sync_beside, self.mark, self.read, self.remove, self.flip]
                + [self.crash, self.crash_within, self.fail, self.fill, self.close]
            )
            try:
                step()
            except SimulatedCrash:
                self.restart()
        self.crash()
        self.log.close()
        self.check_reports()

    def append(self) -> None:
        payloads = [self.payload() for _ in range(self.random.randrange(1, 6))]
        time_ns = self.random.randrange(1, 1_000)
        if self.log.failed:
            with pytest.raises(StorageError, match="takes no records until it is opened again"):
                self.log.append(payloads[0], time_ns)
            return
        for payload in payloads:
            offset = self.log.append(payload, time_ns)
            assert offset not in self.confirmed
            self.appended.setdefault(offset, []).append(Record(offset, time_ns, payload))

    def payload(self) -> bytes:
        """Random bytes, sometimes with a copy of a part of the log itself."""
        if self.log.segments and self.random.random() < 0.2:
            name = self.random.choice(self.log.segments)
            copied = self.files.read(name, self.random.randrange(100), self.random.randrange(1, 300))
            if copied:
                return copied
        return self.random.randbytes(self.random.choice((1, 10, 100, 300)))

    def confirm(self, end: int) -> None:
        for offset, records in self.appended.items():
            if offset < end and offset not in self.confirmed and offset >= self.epoch:
                self.confirmed[offset] = records[-1]

    def sync(self) -> None:
        try:
            end = self.log.sync()
        except StorageError:
            assert self.log.failed
            return
        assert end == self.log.end == self.log.synced
        self.confirm(end)

    def sync_beside(self) -> None:
        """A commit, with appends and reads before it ends."""
        if self.log.failed:
            return
        commit, end = self.log.begin_sync(), self.log.end
        self.append()
        if commit is None:
            return
        commit.run()
        self.append()
        self.read()
        try:
            assert self.log.end_sync(commit) == end
        except StorageError:
            return
        self.confirm(end)

    def mark(self) -> None:
        with suppress(StorageError):
            self.log.mark_synced()

    def read(self) -> None:
        offset = self.random.randrange(self.log.first, self.log.end + 1)
        for _ in range(self.random.randrange(1, 5)):
            reading = self.log.read(offset, self.random.choice((1, 100, 10_000)))
            self.check(reading.records, reading.missing, offset, reading.next)
            if reading.next == offset:
                assert offset == self.log.end
            offset = reading.next

    def remove(self) -> None:
        if self.random.random() < 0.5:
            removed = self.log.trim(self.random.randrange(self.log.first, self.log.end + 2))
        else:
            removed = self.log.retain(
                max_bytes=self.random.choice((None, 0, 2_000, 20_000)),
                since_ns=self.random.choice((None, 0, 300)),
            )
        assert removed.stop == self.log.first
        self.first = max(self.first, removed.stop)

    def flip(self) -> None:
        """Flip a bit of a record, a mark or a header."""
        names = [name for name in self.files.names() if self.pieces(name)]
        if not names:
            return
        name = self.random.choice(names)
        pieces = self.pieces(name)
        begin, end, *_ = self.random.choice(pieces)
        position = self.random.randrange(begin, end)
        if self.random.random() < 0.1:
            position = self.random.randrange(16)
        if any((name, position) == flip[:2] for flip in self.files.flips):
            return
        self.files.flip(name, position)

    def crash(self) -> None:
        """Between two calls: of the machine, or of the process."""
        self.restart()

    def crash_within(self) -> None:
        self.files.crash_in = self.random.randrange(6)

    def fail(self) -> None:
        self.files.failing_writes = self.random.randrange(2)
        self.files.failing_syncs = self.random.randrange(2)
        self.append()
        self.sync()
        self.files.failing_writes = self.files.failing_syncs = 0
        self.reopen_failed()

    def fill(self) -> None:
        self.files.room = self.random.randrange(500)
        for _ in range(3):
            self.append()
            self.sync()
        self.files.room = None
        self.reopen_failed()

    def reopen_failed(self) -> None:
        if self.log.failed:
            self.check(*self.read_all(self.log), self.log.first, self.log.end)
            self.log.close()
            if self.random.random() < 0.2:
                self.files.crash()
            self.log = self.opened()

    def close(self) -> None:
        failed = self.log.failed
        self.log.close()
        if not failed:
            self.confirm(self.log.end)
        self.log = self.opened()

    # --- opening --------------------------------------------------------------------------------------------

    def restart(self) -> None:
        self.files.crash(power=self.random.random() < 0.7)
        self.files.room = None
        self.files.failing_writes = self.files.failing_syncs = 0
        if self.random.random() < 0.2:
            self.flip()
        self.log = self.opened()

    def opened(self) -> Log:
        """The log, opened and checked, if need be after further crashes."""
        known, damaged = self.known(), self.damaged()
        while True:
            known = min(known, self.known())  # a crash may take a segment away, with what it says
            damaged |= self.damaged()
            if self.random.random() < 0.2:
                self.files.crash_in = self.random.randrange(12)
            try:
                log = Log(
                    self.files,
                    salt=self.random.randrange(2**32),
                    segment_bytes=self.segment_bytes,
                    max_record_bytes=5_000,
                )
            except SimulatedCrash:
                self.files.crash(power=self.random.random() < 0.7)
                continue
            self.files.crash_in = None
            break
        assert log.failed is None
        assert log.synced == log.end
        records, missing = self.read_all(log)
        cut = {offset for each in missing if each.reason == "cut" for offset in range(each.first, each.end)}
        lost = cut & self.confirmed.keys()
        assert not lost or (min(lost) >= known and damaged & lost)
        for offset in lost:
            del self.confirmed[offset]
        self.cut |= lost
        reported = {o for each in missing if each.reason == "damaged" for o in range(each.first, each.end)}
        self.gone |= reported & damaged
        self.check(records, missing, log.first, log.end)
        for record in records:
            self.confirmed.setdefault(record.offset, record)
        self.epoch = log.end
        return log

    # --- checks ---------------------------------------------------------------------------------------------

    def read_all(self, log: Log) -> tuple[list[Record], list[Missing]]:
        """Everything that a log serves, or reports missing."""
        assert log.first >= self.first
        records: list[Record] = []
        missing: list[Missing] = []
        offset = log.first
        while offset < log.end:
            reading = log.read(offset, 3_000)
            assert reading.next > offset
            records += reading.records
            missing += reading.missing
            offset = reading.next
        return records, missing

    def check(self, records: list[Record], missing: list[Missing], start: int, end: int) -> None:
        """Check that each offset of a range was served, right, or reported missing."""
        served = {record.offset: record for record in records}
        assert list(served) == sorted(served)
        assert len(served) == len(records)
        damaged = self.damaged()
        reasons = {offset: each.reason for each in missing for offset in range(each.first, each.end)}
        assert not served.keys() & reasons.keys()
        assert served.keys() | reasons.keys() == set(range(start, end))
        for offset, record in served.items():
            assert record in self.appended[offset]
            assert record == self.confirmed.get(offset, record)
            assert offset not in self.cut
            if offset in self.confirmed:
                assert offset not in damaged
        for offset, reason in reasons.items():
            if reason == "damaged":
                assert offset in damaged, offset
            elif reason == "cut":
                assert offset not in self.confirmed
            else:
                assert offset < self.log.first

    def check_reports(self) -> None:
        """`verify` agrees with the model on each segment."""
        records, damaged = 0, self.damaged()
        for report in verify(self.files):
            records += report.records
            assert not report.torn_bytes
            assert {o for each in report.missing for o in range(each.first, each.end)} <= damaged
        kept = [offset for offset in self.confirmed if offset >= self.log.first]
        assert records == len([offset for offset in kept if offset not in damaged])

    # --- the bytes ------------------------------------------------------------------------------------------

    def pieces(self, name: str) -> list[tuple[int, int, int, bool, int]]:
        """First byte, end and offset of each record and mark in a segment, whether it is a mark, and its sync
        offset; up to the torn end."""
        content = bytearray(self.files.read(name, 0, self.files.size(name)))
        for other, position, bit in self.files.flips:
            if other == name and position < len(content):
                content[position] ^= bit
        marker, position, pieces = int(name[-16:-8], 16), 16, []
        while position + HEADER.size <= len(content):
            found, length, _, _, offset, synced, check = HEADER.unpack_from(content, position)
            end = position + HEADER.size + length
            fields = content[position : position + HEADER.size - 4]
            if found != marker or end > len(content) or check != crc32(fields, position):
                break
            pieces.append((position, end, offset, not length, synced))
            position = end
        return pieces

    def damaged(self) -> set[int]:
        """The offsets of records with a flipped bit, and of those that were cut."""
        flips = self.files.flips
        return self.gone | {
            offset
            for name in {name for name, _, _ in flips}
            for begin, end, offset, is_mark, _ in self.pieces(name)
            if not is_mark and any(name == other and begin <= at < end for other, at, _ in flips)
        }

    def known(self) -> int:
        """The last segment's highest sync offset in whole headers."""
        names = self.files.names()
        if not names:
            return 0
        flipped = [position for name, position, _ in self.files.flips if name == names[-1]]
        whole = [
            synced
            for begin, _, _, _, synced in self.pieces(names[-1])
            if not any(begin <= position < begin + HEADER.size for position in flipped)
        ]
        return max(whole, default=0)
