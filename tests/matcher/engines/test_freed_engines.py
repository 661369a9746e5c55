"""An unused engine is freed by reference counts, since brokers seldom collect garbage: event types come and
go, and each has an engine."""

import gc
import weakref

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.engine import engine_names

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})
FILTERS = (
    'firm == "IBM" and price < $top',
    'firm == "IBM" and (price < $top or volume > 3) or firm == "ACME"',
    'firm != "ACME" and firm contains "B"',
)


def test_engines_are_freed_without_the_garbage_collector() -> None:
    events = EventBatch.from_pylist(QUOTE, [{"firm": "IBM", "price": 1.0, "volume": 5}])
    gc.collect()
    gc.disable()
    try:
        for name in engine_names():
            engine = create_engine(name, QUOTE)
            for number, text in enumerate(FILTERS):
                filter = parse(text, QUOTE)
                engine.add(number, filter, {"top": 5.0} if "$top" in text else {})
            assert len(engine.match(events).ids())
            engine.remove(0)
            freed = weakref.ref(engine)
            del engine
            assert freed() is None, name
    finally:
        gc.enable()
