"""Timestamps as microseconds since 1970 in UTC; a datetime without a zone is UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment_of(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
FIRST_US = microseconds(EARLIEST)
LAST_US = microseconds(LATEST)
