"""The quotes are all there, in the order of their dates, and (firm, date) names each."""

from __future__ import annotations

from covey.sim.scenario.quotes import FIRMS, QUOTE, load_quotes


def test_quotes_are_complete_ordered_and_unique() -> None:
    quotes = load_quotes()
    assert quotes.schema == QUOTE.arrow_schema
    rows = quotes.to_pylist()
    assert len(rows) == 12_154
    keys = [(row["date"], row["firm"]) for row in rows]
    assert keys == sorted(set(keys))
    assert {row["firm"] for row in rows} == set(FIRMS)
    assert rows[0]["firm"] == "AAPL"
    assert (rows[-1]["firm"], rows[-1]["date"].isoformat()) == ("MSFT", "2013-03-01T00:00:00+00:00")
