"""The real input of the demonstration: daily quotes of AAPL, FB, GOOG, IBM and MSFT, 2000 to 2013, from PyPI.

The package `bokeh-sampledata` carries them (12,154 in all). Here they become one Arrow table in the order in
which the days passed, and within a day in the order of the firms' names: (firm, date) names a quote and no
two share it.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from covey.matcher import EventType
from covey.sim.extras import need

QUOTE = EventType(
    "Quote",
    {
        "firm": "string",
        "date": "timestamp",
        "price": "float64",
        "volume": "int64",
        "open": "float64",
        "high": "float64",
        "low": "float64",
    },
)
"""One firm's day at the exchange; `price` is the price at its close."""

FIRMS = ("AAPL", "FB", "GOOG", "IBM", "MSFT")


def load_quotes() -> pa.RecordBatch:
    """All quotes in the order of their dates, with the schema of `QUOTE`.

    Raises `CoveyError` saying what to install where the package with the quotes is missing.
    """
    need("a replay of quotes", "bokeh_sampledata.stocks")
    from bokeh_sampledata import stocks

    rows = []
    for firm in FIRMS:
        data = getattr(stocks, firm)
        columns = (data[name] for name in ("date", "close", "volume", "open", "high", "low"))
        rows += [
            (datetime.fromisoformat(date).replace(tzinfo=UTC), firm, *numbers)
            for date, *numbers in zip(*columns, strict=True)
        ]
    rows.sort(key=lambda row: row[:2])
    dates, firms, *numbers = map(list, zip(*rows, strict=True))
    return pa.record_batch([firms, dates, *numbers], schema=QUOTE.arrow_schema)
