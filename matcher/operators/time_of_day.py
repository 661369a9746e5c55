"""`time_of_day(time, start, end[, zone])` and `weekday(time, days[, zone])`: the time of day and the day of
the week, in a time zone (UTC by default).

The start is included, the end is not; a start after the end means over midnight. Days are written "Mon-Fri",
"Sat,Sun" or "Fri-Mon". A zone is a name of the tz database ("America/New_York"), read by `zoneinfo`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from covey.matcher.events.event_type import Kind
from covey.matcher.operators.arguments import Bools, microseconds_of, parsed_once
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?\Z")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@parsed_once
def _clock(text: str) -> int:
    """Microseconds since midnight; ValueError for other text."""
    parts = _CLOCK.match(text)
    if parts is not None:
        hour, minute, second = (int(part or 0) for part in parts.group(1, 2, 3))
        count = (hour * 3600 + minute * 60 + second) * _SECOND + int((parts[4] or "").ljust(6, "0"))
        if minute < 60 and second < 60 and count <= _DAY:
            return count
    raise ValueError(f'time of day {text!r}: expected one such as "09:30" or "16:00:00", up to "24:00"')


@parsed_once
def _days(text: str) -> frozenset[int]:
    """Numbers of days from 0 for Monday; ValueError for other text."""
    days: set[int] = set()
    for part in text.replace(",", " ").split():
        ends = [_DAYS.index(day) if day in _DAYS else -1 for day in part.lower().split("-")]
        if -1 in ends or len(ends) > 2:
            raise ValueError(f'days {text!r}: {part!r}, expected days such as "Mon-Fri" or "Sat,Sun"')
        days.update((ends[0] + i) % 7 for i in range((ends[-1] - ends[0]) % 7 + 1))
    if not days:
        raise ValueError(f'days {text!r}: expected days such as "Mon-Fri" or "Sat,Sun"')
    return frozenset(days)


@parsed_once
def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(f'time zone {name!r}: expected a name such as "America/New_York"') from None


def _local(time: Any, name: str) -> npt.NDArray[np.int64]:
    """Microseconds since 1970 on the clock of a zone. Its offset is looked up once for each second."""
    times = microseconds_of(time)
    zone = _zone(name)
    if zone is UTC:
        return times
    seconds, positions = np.unique(times // _SECOND, return_inverse=True)
    offsets = [_offset(zone, second) for second in seconds.tolist()]
    return times + np.array(offsets, np.int64)[positions]


def _offset(zone: tzinfo, second: int) -> int:
    try:
        offset = (_EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    except OverflowError:  # in the first or the last hours of the years 1 to 9999
        offset = None
    return 0 if offset is None else offset // timedelta(microseconds=1)


def _is_time_of_day(time: Any, start: str, end: str, zone: str = "UTC") -> Bools:
    clock = _local(time, zone) % _DAY
    first, last = _clock(start), _clock(end)
    if first <= last:
        return (clock >= first) & (clock < last)
    return (clock >= first) | (clock < last)


def _is_weekday(time: Any, days: str, zone: str = "UTC") -> Bools:
    is_listed = np.zeros(7, np.bool_)
    is_listed[list(_days(days))] = True
    weekdays = (_local(time, zone) // _DAY + 3) % 7  # 1970 began on a Thursday
    return is_listed[weekdays]


def _check_times(arguments: Sequence[Any]) -> None:
    for place, parse in enumerate((_clock, _clock, _zone), start=1):
        _check(arguments, place, parse)


def _check_days(arguments: Sequence[Any]) -> None:
    _check(arguments, 1, _days)
    _check(arguments, 2, _zone)


def _check(arguments: Sequence[Any], place: int, parse: Any) -> None:
    if place < len(arguments) and arguments[place] is not None:
        parse(arguments[place])


def _spans(arguments: Sequence[Any]) -> list[tuple[int, int]]:
    start, end = _clock(arguments[1]), _clock(arguments[2])
    spans = [(start, end)] if start <= end else [(start, _DAY), (0, end)]
    return [span for span in spans if span[0] < span[1]]


def _covers_times(wider: Sequence[Any], narrower: Sequence[Any]) -> bool:
    if wider[3:] != narrower[3:] or None in (*wider[1:3], *narrower[1:3]):
        return False
    spans = _spans(wider)
    return all(any(low <= start and end <= high for low, high in spans) for start, end in _spans(narrower))


def _covers_days(wider: Sequence[Any], narrower: Sequence[Any]) -> bool:
    if wider[2:] != narrower[2:] or wider[1] is None or narrower[1] is None:
        return False
    return _days(wider[1]) >= _days(narrower[1])


_TIME = Parameter("time", frozenset({Kind.TIMESTAMP}), Takes.ATTRIBUTE)


def _text(name: str) -> Parameter:
    return Parameter(name, frozenset({Kind.STRING}), Takes.CONSTANT)


TIME_OF_DAY = NamedOperator(
    name="time_of_day",
    parameters=(_TIME, _text("start"), _text("end"), _text("zone")),
    evaluate=_is_time_of_day,
    summary="a time lies between two times of the day, in a time zone",
    optional=1,
    cost_us=0.1,
    covers=_covers_times,
    check=_check_times,
    bounded=True,
)

WEEKDAY = NamedOperator(
    name="weekday",
    parameters=(_TIME, _text("days"), _text("zone")),
    evaluate=_is_weekday,
    summary="a time falls on one of some days of the week, in a time zone",
    optional=1,
    cost_us=0.1,
    covers=_covers_days,
    check=_check_days,
    bounded=True,
)
