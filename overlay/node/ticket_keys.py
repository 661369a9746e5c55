"""The keys that tickets of durable sessions are signed with: secrets in files, the same at all brokers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

LEAST_BYTES = 32


class TicketKeyError(ValueError):
    """The file of a key cannot be used."""


def read_ticket_keys(paths: Sequence[str]) -> tuple[bytes, ...]:
    """The keys of these files: of text without the white space around it, of other bytes all of them.
    `TicketKeyError`, one sentence, for a file that has none.
    """
    keys = []
    for path in paths:
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise TicketKeyError(f"tickets: {path} cannot be read: {error.strerror}") from None
        key = content.strip() if content.isascii() else content
        if len(key) < LEAST_BYTES:
            raise TicketKeyError(
                f"tickets: {path} has a key of {len(key)} bytes: expected at least {LEAST_BYTES}"
            )
        keys.append(key)
    return tuple(keys)
