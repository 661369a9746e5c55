"""Files of keys that tickets are signed with."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.overlay.node.ticket_keys import TicketKeyError, read_ticket_keys

RANDOM = b" \n" + bytes(range(200, 228)) + b"\t "


def test_keys_of_text_have_no_white_space_around_them_and_others_are_taken_whole(tmp_path: Path) -> None:
    text, random = tmp_path / "text", tmp_path / "random"
    text.write_bytes(b" " + b"k" * 40 + b"\n")
    random.write_bytes(RANDOM)
    assert len(RANDOM) == 32
    assert read_ticket_keys([str(text), str(random)]) == (b"k" * 40, RANDOM)


def test_a_short_or_missing_key_is_one_sentence(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"k" * 31 + b"\n")
    with pytest.raises(TicketKeyError, match="has a key of 31 bytes: expected at least 32"):
        read_ticket_keys([str(short)])
    with pytest.raises(TicketKeyError, match="cannot be read: No such file"):
        read_ticket_keys([str(tmp_path / "none")])
