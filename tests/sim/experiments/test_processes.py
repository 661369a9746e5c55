"""Worker processes share no state with the process that starts them."""

from __future__ import annotations

import gc

from covey.sim.experiments.processes import workers


def test_workers_start_afresh() -> None:
    gc.disable()
    try:
        with workers(1) as pool:
            assert pool.submit(gc.isenabled).result(timeout=60)
    finally:
        gc.enable()
