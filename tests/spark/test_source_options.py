"""Every mistake is one sentence with the option and its value, at the end of Spark's exception."""

import pytest
from live_brokers import LiveBrokers
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from covey.sim.experiments.local_overlay import free_addresses
from covey.sim.metrics import spark_session
from covey.spark import CoveySource, SourceError

pytestmark = pytest.mark.xdist_group("spark")

WRONG = [
    ({"brokr": "x:1"}, "option 'brokr' is unknown: did you mean broker?"),
    ({"broker": "nowhere"}, "option broker is 'nowhere': expected HOST:PORT"),
    ({"broker": "here:65536"}, "option broker is 'here:65536': expected HOST:PORT"),
    ({"type": ""}, "option type is '': expected"),
    ({"type": "Quot"}, "option type is 'Quot': broker 127"),
    ({"type": "Quot"}, "did you mean 'Quote'?"),
    ({"filter": "price <"}, "option filter is 'price <': .*, at column 8"),
    ({"filter": "pric < 3"}, "option filter is 'pric < 3': .*did you mean price"),
    ({"filter": "price < $limit"}, r"option values is '\{\}': .*limit"),
    ({"filter": "price < $limit", "values": '{"limit": "low"}'}, r"option values is .*\$limit: value 'low'"),
    ({"values": "limit=9"}, "option values is 'limit=9': expected a JSON object"),
    ({"slow_consumer": "drop"}, "option slow_consumer is 'drop': expected one of block"),
    ({"buffer_bytes": "64m"}, "option buffer_bytes is '64m': expected a valid integer"),
    ({"metadata": "maybe"}, "option metadata is 'maybe': expected a valid boolean"),
    ({"gaps": "yes"}, "option gaps is 'yes': expected one of log, rows"),
    ({"name": "a/b"}, "option name is 'a/b': expected up to 64 letters"),
    ({"overlay": "nowhere.yaml"}, "option overlay is 'nowhere.yaml': "),
]


def source(live: LiveBrokers, **options: str) -> CoveySource:
    return CoveySource(CaseInsensitiveDict({"broker": live.far, "type": "Quote", **options}))


@pytest.mark.parametrize(("options", "sentence"), WRONG)
def test_mistakes_in_options(live: LiveBrokers, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        source(live, **options).schema()


def test_a_missing_option_and_a_broker_that_does_not_answer(live: LiveBrokers) -> None:
    with pytest.raises(SourceError, match="option type is missing"):
        CoveySource(CaseInsensitiveDict({"broker": live.far})).schema()
    (nobody,) = free_addresses(1)
    with pytest.raises(SourceError, match=f"option broker is '{nobody}': "):
        source(live, broker=nobody, timeout_s="2").schema()


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ("pric double", "column 'pric' is no attribute of event type Quote: did you mean price"),
        ("price string", "column 'price' is string: attribute 'price' of Quote is float64, expected double"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_a_schema_that_does_not_fit_the_type(live: LiveBrokers, declared: str, sentence: str) -> None:
    schema = StructType.fromDDL(declared)
    with pytest.raises(SourceError, match=sentence):
        source(live).streamReader(schema)
    with pytest.raises(SourceError, match=sentence):
        source(live).writer(schema, overwrite=False)


def test_the_schema_is_that_of_the_type(live: LiveBrokers) -> None:
    schema = source(live, gaps="rows").schema()
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    assert columns == [
        ("firm", "string"),
        ("price", "double"),
        ("volume", "bigint"),
        ("_publisher", "string"),
        ("_sequence", "bigint"),
        ("_ingress", "timestamp"),
        ("_broker", "string"),
        ("_missed", "bigint"),
        ("_until", "timestamp"),
    ]


def test_a_sink_appends_to_one_broker(live: LiveBrokers) -> None:
    schema = source(live).schema()
    with pytest.raises(SourceError, match="mode is 'overwrite': expected 'append'"):
        source(live).writer(schema, overwrite=True)
    with pytest.raises(SourceError, match="expected one broker to publish to"):
        source(live, broker=f"{live.far},localhost:1").streamWriter(schema, overwrite=False)


@pytest.mark.usefixtures("spark")
def test_spark_shows_the_sentence(live: LiveBrokers) -> None:
    session = spark_session()
    session.dataSource.register(CoveySource)
    reader = session.readStream.format("covey").option("broker", live.far).option("type", "Quote")
    with pytest.raises(Exception, match=r"SourceError: option filter is 'price <': .*, at column 8"):
        reader.option("filter", "price <").load()
