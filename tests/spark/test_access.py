"""The source and the sink with TLS, certificates and tokens, called as Spark calls them."""

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pyarrow as pa
import pytest
from live_brokers import LiveBrokers, live_brokers
from made_certificates import overlay_files, tls_of
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructField, StructType
from running import eventually

from covey.overlay.core.access.rights import Permission, Rule
from covey.overlay.node.authentication import ClientRules, TokenOptions
from covey.spark import CoveySource, SourceError
from covey.spark.options import SinkOptions, StreamOptions, read_options

pytestmark = pytest.mark.xdist_group("spark")

SECRET = "s" * 40
ALL = (Permission("*"),)


def token(subject: str, seconds: float = 600) -> str:
    return jwt.encode({"sub": subject, "exp": time.time() + seconds}, SECRET, algorithm="HS256")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBrokers]:
    key = tmp_path_factory.mktemp("keys") / "secret"
    key.write_text(SECRET)
    rules = ClientRules(
        TokenOptions(str(key)),
        (
            Rule(("market",), publish=ALL, subscribe=ALL),
            Rule(("alice", "bob"), publish=(Permission("Quote"),), subscribe=(Permission("Quote"),)),
        ),
    )
    access = {"tls": tls_of(), "token": token("market")}
    with live_brokers(access, tls=overlay_files(), clients=rules) as brokers:
        yield brokers


def options_of(live: LiveBrokers, **options: str) -> dict[str, str]:
    authority = str(tls_of().authority)
    return {"broker": live.far, "type": "Quote", "authority": authority, "timeout_s": "5", **options}


def source(live: LiveBrokers, **options: str) -> CoveySource:
    return CoveySource(CaseInsensitiveDict(options_of(live, **options)))


@pytest.mark.parametrize("kind", ["token", "token_file", "certificate"])
def test_a_stream_and_a_sink_of_a_client_with_rights(guarded: LiveBrokers, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token("alice") + "\n")
    bob = tls_of("bob")
    access = {
        "token": {"token": token("alice")},
        "token_file": {"token_file": str(file)},
        "certificate": {"certificate": str(bob.certificate), "key": str(bob.key)},
    }[kind]
    name = f"in-spark-{kind}"  # one query of a machine has a name, and workers share the machine
    of = source(guarded, name=name, **access)
    schema = of.schema()
    reader = of.streamReader(schema)
    start = reader.initialOffset()
    try:
        owner = "bob" if kind == "certificate" else "alice"
        assert f"client/{owner}/{name}" in guarded.clients()
        writer = pickle.loads(pickle.dumps(of.writer(schema, overwrite=False)))
        records = pa.RecordBatch.from_pylist([{"firm": "IBM", "price": 1.0, "volume": 7}])
        assert writer.write(iter([records])).events == 1
        eventually(lambda: sum(each["events"] for each in reader.latestOffset().values()) == 1)
        end = reader.latestOffset()
        found = [each for part in reader.partitions(start, end) for each in reader.read(part)]
        assert [each.column("volume").to_pylist() for each in found] == [[7]]
    finally:
        reader.stop()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, "expected a token or a client's certificate"),
        ({"token": "forged"}, "the token is refused"),
        ({"token_file": "/nowhere/token"}, "/nowhere/token: cannot be read"),
        ({"authority": "/nowhere/authority.pem"}, "/nowhere/authority.pem"),
        ({"key": "alice.key"}, "option key is alone: expected certificate and key, with authority"),
        ({"token": "a", "token_file": "b"}, "option token_file is there beside token: expected one of them"),
    ],
)
def test_who_does_not_get_in_is_told_why(guarded: LiveBrokers, wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        source(guarded, **wrong).schema()


def test_a_type_without_permission_is_refused(guarded: LiveBrokers) -> None:
    schema = StructType([StructField("x", LongType())])
    for use in ("streamReader", "streamWriter"):
        arguments = {"overwrite": False} if use == "streamWriter" else {}
        with pytest.raises(SourceError, match="'alice' may not subscribe to events of type 'Hidden'"):
            getattr(source(guarded, type="Hidden", token=token("alice")), use)(schema, **arguments)


def test_no_token_is_in_a_repr_or_an_error(guarded: LiveBrokers) -> None:
    secret = token("alice", -1)
    given = options_of(guarded, token=secret)
    for kind in (StreamOptions, SinkOptions):
        options = read_options(kind, given)
        assert secret not in f"{options!r} {options} {options.credentials!r}"
    with pytest.raises(SourceError) as refusal:
        source(guarded, token=secret).schema()
    assert secret not in str(refusal.value)
    with pytest.raises(SourceError) as alone:
        source(guarded, token=secret, key="k").schema()
    assert secret not in str(alone.value)
