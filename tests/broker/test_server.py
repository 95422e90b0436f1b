"""The broker on real sockets, with clients that others wrote."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiomqtt
import pytest
from websockets.asyncio.client import connect

from agentmqtt.broker import Address, Broker, BrokerSettings, Limits, listeners
from agentmqtt.errors import BadURL, ListenError, UsageError
from agentmqtt.transport.base import Delivery, Hello, Will
from tests.broker import wire
from tests.servers import Certificates, free_port, need


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",))) as running:
        yield running


@contextlib.asynccontextmanager
async def client(broker: Broker, name: str | None = None, **how: object) -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client("127.0.0.1", broker.addresses[0].port, identifier=name, **how) as connected:
        yield connected


async def raw(broker: Broker, *said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.addresses[0].port)
    writer.write(b"".join(said))
    return reader, writer


async def until(condition: object, timeout: float = 5.0) -> None:
    """Wait for what no event tells."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.005)


# ------------------------------------------------------------------ clients


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_aiomqtt_publishes_and_reads(broker: Broker, qos: int) -> None:
    async with client(broker) as one, client(broker) as two:
        await one.subscribe("t/#", qos=qos)
        for n in range(200):
            await two.publish(f"t/{n}", b"%d" % n, qos=qos)
        got = []
        async with asyncio.timeout(10):
            async for message in one.messages:
                got.append(int(message.payload))
                if len(got) == 200:
                    break
        assert got == list(range(200))


async def test_aiomqtt_resumes_its_session(broker: Broker) -> None:
    async with client(broker, "r", clean_session=False) as one:
        await one.subscribe("t", qos=1)
    async with client(broker) as two:
        for n in range(500):
            await two.publish("t", b"%d" % n, qos=1)
    got = []
    async with client(broker, "r", clean_session=False) as one, asyncio.timeout(10):
        async for message in one.messages:
            assert not message.retain
            got.append(int(message.payload))
            if len(got) == 500:
                break
    assert got == list(range(500))


async def test_mosquitto_clients_meet_here(broker: Broker) -> None:
    port = str(broker.addresses[0].port)
    sub = await asyncio.create_subprocess_exec(
        *(need("mosquitto_sub"), "-p", port, "-t", "a/#", "-q", "2", "-C", "2", "-F", "%t %p %q %r"),
        stdout=subprocess.PIPE,
    )
    await until(lambda: broker._engine._subscriptions.match("a/b"))
    for qos in ("1", "2"):
        args = ("-p", port, "-t", "a/b", "-m", f"hello {qos}", "-q", qos, "-r")
        pub = await asyncio.create_subprocess_exec(need("mosquitto_pub"), *args)
        assert await pub.wait() == 0
    out, _ = await asyncio.wait_for(sub.communicate(), 10)
    assert out.decode().splitlines() == ["a/b hello 1 1 0", "a/b hello 2 2 0"]


async def test_a_client_of_mqtt_5_is_told_at_once(broker: Broker) -> None:
    with pytest.raises(aiomqtt.MqttError, match="Unsupported protocol version"):
        async with client(broker, protocol=aiomqtt.ProtocolVersion.V5):
            pass


async def test_a_killed_client_has_its_will_published(broker: Broker) -> None:
    async with client(broker) as watcher:
        await watcher.subscribe("w", qos=1)
        _, writer = await raw(broker, wire.connect("p", will=("w", b"gone", 1, True)))
        await until(lambda: "p" in broker._engine.sessions)
        writer.transport.abort()
        async with asyncio.timeout(5):
            assert (await anext(aiter(watcher.messages))).payload == b"gone"


async def test_a_packet_in_dribs_and_drabs_with_the_end_of_the_stream_behind_it(broker: Broker) -> None:
    reader, writer = await raw(broker, wire.connect("p"))
    assert await reader.readexactly(4) == wire.WELCOME
    said = b"".join(wire.publish("t", b"x" * 50, 1, n) for n in range(1, 2_001)) + wire.BYE
    writer.write(said)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 5) == b"".join(wire.puback(n) for n in range(1, 2_001))
    writer.close()


async def test_a_connect_and_its_end_in_one_segment(broker: Broker) -> None:
    said = (
        wire.connect("p", clean=False) + wire.subscribe(1, ("a", 1)) + wire.publish("s", b"p", retain=True) + wire.BYE
    )
    reader, writer = await raw(broker, said)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 5) == wire.WELCOME + wire.suback(1, 1)
    assert broker._engine.sessions["p"].subscriptions == {"a": 1}
    assert broker._engine._retained.get("s")
    writer.close()


async def test_a_flood_of_a_window_is_answered_in_full(broker: Broker) -> None:
    async with client(broker) as reader:
        await reader.subscribe("t", qos=0)
        stream, writer = await raw(broker, wire.connect("p"))
        writer.write(b"".join(wire.publish("t", b"%d" % n, 1, n % 65_535 + 1) for n in range(5_000)))
        assert len(await asyncio.wait_for(stream.readexactly(4 + 4 * 5_000), 10)) == 20_004
        got = []
        async with asyncio.timeout(10):
            async for message in reader.messages:
                got.append(int(message.payload))
                if len(got) == 5_000:
                    break
        assert got == list(range(5_000))
        writer.close()


# ------------------------------------------------------------------ bounds


async def test_a_client_that_never_reads_is_cut_off_and_costs_no_memory() -> None:
    limits = Limits(queue=500, write_buffer=32_768)
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",), limits=limits)) as broker:
        _, stuck = await raw(broker, wire.connect("stuck", clean=False), wire.subscribe(1, ("t", 0)))
        await until(lambda: broker._engine._subscriptions.match("t"))
        stuck.transport.pause_reading()
        async with client(broker) as writer:
            for _ in range(5_000):
                await writer.publish("t", b"x" * 10_000, qos=1)
                if broker.counters.get("evicted"):
                    break
        assert broker.counters["evicted"] == 1
        assert broker._engine.sessions["stuck"].held == 0
        stuck.transport.abort()


async def test_connections_are_bounded() -> None:
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",), limits=Limits(connections=1))) as broker:
        reader, writer = await raw(broker, wire.connect("a"))
        assert await reader.readexactly(4) == wire.WELCOME
        other, more = await raw(broker, wire.connect("b"))
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(other.read(), 5) == b""
        assert broker.counters["refused"] == 1
        for stream in (writer, more):
            stream.close()


# ------------------------------------------------------------------ start and stop


async def test_stopping_takes_no_longer_for_a_client_that_is_stuck() -> None:
    loop = asyncio.get_running_loop()
    broker = Broker(BrokerSettings(listen=("127.0.0.1:0", "ws://127.0.0.1:0")))
    await broker.start()
    _, stuck = await raw(broker, wire.connect("stuck", will=("w", b"", 0, False)), wire.subscribe(1, ("t", 0)))
    _, silent = await raw(broker)
    web = await connect(f"ws://127.0.0.1:{broker.addresses[1].port}", subprotocols=["mqtt"], compression=None)
    await web.send(wire.connect("web") + wire.subscribe(1, ("t", 0)))
    await web.recv()
    web.transport.pause_reading()
    await until(lambda: broker._engine._subscriptions.match("t"))
    stuck.transport.pause_reading()
    async with client(broker) as writer:
        while not broker._shell.connections or not any(c._pipe.unsent() for c in broker._shell.connections):
            await writer.publish("t", b"x" * 100_000, qos=1)
    start = loop.time()
    await broker.stop()
    assert loop.time() - start < 3
    assert broker.addresses == ()
    for stream in (stuck, silent, web):
        stream.transport.abort()


async def test_a_client_in_this_process_meets_one_on_the_network_and_hears_of_the_end(broker: Broker) -> None:
    inbox: asyncio.Queue[Delivery] = asyncio.Queue()
    here = await broker.transport().connect(Hello("journal", 20, inbox.put_nowait, Will("w", b"")))
    await here.subscribe(["a/+"])
    async with client(broker) as one, asyncio.timeout(5):
        await one.subscribe("b", qos=1)
        await one.publish("a/x", b"1", qos=1)
        assert (await inbox.get()).payload == b"1"
        await here.publish("b", b"2")
        assert (await anext(aiter(one.messages))).payload == b"2"
    await broker.stop()
    assert "stopped" in str(await here.lost)
    assert broker._engine._retained.get("w") is None


async def test_it_can_be_started_again_and_remembers() -> None:
    broker = Broker(BrokerSettings(listen=("127.0.0.1:0",)))
    async with broker, client(broker) as one:
        await one.publish("s", b"p", qos=1, retain=True)
    async with broker, client(broker) as one:
        await one.subscribe("s")
        async with asyncio.timeout(5):
            assert (await anext(aiter(one.messages))).payload == b"p"
        with pytest.raises(UsageError, match="runs already"):
            await broker.start()


async def test_a_port_that_is_taken_is_named_with_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        broker = Broker(BrokerSettings(listen=("127.0.0.1:0", f"ws://127.0.0.1:{port}")))
        with pytest.raises(ListenError, match=rf"ws://127.0.0.1:{port}: .*PID {os.getpid()} \("):
            await broker.start()
        assert broker.addresses == ()
        with pytest.raises(ListenError, match=f":{port}"):
            await Broker(BrokerSettings(listen=(f"127.0.0.1:{port}",))).start()


async def test_an_address_that_is_not_there_yet_is_tried_again_while_the_others_serve(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentmqtt.broker.listeners.RETRY", 0.05)
    there = iter([False, False, True])
    begin = listeners.Listeners._serve

    async def serve(self: listeners.Listeners, address: Address, sock: socket.socket | None = None) -> None:
        if address.host == "192.0.2.1":
            if not next(there):
                raise OSError(errno.EADDRNOTAVAIL, "not there yet")
            address = address._replace(host="127.0.0.1")
        await begin(self, address, sock)

    monkeypatch.setattr(listeners.Listeners, "_serve", serve)
    listen = ("127.0.0.1:0", f"192.0.2.1:{free_port()}")
    async with Broker(BrokerSettings(listen=listen, anonymous=True)) as broker:
        assert len(broker.addresses) == 1
        assert "192.0.2.1" in caplog.text
        await until(lambda: len(broker.addresses) == 2)
    async with Broker(BrokerSettings(listen=(f"192.0.2.7:{free_port()}",), anonymous=True)) as broker:
        assert broker.addresses == ()  # and its end does not wait for it


async def test_tls_listeners_want_a_certificate_and_use_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="certfile"):
        BrokerSettings(listen=("mqtts://127.0.0.1:0",))
    certificates = Certificates(tmp_path)
    settings = BrokerSettings(
        listen=("mqtts://127.0.0.1:0", "wss://127.0.0.1:0"),
        certfile=certificates.server,
        keyfile=certificates.server_key,
    )
    context = ssl.create_default_context(cafile=str(certificates.ca))
    async with Broker(settings) as broker:
        for address, transport in zip(broker.addresses, ("tcp", "websockets"), strict=True):
            async with aiomqtt.Client("localhost", address.port, transport=transport, tls_context=context) as one:
                await one.subscribe("t", qos=1)
                await one.publish("t", b"p", qos=1)
                async with asyncio.timeout(5):
                    assert (await anext(aiter(one.messages))).payload == b"p"
    broken = BrokerSettings(listen=("mqtts://127.0.0.1:0",), certfile=tmp_path / "none.pem")
    with pytest.raises(UsageError, match=r"none\.pem"):
        await Broker(broken).start()


async def test_ipv6() -> None:
    async with Broker(BrokerSettings(listen=("[::1]:0",))) as broker:
        assert str(broker.addresses[0]).startswith("mqtt://[::1]:")
        async with aiomqtt.Client("::1", broker.addresses[0].port) as one:
            await one.publish("t", b"", qos=1)


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:1883", Address("mqtt", "127.0.0.1", 1883)),
        ("mqtt://localhost", Address("mqtt", "localhost", 1883)),
        ("0.0.0.0:0", Address("mqtt", "0.0.0.0", 0)),
        ("ws://[::1]", Address("ws", "::1", 8083)),
        ("wss://h:1", Address("wss", "h", 1)),
    ],
)
def test_addresses(text: str, expected: Address) -> None:
    assert Address.parse(text) == expected


@pytest.mark.parametrize("text", ["", "http://h", "h:99999", "mqtt://", "mqtt://u@h", "ws://h/path", "h:x"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(BadURL):
        Address.parse(text)


def test_strangers_get_in_only_where_only_this_machine_can_reach_it() -> None:
    assert BrokerSettings().lets_strangers_in
    assert not BrokerSettings(password_file=Path("users")).lets_strangers_in
    assert BrokerSettings(listen=("0.0.0.0:1883",), anonymous=True).lets_strangers_in
    for listen in (("0.0.0.0:1883",), ("127.0.0.1:1883", "ws://[::]:0"), ("example.org:1883",)):
        with pytest.raises(UsageError, match="nobody could log in"):
            BrokerSettings(listen=listen)


def test_limits_and_filters_that_cannot_be() -> None:
    for window in (0, 65_536):
        with pytest.raises(UsageError, match="window"):
            Limits(window=window)
    with pytest.raises(UsageError, match="'a#', which is no topic filter"):
        BrokerSettings(unqueued=("a#",))


def test_the_package_loads_no_broker() -> None:
    code = "import sys, agentmqtt; sys.exit(any(m.partition('.')[0] in ('amqtt', 'websockets') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_its_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['amqtt'] = None; import agentmqtt.broker"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install 'agentmqtt[broker]'" in run.stderr
