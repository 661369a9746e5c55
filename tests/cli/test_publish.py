"""Events from standard input, with a closed client and invalid lines; lists in CSV files."""

import asyncio
import re
from collections.abc import AsyncIterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from commands import run

from covey.cli.publish import _Pace, _publish_csv, _publish_lines
from covey.matcher import EventBatch, EventError, EventType
from covey.overlay import ConnectError

QUOTE = EventType("Quote", {"price": "float64"})


@pytest.mark.parametrize("rate", ["0", "nan", "inf"])
def test_rates_that_are_none(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("publish", "Quote", "--rate", rate) == 2
    assert f"--rate is {rate}: expected a number of events per second above 0" in capsys.readouterr().err


class ClosedClient:
    async def publish(self, type_name: str, values: object, /, *, confirm: bool) -> None:
        raise ConnectError("a client of this name is here already")


def test_a_closed_client_ends_the_command_while_it_waits_for_input(monkeypatch: pytest.MonkeyPatch) -> None:
    async def typed() -> AsyncIterator[str]:
        yield '{"price": 1}'
        await asyncio.Event().wait()

    monkeypatch.setattr("covey.cli.publish.stdin_lines", typed)
    publishing = _publish_lines(cast(Any, ClosedClient()), QUOTE, _Pace(None))
    with pytest.raises(ConnectError, match="is here already"):
        asyncio.run(asyncio.wait_for(publishing, 60))


def test_deeply_nested_json_is_refused_like_other_invalid_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def typed() -> AsyncIterator[str]:
        yield "[" * 100_000

    monkeypatch.setattr("covey.cli.publish.stdin_lines", typed)
    assert asyncio.run(_publish_lines(cast(Any, ClosedClient()), QUOTE, _Pace(None))) == (0, 1)
    assert capsys.readouterr().err.startswith("line 1: not JSON: ")


def test_bytes_that_are_no_utf8_are_refused_like_other_invalid_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They once ended the input silently, with all lines read in the same block."""
    tag = EventType("Tag", {"name": "string"})
    published: list[object] = []

    async def publish(type_name: str, event: dict[str, object], /, *, confirm: bool) -> None:
        published.extend(EventBatch.from_pylist(tag, [event]).to_pylist())

    data = b'{"name": "a"}\n{"name": "\xff"}\n\xff\n{"name": "\xc3\xbc"}\n'
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(data), encoding="utf-8"))
    client = cast(Any, SimpleNamespace(publish=publish))
    assert asyncio.run(_publish_lines(client, tag, _Pace(None))) == (2, 2)
    assert published == [{"name": "a"}, {"name": "\u00fc"}]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in lines if line.startswith("line")] == ["line 2", "line 3"]


def csv_rows(file: Path, text: str) -> list[dict[str, object]]:
    """The events published from a CSV file with this text."""
    photo = EventType("Photo", {"tags": "list<string>", "time": "timestamp", "bytes": "int64"})
    published: list[dict[str, object]] = []

    async def publish_batch(type_name: str, records: object, *, confirm: bool) -> None:
        published.extend(EventBatch.from_arrow(photo, records).to_pylist())

    file.write_text(text)
    client, session = SimpleNamespace(publish_batch=publish_batch), SimpleNamespace(published=0)
    asyncio.run(_publish_csv(cast(Any, client), cast(Any, session), photo, str(file), _Pace(None)))
    return published


def test_lists_of_a_csv_file_are_json(tmp_path: Path) -> None:
    rows = csv_rows(
        tmp_path / "photos.csv", 'tags,time\n"[""sea"", ""é""]",2026-01-31\n[],2026-01-31\n,2026-01-31\n'
    )
    assert [row["tags"] for row in rows] == [["sea", "é"], [], None]
    for wrong in ("sea", '"[1]"', '"{}"', r'"[""\ud800""]"', "[" * 100_000):
        shown = re.escape(repr(wrong.strip('"').replace('""', '"')[:57])[:-1])
        with pytest.raises(EventError, match=rf"photos.csv: column 'tags': {shown}.*, expected a list"):
            csv_rows(tmp_path / "photos.csv", f"tags,time\n{wrong},2026-01-31\n")
    with pytest.raises(
        EventError, match="column 'bytes': CSV conversion error to int64: invalid value 'many'"
    ):
        csv_rows(tmp_path / "photos.csv", "time,bytes\n2026-01-31,many\n")
