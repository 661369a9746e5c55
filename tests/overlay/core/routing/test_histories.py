"""Random histories of whole overlays, judged by oracles independent of routing (`core_history`).

They fail when a mechanism is switched off: acknowledgements that do not wait, a resynchronisation that
revokes nothing, an Unadvertise that overtakes events, a client that trusts every Deliver, an advertisement
that draws no existing interest.
"""

from __future__ import annotations

from typing import Any

import pytest
from core_history import History
from draws import DRAWS, SEED

from covey.overlay.core.introspection.views import render

CHUNK = DRAWS["core histories"].count
VARIANTS: dict[str, tuple[int, dict[str, Any]]] = {
    "parametric": (6, {}),
    "parametric-dense": (6, {"dense": True, "steps": 80}),
    "parametric-calm": (3, {"dense": True, "steps": 80, "crashes": False}),
    "parametric-all-operators": (3, {"conjunctions_only": False}),
    "parametric-naive-poset": (1, {"poset": "naive"}),
    "parametric-cluster-engine": (2, {"engine": "cluster"}),
    "static": (4, {"routing": "static"}),
    "static-dense": (3, {"routing": "static", "dense": True, "steps": 80}),
    "unsubscribe-first": (2, {"routing": "static", "resubscribe": "unsubscribe-first", "dense": True}),
    "static-naive-poset": (1, {"routing": "static", "poset": "naive"}),
}


@pytest.mark.random
@pytest.mark.parametrize(
    ("variant", "chunk"), [(name, chunk) for name, (chunks, _) in VARIANTS.items() for chunk in range(chunks)]
)
def test_random_histories(variant: str, chunk: int) -> None:
    options = VARIANTS[variant][1]
    for seed in range(SEED + chunk * CHUNK, SEED + (chunk + 1) * CHUNK):
        try:
            History(seed, **options).run()
        except Exception as error:
            raise AssertionError(f"replay with History({seed}, **{options}).run(): {error}") from error


def test_one_seed_gives_one_history() -> None:
    """Same input, same output: no clock, no hidden randomness, no order of sets."""
    renders = []
    for _ in range(2):
        history = History(7, dense=True, steps=120)
        history.run()
        renders.append([render(broker) for broker in history.network.brokers.values()])
    assert renders[0] == renders[1]
