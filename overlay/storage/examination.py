"""What a whole reading of a segment shows: its records, what is missing, and where its sound part ends.

In all segments but the last, everything was synced before the next one began. In the last one a crash may
have torn what was written since the last sync. Which offsets were synced stands in the records (`synced`);
damage below that is damage, and the records behind it stay. At the first damage above it the segment is cut,
since what follows may belong to a write that nobody has confirmed: its sender sends it again, in its order.

So a damaged record of the very last sync is cut with all that was synced beside it, unless a sync mark
follows. What is cut is told, and its offsets are not used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from covey.overlay.storage.files import Files
from covey.overlay.storage.records import SEGMENT_HEADER_BYTES, Unreadable, scan
from covey.overlay.storage.segment import Missing, Segment


@dataclass(slots=True)
class Examination:
    """A segment with `records` sound records below the offset `end`, in its first `size` bytes.

    Of the last segment: all below the offset `synced` is known to be durable, the records behind it, from the
    position `unsure` on, may be in no more than a cache, and what is behind `size` is torn.
    """

    end: int
    size: int
    synced: int
    unsure: int
    records: int = 0
    damaged_bytes: int = 0
    missing: list[Missing] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged_bytes


@dataclass(slots=True)
class _Damage:
    """Damaged bytes: the offset expected there, that of what follows, None at the end, and the number of
    records before.
    """

    position: int
    end: int
    expected: int
    resumed: int | None
    records: int


def examine(files: Files, segment: Segment, end: int | None = None) -> Examination:
    """Read a segment that ends at an offset, or the last segment. Reads the file once, in pieces."""
    expected = synced = segment.first
    records, damages, unresolved = 0, list[_Damage](), list[_Damage]()
    unsure: dict[int, int] = {}  # the positions of the records that are not known to be synced
    for piece in scan(segment.read(files), segment.marker, SEGMENT_HEADER_BYTES, segment.size):
        if isinstance(piece, Unreadable):
            damages.append(_Damage(piece.position, piece.end, expected, None, records))
            unresolved.append(damages[-1])
            continue
        if piece.offset < expected or (end is not None and piece.offset >= end + (piece.payload == b"")):
            continue  # left over from before a cut
        while unresolved:
            unresolved.pop().resumed = piece.offset
        expected, synced = piece.offset, max(synced, piece.synced)
        if piece.payload is None:
            damages.append(_Damage(piece.position, piece.end, expected, expected + 1, records))
        elif piece.payload:
            records += 1
            unsure[piece.offset] = piece.position
        if piece.payload != b"":
            expected += 1
        while unsure and (first := next(iter(unsure))) < synced:
            del unsure[first]
    size = segment.size
    if end is None:
        torn = next((each for each in damages if _is_torn(each, synced)), None)
        if torn is not None:
            size, records, expected = torn.position, torn.records, torn.expected
            damages = [each for each in damages if each.position < size]
        end = max(expected, synced)
    result = Examination(end, size, synced, size, records)
    for damage in damages:
        _lose(result, damage.expected, end if damage.resumed is None else damage.resumed)
    _lose(result, expected, end)
    result.damaged_bytes = sum(each.end - each.position for each in damages)
    result.unsure = min((position for position in unsure.values() if position < size), default=size)
    return result


def _is_torn(damage: _Damage, synced: int) -> bool:
    return damage.resumed is None or damage.resumed > synced


def _lose(result: Examination, first: int, end: int) -> None:
    """Offsets of which no sound record was found; neighbouring ones are one entry."""
    missing = result.missing
    if missing and missing[-1].end >= first:
        first = missing.pop().first
    if first < end:
        missing.append(Missing(first, end, "damaged"))
