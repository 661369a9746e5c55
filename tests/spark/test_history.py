"""Traces as DataFrames."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.metrics import spark_session
from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.finding import find_traces
from covey.sim.trace.tables import TABLES
from covey.spark import CoveySource, SourceError
from covey.spark.source import HistoryReader, history_schema

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

SMALL = Scenario(brokers=4, publishers=2, subscribers=10, types=2, duration_s=1.0, event_rate=40.0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for seed in range(2):
        SimulatedRun(SMALL.having(seed=seed)).run(folder / f"run {seed}")
    return folder


@pytest.fixture
def session() -> SparkSession:
    session = spark_session()
    session.dataSource.register(CoveySource)
    return session


def test_a_table_of_all_runs_is_a_data_frame(runs: Path, session: SparkSession) -> None:
    reader = session.read.format("covey")
    events = reader.load(str(runs)).select("run", "publisher", "sequence").collect()
    files = find_traces([runs]).files("events")
    expected = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert expected
    assert sorted(map(tuple, events)) == sorted((r["run"], r["publisher"], r["sequence"]) for r in expected)
    declared = session.read.format("covey").schema("client string, time_ns bigint")
    versions = declared.option("table", "versions").load(str(runs))
    assert versions.columns == ["client", "time_ns"]
    assert versions.count() == find_traces([runs]).rows("versions")


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_the_schema_that_spark_expects(runs: Path, table: str) -> None:
    options = CaseInsensitiveDict({"path": str(runs), "table": table})
    reader = HistoryReader(options, history_schema(options))
    for partition in reader.partitions():
        for records in reader.read(partition):
            assert records.schema.names == TABLES[table].names


def test_mistakes_are_one_sentence(runs: Path, session: SparkSession) -> None:
    def source(**options: str) -> CoveySource:
        return CoveySource(CaseInsensitiveDict({"path": str(runs), **options}))

    with pytest.raises(SourceError, match="option table is 'event': did you mean events"):
        source(table="event").schema()
    with pytest.raises(SourceError, match="option 'tabel' is unknown: did you mean table"):
        source(tabel="events").schema()
    with pytest.raises(SourceError, match=r"option path is '/nowhere': .*no such folder"):
        source(path="/nowhere").reader(source().schema()).partitions()
    with pytest.raises(SourceError, match=r"option broker is for spark.readStream"):
        source(broker="x:1").schema()
    with pytest.raises(Exception, match="schema column 'values' is bigint: table events has run string"):
        session.read.format("covey").schema("values bigint").load(str(runs)).collect()
