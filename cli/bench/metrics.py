"""`covey bench metrics`: the metrics of one run of any size, on one core and on more."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import Json, counts


def metrics(
    gib: Annotated[float, typer.Option(min=0.001, help="Size of the run's trace on disk, in GiB.")] = 1.0,
    cores: Annotated[str, typer.Option(help="Numbers of cores, separated by commas.")] = "1,2",
    folder: Annotated[
        Path, typer.Option(help="Folder for the trace, which is used again.")
    ] = Path("bench-metrics"),
    json_output: Json = False,
) -> None:
    """Measure the metrics of one large run, on one core and on more.

    A simulated run is multiplied: copies have publishers and clients of their own, so every count is known.

    Example: covey bench metrics --gib 10 --folder /data/bench
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.sim.experiments.bench.spark_metrics import measure_metrics
    from covey.sim.extras import need

    need("covey bench metrics", "pyspark", "networkx")
    compile_once()
    with progress() as on_progress:
        results = measure_metrics(gib, counts("--cores", cores), folder, on_progress)
    if json_output:
        print_json([asdict(result) for result in results])
        return
    columns = ("cores", "start of Spark s", "metrics s", "stages", "tasks", "CPU of tasks s")
    sizes = ("shuffled MiB", "spilled MiB", "peak of the JVM MiB", "peak of Python MiB")
    rows = []
    for each in results:
        bytes_each = (each.shuffled_bytes, each.spilled_bytes, each.jvm_bytes, each.python_bytes)
        numbers = (each.cores, each.start_s, each.metrics_s, each.stages, each.tasks, each.task_cpu_s)
        rows.append([*numbers, *(round(size / 2**20) for size in bytes_each)])
    title = f"one run of {results[0].rows:,} rows, {results[0].trace_bytes / 2**30:.2f} GiB on disk"
    print_table(title, [*columns, *sizes], rows)
