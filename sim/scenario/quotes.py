"""12,154 daily quotes of AAPL, FB, GOOG, IBM and MSFT, 2000 to 2013, from the package `bokeh-sampledata`.

They become one Arrow batch ordered by (date, firm), and no two quotes share both. Reading them needs nothing
else from 2026.1 on, so `pip install --no-deps bokeh-sampledata` is enough; earlier releases import pandas.
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
"""One firm's trading day; `price` is the closing price."""

FIRMS = ("AAPL", "FB", "GOOG", "IBM", "MSFT")


def load_quotes() -> pa.RecordBatch:
    """All quotes, ordered by (date, firm), with the schema of `QUOTE`.

    Raises `CoveyError` naming the package to install if it is missing.
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
