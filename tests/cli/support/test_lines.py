"""Lines of a process's output: complete, split, unterminated and overlong."""

import asyncio

import pytest

from covey.cli.support.waiting import output_lines


async def lines(*parts: bytes) -> list[str]:
    output = asyncio.StreamReader(limit=4)

    async def feed() -> None:
        for part in parts:
            output.feed_data(part)
            await asyncio.sleep(0)
        output.feed_eof()

    feeding = asyncio.create_task(feed())
    result = [line async for line in output_lines(output, longest=8)]
    await feeding
    return result


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], []),
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\r\n\nt", b"wo"], ["one", "", "two"]),
        ([b"12345678\n"], ["12345678"]),
        ([b"123456789\nnext\n"], ["12345678 ... (1 more bytes)", "next"]),
        ([b"123456", b"7890123", b"45\nnext\n"], ["12345678 ... (7 more bytes)", "next"]),
        ([b"x" * 1_008], ["xxxxxxxx ... (1,000 more bytes)"]),
        ([b"\xff\n"], ["�"]),
    ],
)
def test_output_is_split_into_lines_and_long_ones_are_truncated(
    parts: list[bytes], expected: list[str]
) -> None:
    assert asyncio.run(lines(*parts)) == expected
