"""`time_of_day` and `weekday` against `datetime` and `zoneinfo`, and their covering."""

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_calls import answers, covers, operator

DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
ZONES = ["UTC", "America/New_York", "Asia/Kathmandu", "Africa/Monrovia", "Australia/Lord_Howe"]
moments = st.one_of(
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    st.datetimes(datetime(2026, 3, 8, 5), datetime(2026, 3, 8, 9)),  # the clock of New York goes forward
    st.sampled_from([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1)]),
).map(lambda moment: moment.replace(tzinfo=UTC))
clocks = st.one_of(st.times(), st.sampled_from([time(0), time(9, 30), time(16), time(23, 59, 59, 999999)]))
ends = st.one_of(clocks.map(time.isoformat), st.just("24:00"))
days = st.lists(st.sampled_from([*DAYS, "Mon-Fri", "Sat-Sun", "Fri-Mon", "mon"]), min_size=1, max_size=3)


def local(moment: datetime, zone: str) -> datetime:
    try:
        return moment.astimezone(ZoneInfo(zone))
    except OverflowError:
        return moment


def since_midnight(clock: str) -> timedelta:
    if clock == "24:00":
        return timedelta(days=1)
    at = time.fromisoformat(clock)
    return datetime.combine(datetime.min, at) - datetime.min


def is_between(clock: time, start: str, end: str) -> bool:
    at, first, last = (since_midnight(each) for each in (clock.isoformat(), start, end))
    return first <= at < last if first <= last else at >= first or at < last


def listed(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.replace(",", " ").title().split():
        first, *last = (DAYS.index(day) for day in part.split("-"))
        at = first
        found.add(at)
        while at != (last or [first])[0]:
            at = (at + 1) % 7
            found.add(at)
    return found


@given(st.lists(moments, min_size=1, max_size=5), ends, ends, st.sampled_from(ZONES))
def test_the_clock_of_a_zone_lies_between_two_times(
    times: list[datetime], start: str, end: str, zone: str
) -> None:
    expected = [is_between(local(moment, zone).time(), start, end) for moment in times]
    assert answers("time_of_day", times, start, end, zone) == expected
    if zone == "UTC":
        assert answers("time_of_day", times, start, end) == expected


@given(
    st.lists(moments, min_size=1, max_size=5), days, st.sampled_from([" ", ",", ", "]), st.sampled_from(ZONES)
)
def test_days_of_the_week(times: list[datetime], some: list[str], mark: str, zone: str) -> None:
    text = mark.join(some)
    expected = [local(moment, zone).weekday() in listed(text) for moment in times]
    assert answers("weekday", times, text, zone) == expected


def test_start_end_and_midnight() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    times = [noon + timedelta(hours=hours) for hours in (-3, -2, 0, 4, 11, 12)]
    assert answers("time_of_day", times, "10:00", "16:00") == [False, True, True, False, False, False]
    assert answers("time_of_day", times, "23:00", "10:00") == [True, False, False, False, True, True]
    assert answers("time_of_day", times, "00:00", "24:00") == [True] * 6
    assert answers("time_of_day", times, "10:00", "10:00") == [False] * 6
    assert (
        answers("time_of_day", times, "11:59:59.9999", "12:00:00.000001")
        == [False, False, True] + [False] * 3
    )


@given(
    st.lists(st.sampled_from(["00:00", "06:00", "09:30", "12:00", "23:00", "24:00"]), min_size=4, max_size=4)
)
def test_times_of_day_cover_those_that_they_contain(ends: list[str]) -> None:
    wider, narrower = ends[:2], ends[2:]
    day = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes) for minutes in range(0, 1440, 15)]
    outer, inner = (answers("time_of_day", day, *each) for each in (wider, narrower))
    implied = all(a for a, b in zip(outer, inner, strict=True) if b)
    holds = covers("time_of_day", (None, *wider), (None, *narrower))
    assert implied or not holds
    assert holds or not implied or all(outer)  # a day in two parts may be whole


@given(days, days)
def test_days_cover_those_that_they_contain(wider: list[str], narrower: list[str]) -> None:
    texts = " ".join(wider), " ".join(narrower)
    expected = listed(texts[0]) >= listed(texts[1])
    assert covers("weekday", (None, texts[0]), (None, texts[1])) == expected
    assert not covers("weekday", (None, texts[0]), (None, texts[1], "UTC"))
    assert not covers("weekday", (None, texts[0], "UTC"), (None, texts[1], "Asia/Tokyo"))


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("time_of_day", ("9:30", "16:00"), "time of day '9:30': expected one such as"),
        ("time_of_day", ("09:30", "24:01"), "time of day '24:01'"),
        ("time_of_day", ("09:60", "16:00"), "time of day '09:60'"),
        ("time_of_day", ("09:30", None, "Europe/Atlantis"), "time zone 'Europe/Atlantis': expected a name"),
        ("time_of_day", ("09:30", "10:00", "../etc/passwd"), "time zone '../etc/passwd'"),
        ("time_of_day", ("09:30", "10:00", ""), "time zone ''"),
        ("weekday", ("Monday",), "days 'Monday': 'Monday', expected days such as"),
        ("weekday", ("Mon-",), "days 'Mon-'"),
        ("weekday", ("Mon-Tue-Wed",), "days 'Mon-Tue-Wed'"),
        ("weekday", (" ",), "days ' ': expected days such as"),
        ("weekday", ("Mon", "Mars/Base"), "time zone 'Mars/Base'"),
    ],
)
def test_other_text_is_refused_by_name(name: str, arguments: tuple[Any, ...], error: str) -> None:
    check = operator(name).check
    assert check is not None
    with pytest.raises(ValueError, match=error):
        check((None, *arguments))
    check((None, *(None for _ in arguments)))
