"""TLS between clients and brokers, and mutual TLS between brokers, with certificates made for the test."""

import asyncio
import logging
import shutil
import ssl
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from made_certificates import EXPIRED, files_as, issue, overlay_files, tls_of
from running import QUOTE, Brokers, free_ports, on_a_loop, until

from covey.cli.administration.certificates import Authority
from covey.overlay import Client, Tls
from covey.overlay.client import ConnectError, inspect_broker
from covey.overlay.core.endpoint.limits import SessionLimits
from covey.overlay.core.link.link import Hello
from covey.overlay.node.overlay import BrokerAddress, TlsFiles
from covey.overlay.transport.address import CallError
from covey.overlay.transport.channel import Channel, error_of
from covey.overlay.transport.credentials import credentials
from covey.overlay.transport.packets import CONNECT, Greeting, Role, decode_packet, encode_greeting
from covey.overlay.transport.tls import TlsContexts, TlsError, certified, load_files

TRUSTING = tls_of()


def files_in(folder: Path) -> TlsFiles:
    return TlsFiles(*(str(folder / name) for name in ("authority.pem", "b1.pem", "b1.key")))


async def round_trip(near: str, far: str, tls: Tls | str | None) -> None:
    async with Client(near, tls=tls) as publisher, Client(far, tls=tls) as reader:
        await publisher.advertise(QUOTE)
        mine = await reader.subscribe(QUOTE, "price < $limit", limit=5.0)
        await publisher.publish("Quote", price=1.0, firm="x" * 20_000)
        assert (await asyncio.wait_for(anext(mine), 60))["price"] == 1.0


async def claim(address: str, tls: Tls | None, broker: str = "b2") -> tuple[str | None, str]:
    """The status of a stream that begins with the hello of a broker, and the reason."""
    async with Channel(address, credentials=credentials(tls, None)) as channel:
        call = channel.call(CONNECT)
        call.send(encode_greeting(Greeting(Role.BROKER, broker, Hello(5), "test")))
        data = await asyncio.wait_for(call.read(), 60)
        if data is not None:
            return "OK", str(decode_packet(data))
        error = error_of(call, address)
        return error.status, str(error)


@on_a_loop
async def test_clients_and_neighbours_over_tls() -> None:
    async with Brokers([("b1", "b2")], tls=overlay_files()) as overlay:
        await round_trip(overlay.address("b1"), overlay.address("b2"), TRUSTING)
        await round_trip(overlay.address("b1"), overlay.address("b2"), str(TRUSTING.authority))
        _, state = await inspect_broker(overlay.address("b1"), listed=0, tls=TRUSTING)
        assert state["missing"] == []
        assert state["denied"] == {}


@on_a_loop
async def test_a_large_message_each_way() -> None:
    """More than a record, a write and the window of a stream."""
    overlay = Brokers(tls=overlay_files())
    async with overlay, Client(overlay.address("b1"), tls=TRUSTING) as client:
        await client.advertise(QUOTE)
        mine = await client.subscribe(QUOTE)
        rows = [{"firm": "x" * 30_000, "volume": i} for i in range(200)]
        await client.publish_batch("Quote", rows[:100])
        await client.publish_batch("Quote", rows[100:])
        got = [(await asyncio.wait_for(anext(mine), 60))["volume"] for _ in rows]
        assert got == list(range(200))


@on_a_loop
async def test_who_says_it_is_a_neighbour_and_is_not_touches_nothing_of_it() -> None:
    async with Brokers([("b1", "b2")], tls=overlay_files()) as overlay:
        address, node = overlay.address("b1"), overlay.nodes["b1"]
        link = node.queues["broker/b2"].link
        before = (link.incarnation, link.peer_incarnation)
        for _ in range(20):
            status, why = await claim(address, TRUSTING)
            assert status == "UNAUTHENTICATED"
            assert why == "a peer that says it is broker 'b2' has no certificate"
        for name in ("alice", "b9"):
            status, why = await claim(address, tls_of(name))
            assert status == "PERMISSION_DENIED"
            assert why.endswith("expected covey://test/broker/b2")
        assert node.denials == {"neighbour": 22}
        assert (link.incarnation, link.peer_incarnation) == before
        assert node.queues["broker/b2"].connected
        await round_trip(overlay.address("b1"), overlay.address("b2"), TRUSTING)


@on_a_loop
@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (tls_of("b2", authority="other"), "certificate: it is not signed by the peer's authority"),
        (tls_of("expired"), "certificate: it has expired"),
    ],
)
async def test_a_certificate_that_the_broker_does_not_accept_ends_the_handshake(
    tls: Tls, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "covey.broker")
    async with Brokers(tls=overlay_files()) as overlay:
        try:
            _, sentence = await claim(overlay.address("b1"), tls)
        except CallError as error:  # under TLS 1.2
            sentence = str(error)
        assert why in sentence
        await until(lambda: overlay.nodes["b1"].denials["handshake"] == 1)
        await until(lambda: "refused a connection from 127.0.0.1" in caplog.text)


@on_a_loop
@pytest.mark.parametrize(
    ("server", "tls", "why"),
    [
        ("b1", tls_of(trusts="other"), "the peer's certificate is not signed by the authority"),
        ("expired", TRUSTING, "the peer's certificate has expired"),
        ("elsewhere", TRUSTING, "the peer's certificate is not for 127.0.0.1"),
        ("b1", None, "it expects TLS: give its authority"),
        ("", TRUSTING, "TLS"),
    ],
)
async def test_a_client_gets_one_sentence_and_does_not_hang(server: str, tls: Tls | None, why: str) -> None:
    files = overlay_files()
    files = replace(files, certificate=files.certificate.replace("{name}", server)) if server else files
    files = replace(files, key=files.key.replace("{name}", server))
    async with Brokers(tls=files if server else None) as overlay:
        address = overlay.address("b1")
        with pytest.raises(ConnectError, match=why) as refusal:
            async with Client(address, tls=tls, connect_timeout=0.5):
                pass
        assert str(refusal.value).startswith(f"no broker answers at {address}: ")
        with pytest.raises(ConnectError, match=why):
            await inspect_broker(address, tls=tls)


@on_a_loop
async def test_what_does_not_speak_http2_over_tls() -> None:
    async with Brokers(tls=overlay_files()) as overlay:
        context = TlsContexts(TRUSTING).client()
        context.set_alpn_protocols(["http/1.1"])
        reader, writer = await asyncio.open_connection("127.0.0.1", overlay.ports["b1"], ssl=context)
        assert await reader.read() == b""
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", overlay.ports["b1"])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read())[:2] == b"\x15\x03"
        writer.close()
        await until(lambda: overlay.nodes["b1"].denials["handshake"] == 2)


def differing(broker: str, files: TlsFiles | None) -> AbstractAsyncContextManager[Brokers]:
    """Two brokers, one with other files of TLS."""
    return Brokers([("b1", "b2")], tls=overlay_files(), differing={broker: {"tls": files}}).unlinked()


@on_a_loop
@pytest.mark.parametrize(
    ("files", "why"),
    [
        (files_as("b9"), "has a certificate for covey://test/broker/b9: expected covey://test/broker/b2"),
        (files_as("expired"), "the peer refuses this side's certificate: it has expired"),
        (files_as("b2", trusts="other"), "the peer's certificate is not signed by the authority"),
        (None, "it expects TLS: give its authority"),
    ],
)
async def test_a_broker_that_its_neighbour_refuses_backs_off_and_health_has_the_reason(
    files: TlsFiles | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "covey.broker")
    async with differing("b2", files) as overlay:
        await until(lambda: why in overlay.nodes["b2"].link_faults.get("broker/b1", ""), why)
        (retrying,) = [record for record in caplog.records if "; retrying" in record.getMessage()]
        assert why in retrying.getMessage()
        assert not overlay.nodes["b1"].queues["broker/b2"].connected


@on_a_loop
async def test_the_answer_of_who_is_not_the_neighbour_is_refused() -> None:
    """The peer dialled as b1 has the certificate of b9: it gets no hello."""

    async with differing("b1", files_as("b9")) as overlay:
        await until(lambda: overlay.nodes["b2"].denials["neighbour"] > 0)
        faults = overlay.nodes["b2"].link_faults
        await until(lambda: "expected covey://test/broker/b1" in faults.get("broker/b1", ""))
        assert not overlay.nodes["b2"].queues["broker/b1"].connected


@on_a_loop
async def test_certificates_are_read_again_when_their_files_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "covey.tls")
    old, new = Authority(), Authority()
    old.write(tmp_path)
    issue(tmp_path / "b1", old, broker="b1")
    async with Brokers(tls=files_in(tmp_path)) as overlay:
        address = overlay.address("b1")
        trusted = tmp_path / "trusted.pem"
        shutil.copy(tmp_path / "authority.pem", trusted)
        async with Client(address, tls=trusted) as client:
            (tmp_path / "b1.pem").write_text("half of a fi")
            await inspect_broker(address, tls=trusted)
            assert "the files read before stay in use" in caplog.text
            new.write(tmp_path)
            issue(tmp_path / "b1", new, broker="b1")
            with pytest.raises(ConnectError, match="not signed by the authority"):
                await inspect_broker(address, tls=trusted)
            await client.advertise(QUOTE)  # the connection that is open stays
            shutil.copy(tmp_path / "authority.pem", trusted)
            await client.inspect()
            for authority, broker, valid, why in (
                (new, "b1", EXPIRED, "has expired"),
                (old, "b1", None, "is not signed by the authority"),
                (new, "b2", None, "does not name broker b1"),
            ):
                caplog.clear()
                issue(tmp_path / "b1", authority, broker=broker, valid=valid)
                for _ in range(2):
                    await client.inspect()  # with the certificate before it
                (line,) = [each for each in caplog.messages if "stay in use" in each]
                assert why in line


def test_changed_files_that_are_refused_are_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate may be valid from a later time on."""
    authority = Authority()
    authority.write(tmp_path)
    issue(tmp_path / "b1", authority, broker="b1")
    tls = Tls(tmp_path / "authority.pem", tmp_path / "b1.pem", tmp_path / "b1.key")
    refusals = [TlsError("not valid yet")] * 2

    def check(_: Tls) -> None:
        if refusals:
            raise refusals.pop()

    contexts = TlsContexts(tls, check)
    first = contexts.server()
    issue(tmp_path / "b1", authority, broker="b1")
    assert [contexts.server() is first for _ in range(5)] == [True] * 5
    assert len(refusals) == 1, "not at every handshake"
    monkeypatch.setattr("covey.overlay.transport.tls.RETRY_S", 0.0)
    issue(tmp_path / "b1", authority, broker="b1")
    assert contexts.server() is first
    assert contexts.server() is not first


@on_a_loop
async def test_a_session_outlives_a_new_certificate_of_its_broker(tmp_path: Path) -> None:
    authority, files = Authority(), files_in(tmp_path)
    authority.write(tmp_path)
    issue(tmp_path / "b1", authority, broker="b1")
    async with Brokers(tls=files, sessions=SessionLimits(lease_s=30)) as overlay:
        proxy = await overlay.proxy("b1")
        states: list[tuple[bool, str]] = []
        trusted = tmp_path / "authority.pem"
        async with Client(proxy.address, tls=trusted, on_state=lambda *state: states.append(state)) as client:
            await client.advertise(QUOTE)
            mine = await client.subscribe(QUOTE)
            issue(tmp_path / "b1", authority, broker="b1")
            proxy.cut()
            for price in range(20):
                await client.publish("Quote", price=float(price))
            got = [(await asyncio.wait_for(anext(mine), 60))["price"] for _ in range(20)]
            assert got == [float(price) for price in range(20)]
            assert states[-1] == (True, "resumed")


@on_a_loop
async def test_a_plain_grpcio_client() -> None:
    """The gRPC of another implementation: a unary call, and a stream."""
    roots = Path(TRUSTING.authority).read_bytes()
    mine = tls_of("alice")
    assert mine.certificate is not None
    assert mine.key is not None
    pair = (Path(mine.key).read_bytes(), Path(mine.certificate).read_bytes())
    async with Brokers(tls=overlay_files()) as overlay:
        for key, chain in ((None, None), pair):
            secure = grpc.ssl_channel_credentials(roots, key, chain)
            async with grpc.aio.secure_channel(f"localhost:{overlay.ports['b1']}", secure) as channel:
                reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                assert reply.status == health_pb2.HealthCheckResponse.SERVING
                stream = channel.stream_stream(CONNECT)()
                await stream.write(encode_greeting(Greeting(Role.CLIENT, "stranger", Hello(99))))
                answer = decode_packet(await stream.read())
                assert isinstance(answer, Greeting)
                stream.cancel()


@on_a_loop
async def test_a_socket_file_has_no_tls_and_takes_no_neighbour(tmp_path: Path) -> None:
    path, overlay = f"unix:{tmp_path}/b1", Brokers(tls=overlay_files())
    address = overlay.address("b1")
    overlay.differing["b1"] = {"brokers": {"b1": BrokerAddress("b1", address, f"{address}, {path}")}}
    async with overlay:
        await round_trip(path, address, TRUSTING)
        async with Client(path) as client:
            assert client.broker == "b1"
        status, _ = await claim(path, None)
        assert status == "UNAUTHENTICATED"


def test_files_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    good = tls_of("b1")
    (tmp_path / "text.pem").write_text("no certificate")
    text = tmp_path / "text.pem"
    other = tls_of("b2")
    for tls, why in (
        (Tls(tmp_path / "absent.pem"), "authority .*absent.pem cannot be read: No such file"),
        (Tls(text), "authority .*text.pem is no PEM file with certificates"),
        (Tls(good.authority, good.certificate, other.key), "key .*b2.key does not fit certificate .*b1.pem"),
        (Tls(good.authority, text, good.key), "cannot be used: expected PEM files"),
        (Tls(good.authority, good.certificate, text), "cannot be used: expected PEM files"),
        (Tls(good.authority, good.certificate, tmp_path / "k"), "key .*k cannot be read"),
    ):
        with pytest.raises(TlsError, match=why):
            TlsContexts(tls).client()
    with pytest.raises(TlsError, match="certificate without key"):
        Tls(good.authority, good.certificate)
    with pytest.raises(TlsError, match="authority is None"):
        Tls(None)
    assert certified(good).uris == {"covey://test/broker/b1"}
    for tls, why in (
        (tls_of("expired"), "expired.pem has expired: expected one"),
        (tls_of("b1", trusts="other"), "b1.pem is not signed by the authority"),
    ):
        with pytest.raises(TlsError, match=why):
            certified(tls)


@on_a_loop
async def test_a_missing_file_of_a_client_is_told_at_once() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConnectError, match="cannot be read: No such file"):
        async with Client(f"127.0.0.1:{port}", tls="/nowhere/authority.pem"):
            pass


@pytest.mark.parametrize("gone", ["authority", "certificate"])
def test_a_file_that_vanishes_behind_its_reading_is_named(
    gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"authority": tmp_path / "authority.pem", "certificate": tmp_path / "b1.pem"}
    files["key"] = tmp_path / "b1.key"
    source = overlay_files()
    for path, text in zip(files.values(), (source.authority, source.certificate, source.key), strict=True):
        shutil.copy(text.replace("{name}", "b1"), path)
    read_bytes = Path.read_bytes

    def read_and_remove(path: Path) -> bytes:
        data = read_bytes(path)
        if path == files[gone]:
            path.unlink()
        return data

    monkeypatch.setattr(Path, "read_bytes", read_and_remove)
    with pytest.raises(TlsError, match=f"tls: {gone} {files[gone]}.* cannot be read: No such file"):
        load_files(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)
