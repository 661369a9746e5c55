"""`memory_bytes` is near the process's memory, Python's objects included."""

import gc
import json
import subprocess
import sys
import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from covey.matcher import EventType, create_engine, parse

WIDE = EventType("Wide", {f"a{i}": "int64" for i in range(16)})
RESIDENT = """
import gc, json, resource
import numpy as np
from covey.matcher import EventBatch, EventType, create_engine, parse

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

wide = EventType("Wide", {f"a{i}": "int64" for i in range(16)})
event = EventBatch.from_pylist(wide, [{f"a{i}": 1 for i in range(16)}])
filter = parse("a0 == $v and a1 == $w and a2 <= $x", wide)

def load(engine, count):
    ids = np.arange(count)
    engine.add_many(ids, filter, {"v": ids % 35, "w": ids % 37, "x": ids % 41})
    engine.match(event).ids()

load(create_engine("cluster", wide), 1_000)
gc.collect()
before = resident()
engine = create_engine("cluster", wide)
load(engine, 1_000_000)
gc.collect()
print(json.dumps([sum(engine.memory_bytes().values()), resident() - before]))
"""


def test_memory_bytes_are_near_those_resident() -> None:
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True)
    counted, resident = json.loads(done.stdout)
    assert 0.4 * resident < counted < 1.2 * resident


@pytest.mark.thorough
def test_bytes_of_objects_are_near_those_allocated() -> None:
    structures = 500
    texts = [" and ".join(f"a{i} == $v{i}" for i in chosen) for chosen in combinations(range(16), 4)]
    create_engine("cluster", WIDE).add(
        0, parse(texts[-1], WIDE), dict.fromkeys(["v12", "v13", "v14", "v15"], 1)
    )
    gc.collect()
    tracemalloc.start()
    try:
        engine = create_engine("cluster", WIDE)
        for number, text in enumerate(texts[:structures]):
            filter = parse(text, WIDE)
            values = {name: np.arange(20) % 35 for name in filter.variables}
            engine.add_many(np.arange(20) + number * 20, filter, values)
            del filter, values
        counted = engine.memory_bytes()["plans, signatures and names"]
        gc.collect()
        of_arrays = tracemalloc.DomainFilter(False, np.lib.tracemalloc_domain)
        traces = tracemalloc.take_snapshot().filter_traces([of_arrays]).traces
        allocated = sum(trace.size for trace in traces)
    finally:
        tracemalloc.stop()
    assert 0.4 * allocated < counted < 1.2 * allocated
    assert counted < 20_000 + 5_000 * structures


@pytest.mark.thorough
def test_bytes_of_calls_are_near_those_allocated() -> None:
    place = EventType("Place", {"lat": "float64", "lon": "float64"})
    filter = parse("within(lat, lon, $lat, $lon, 500)", place)
    engine = create_engine("cluster", place)
    engine.add(5_000, filter, {"lat": 0.0, "lon": 0.0})
    gc.collect()
    tracemalloc.start()
    try:
        before = sum(engine.memory_bytes().values())
        lats = np.linspace(-80, 80, 5_000)
        engine.add_many(range(5_000), filter, {"lat": lats, "lon": 2 * lats})
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = sum(engine.memory_bytes().values()) - before
    assert 0.7 * allocated < counted < 1.3 * allocated
