"""Timestamps as microseconds since 1970 in UTC; a datetime without a zone is UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """The microseconds from the epoch to a datetime."""
    return ((moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - EPOCH) // MICROSECOND


def moment_of(microseconds: int) -> datetime:
    """The datetime so many microseconds after the epoch."""
    return EPOCH + timedelta(microseconds=microseconds)


EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
FIRST_US = microseconds(EARLIEST)
LAST_US = microseconds(LATEST)
