"""Covey in Spark: a data source of live events and traces, a sink, and a matcher of DataFrames. The public
names are `CoveySource`, `match` and `update` (docs/spark.md). Spark's workers import this package, so it has
to be installed where they run."""

from covey.sim.extras import need

need("covey.spark", "pyspark")

from covey.spark.controls import update  # noqa: E402
from covey.spark.matching import match  # noqa: E402
from covey.spark.options import SourceError  # noqa: E402
from covey.spark.source import CoveySource  # noqa: E402

__all__ = ["CoveySource", "SourceError", "match", "update"]
