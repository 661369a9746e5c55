"""Messages of a call that arrive in pieces."""

import tracemalloc

from covey.overlay.http2.messages import MessageReader, frame_message


def test_a_message_in_pieces_of_two_bytes_takes_little_more_memory_than_its_bytes() -> None:
    message = bytes(range(256)) * 400
    data = frame_message(message)
    reader = MessageReader(1 << 20)
    most = 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for start in range(0, len(data), 2):
            reader.feed(data[start : start + 2])
            if start % 1_000 == 0:
                most = max(most, tracemalloc.get_traced_memory()[0] - before - reader.size)
    finally:
        tracemalloc.stop()
    assert reader.cut(10) == ([message], -len(message) + 2 - len(data) % 2)
    assert most < 50_000
    assert reader.size == 0


def test_messages_behind_one_that_came_in_pieces() -> None:
    data = frame_message(b"x" * 5_000) + frame_message(b"") + frame_message(b"y")
    reader = MessageReader(10_000)
    assert sum(reader.feed(data[start : start + 1]) for start in range(4_000)) == 4_000
    assert not reader.waiting
    reader.feed(data[4_000:])
    assert reader.cut(10)[0] == [b"x" * 5_000, b"", b"y"]


def test_a_message_that_came_alone_is_cut_before_those_behind_it_and_dropped_with_them() -> None:
    data = frame_message(b"x" * 50)
    reader = MessageReader(10_000)
    reader.alone, reader.size = b"x" * 50, len(data)
    assert reader.waiting
    assert reader.feed(frame_message(b"y") + b"\0") == 0
    assert reader.alone is None
    assert reader.cut(10) == ([b"x" * 50, b"y"], 10 + 1)
    reader.drop()
    reader.alone, reader.size = b"x" * 50, len(data)
    assert reader.drop() == len(data)
    assert not reader.waiting
    assert reader.alone is None
