"""What MqttTransport does with brokers that misbehave, refuse, or set limits."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from agentmqtt.errors import Congested, LinkLost, Refused, TakenOver, TooLarge, Unreachable, UsageError
from agentmqtt.transport import mqtt, pipe
from agentmqtt.transport.base import Delivery, Hello
from agentmqtt.transport.mqtt import MqttConnection, MqttTransport
from tests import fakes
from tests.fakes import FakeBroker, FakePeer
from tests.servers import Certificates, free_port, mosquitto


def hello(client_id: str = "client", keepalive: int = 20) -> Hello:
    return Hello(client_id, keepalive, lambda delivery: None)


async def lost(connection: MqttConnection) -> Exception:
    return await asyncio.wait_for(asyncio.shield(connection.lost), 10)


async def welcome(peer: FakePeer) -> None:
    """A broker of MQTT 5 that lets the client in and waits for its end."""
    await peer.connect()
    peer.write(fakes.WELCOME_5)
    await peer.ended()


# -- protocol versions ------------------------------------------------------------------------------------


async def only_311(peer: FakePeer) -> None:
    level = await peer.connect()
    peer.write(fakes.WELCOME_4 if level == 4 else fakes.refusal_4(1))
    if level == 4:
        await peer.ended()


async def closes_on_5(peer: FakePeer) -> None:
    if await peer.connect() == 4:
        peer.write(fakes.WELCOME_4)
        await peer.ended()


async def silent_on_5(peer: FakePeer) -> None:
    if await peer.connect() == 4:
        peer.write(fakes.WELCOME_4)
    await peer.ended()


async def says_unsupported(peer: FakePeer) -> None:
    level = await peer.connect()
    peer.write(fakes.WELCOME_4 if level == 4 else fakes.refusal_5(0x84))
    if level == 4:
        await peer.ended()


async def babbles(peer: FakePeer) -> None:
    level = await peer.connect()
    peer.write(fakes.WELCOME_4 if level == 4 else b"\xff\xff\xff\xff\xff")
    await peer.ended()


@pytest.mark.parametrize("script", [only_311, closes_on_5, silent_on_5, says_unsupported, babbles])
async def test_311_is_taken_where_5_does_not_work_and_is_remembered(
    script: fakes.Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "FIRST_CONTACT", 0.05)
    async with FakeBroker(script) as broker:
        transport = MqttTransport(broker.url)
        for connections in (2, 3):
            connection = await transport.connect(hello())
            assert (transport.protocol, broker.connections) == (4, connections)
            await connection.close()


async def test_5_is_taken_where_it_works_and_is_remembered() -> None:
    async with FakeBroker(welcome) as broker:
        transport = MqttTransport(broker.url)
        for connections in (1, 2):
            connection = await transport.connect(hello())
            assert (transport.protocol, broker.connections) == (5, connections)
            await connection.close()


async def test_a_proven_version_is_forgotten_after_three_failures() -> None:
    script = welcome

    async def current(peer: FakePeer) -> None:
        await script(peer)

    async with FakeBroker(current) as broker:
        transport = MqttTransport(broker.url)
        await (await transport.connect(hello())).close()
        script = only_311
        for _ in range(3):
            with pytest.raises(Unreachable):
                await transport.connect(hello())
        await (await transport.connect(hello())).close()
        assert transport.protocol == 4


async def test_a_proven_version_is_forgotten_after_three_silences() -> None:
    script = welcome

    async def current(peer: FakePeer) -> None:
        await script(peer)

    async with FakeBroker(current) as broker:
        transport = MqttTransport(broker.url)
        await (await transport.connect(hello())).close()
        script, transport._timeout = silent_on_5, 0.1
        for _ in range(3):
            with pytest.raises(Unreachable):
                await transport.connect(hello())
        transport._timeout = 2.0
        await (await transport.connect(hello())).close()
        assert transport.protocol == 4


async def test_nothing_that_answers_as_a_broker() -> None:
    async def web_server(peer: FakePeer) -> None:
        peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with FakeBroker(web_server) as broker:
        with pytest.raises(Unreachable, match="is it an MQTT broker"):
            await MqttTransport(broker.url).connect(hello())


# -- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "protocol", "error", "words"),
    [
        (fakes.refusal_5(0x86), 5, Refused, "user name and password"),
        (fakes.refusal_5(0x87), 5, Refused, "without a user name"),
        (fakes.refusal_5(0x85), 5, Refused, "client ID 'client'"),
        (fakes.refusal_5(0x8A), 5, Refused, "Banned"),
        (fakes.refusal_5(0x88), 5, Unreachable, "try again later"),
        (fakes.refusal_5(0x97), 5, Unreachable, "Quota"),
        (fakes.refusal_4(4), 4, Refused, "user name and password"),
        (fakes.refusal_4(5), 4, Refused, "without a user name"),
        (fakes.refusal_4(2), 4, Refused, "client ID"),
        (fakes.refusal_4(3), 4, Unreachable, "try again later"),
        (fakes.refusal_4(1), 4, Unreachable, "closed the connection"),
    ],
)
async def test_what_a_connack_means(answer: bytes, protocol: int, error: type[Exception], words: str) -> None:
    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(answer)
        await peer.ended()

    async with FakeBroker(script) as broker:
        with pytest.raises(error, match=words):
            await MqttTransport(broker.url, protocol=protocol).connect(hello())


async def test_a_wrong_password_is_refused_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with mosquitto(users={"anna": "right"}) as server:
        url = f"mqtt://anna:wr0ng@127.0.0.1:{server.port}"
        with pytest.raises(Refused) as caught:
            await MqttTransport(url).connect(hello())
        assert "'anna'" in str(caught.value)
        assert "wr0ng" not in str(caught.value) + caplog.text
        good = MqttTransport(url, password="right")
        await (await good.connect(hello())).close()


async def test_nobody_listens() -> None:
    port = free_port()
    with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}.*agentmqtt broker") as caught:
        await MqttTransport(f"mqtt://127.0.0.1:{port}").connect(hello())
    assert caught.value.retryable


async def test_no_socket_file(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"nothing.*agentmqtt broker"):
        await MqttTransport(f"unix://{tmp_path}/nothing").connect(hello())


async def test_a_broker_that_never_answers_runs_into_the_timeout() -> None:
    async def silent(peer: FakePeer) -> None:
        await peer.ended()

    async with FakeBroker(silent) as broker:
        with pytest.raises(Unreachable, match=r"within 0\.1 s"):
            await MqttTransport(broker.url, connect_timeout=0.1).connect(hello())


@pytest.mark.parametrize(
    ("code", "error"), [(0x8E, TakenOver), (0x87, Refused), (0x8B, LinkLost), (0x8D, LinkLost), (0x00, LinkLost)]
)
async def test_what_a_disconnect_means(code: int, error: type[Exception]) -> None:
    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.WELCOME_5 + bytes((0xE0, 2, code, 0)))
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        assert type(await lost(connection)) is error
        await connection.close()


async def test_a_refused_message_names_topic_and_reason() -> None:
    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.WELCOME_5)
        for code in (0x87, 0x10):
            mid, _ = await peer.publish()
            peer.write(fakes.puback_5(mid, code))
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        with pytest.raises(Refused, match=r"secret/place.*Not authorized"):
            await connection.publish("secret/place", b"")
        await connection.publish("nobody/listens", b"")  # 0x10 is no refusal
        await connection.close()


async def test_a_refused_filter_is_named_and_the_others_stand() -> None:
    acl = "topic read open/#\ntopic write open/#\n"
    with mosquitto(acl=acl) as server:
        got: asyncio.Queue[Delivery] = asyncio.Queue()
        connection = await MqttTransport(server.url).connect(Hello("client", 20, got.put_nowait))
        await connection.subscribe(["open/a"])
        await connection.publish("open/a", b"x")
        assert (await got.get()).payload == b"x"
        await connection.close()

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.WELCOME_4)
        body = await peer.expect(fakes.SUBSCRIBE)
        peer.write(b"\x90\x05" + body[:2] + b"\x01\x80\x00")
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url, protocol=4).connect(hello())
        with pytest.raises(Refused, match="no/entry") as caught:
            await connection.subscribe(["a", "no/entry", "b"])
        assert caught.value.filters == ("no/entry",)
        await connection.close()


# -- limits -------------------------------------------------------------------------------------------------


async def test_the_brokers_receive_maximum_is_kept() -> None:
    seen: list[int] = []

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.welcome_5(b"\x21\x00\x02"))  # ReceiveMaximum 2
        waiting = [(await peer.publish())[0] for _ in range(2)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.read(), 0.05)
        for _ in range(8):
            peer.write(fakes.puback_5(waiting.pop(0), 0))
            waiting.append((await peer.publish())[0])
            seen.append(len(waiting))
        for mid in waiting:
            peer.write(fakes.puback_5(mid, 0))
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        done = [connection.publish("a", b"") for _ in range(10)]
        await asyncio.wait_for(asyncio.gather(*done), 5)
        assert seen == [2] * 8
        await connection.close()


async def test_what_waits_is_bounded_and_order_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mqtt, "MAX_WAITING", 5)
    topics: list[bytes] = []

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.welcome_5(b"\x21\x00\x01"))
        while True:
            mid, topic = await peer.publish()
            topics.append(topic)
            peer.write(fakes.puback_5(mid, 0))

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        done = [connection.publish(f"{i}", b"") for i in range(8)]
        with pytest.raises(Congested, match="5 messages") as caught:
            await done[7]
        assert caught.value.retryable
        results = await asyncio.wait_for(asyncio.gather(*done, return_exceptions=True), 5)
        assert [type(result) for result in results] == [type(None)] * 6 + [Congested] * 2
        assert topics == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert [record.levelname for record in caplog.records] == ["WARNING"]  # once, not once per message
        await connection.close(goodbye=False)


async def test_what_waits_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "MAX_WAITING_BYTES", 1000)

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.welcome_5(b"\x21\x00\x01"))
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        done = [connection.publish("a", bytes(600)) for _ in range(3)]
        with pytest.raises(Congested, match="600 bytes"):
            await done[2]
        await connection.close(goodbye=False)


async def test_a_flood_of_large_messages_goes_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    flush = pipe.Pipe.flush

    def measured(self: pipe.Pipe) -> None:
        pieces.append(sum(map(len, self._out)))
        flush(self)

    monkeypatch.setattr(pipe.Pipe, "flush", measured)

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.WELCOME_5)
        while True:
            mid, _ = await peer.publish()
            peer.write(fakes.puback_5(mid, 0))

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        done = [connection.publish("a", bytes(100_000)) for _ in range(100)]
        await asyncio.wait_for(asyncio.gather(*done), 10)
        assert sum(pieces) > 100 * 100_000
        assert max(pieces) < mqtt.BURST + 2 * 100_000
        await connection.close(goodbye=False)


async def test_a_publish_that_was_given_up_while_waiting_is_not_sent() -> None:
    go = asyncio.Event()
    topics: list[bytes] = []

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.welcome_5(b"\x21\x00\x01"))
        await go.wait()
        while True:
            mid, topic = await peer.publish()
            topics.append(topic)
            peer.write(fakes.puback_5(mid, 0))

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        first, second, third = (connection.publish(topic, b"") for topic in "123")
        second.cancel()
        go.set()
        await asyncio.wait_for(asyncio.gather(first, third), 5)
        assert topics == [b"1", b"3"]
        await connection.close(goodbye=False)


async def test_the_brokers_packet_limit_is_kept() -> None:
    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.welcome_5(b"\x27\x00\x00\x01\x00"))  # MaximumPacketSize 256
        mid, _ = await peer.publish()
        peer.write(fakes.puback_5(mid, 0))
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        with pytest.raises(TooLarge, match="256 at most"):
            await connection.publish("a", bytes(300))
        await connection.publish("a", bytes(200))
        await connection.close()


async def test_topics_and_filters_that_mqtt_does_not_allow() -> None:
    async with FakeBroker(welcome) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        with pytest.raises(UsageError, match=r"a/\+"):
            await connection.publish("a/+", b"")
        with pytest.raises(UsageError, match=r"a/#/b"):
            await connection.subscribe(["a/#/b"])
        await connection.close()


async def test_a_packet_id_in_use_is_skipped() -> None:
    stuck: list[int] = []

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.WELCOME_4)
        stuck.append((await peer.publish())[0])
        while True:
            mid, _ = await peer.publish()
            assert mid != stuck[0]
            peer.write(fakes.puback_4(mid))

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url, protocol=4).connect(hello())
        first = connection.publish("never/answered", b"")
        connection._wire._client._last_mid = 65530
        await asyncio.wait_for(asyncio.gather(*(connection.publish("a", b"") for _ in range(20))), 5)
        assert not first.done()
        await connection.close(goodbye=False)


# -- no ghosts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goodbye", [True, False])
async def test_a_cancelled_connect_leaves_no_connection(goodbye: bool) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        asked.set()
        await peer.ended()
        gone.set()

    async with FakeBroker(script) as broker:
        task = asyncio.ensure_future(MqttTransport(broker.url).connect(hello()))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 5)
        assert broker.connections == 1


async def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    said, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.WELCOME_5)
        await peer.expect(fakes.DISCONNECT)
        said.set()
        await peer.ended()
        gone.set()
        await asyncio.Event().wait()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        task = asyncio.ensure_future(connection.close())
        await said.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 5)


async def test_a_connack_that_comes_after_the_timeout_brings_nobody_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt is dropped before the second is made: two would fight for the client ID."""
    monkeypatch.setattr(mqtt, "FIRST_CONTACT", 0.05)
    first_gone = asyncio.Event()

    async def script(peer: FakePeer) -> None:
        if await peer.connect() == 5:
            await peer.ended()
            first_gone.set()
            return
        await first_gone.wait()
        peer.write(fakes.WELCOME_4)
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        await connection.close()


# -- staying alive ------------------------------------------------------------------------------------------


async def test_a_half_open_link_is_noticed_within_one_and_a_half_keepalives() -> None:
    with mosquitto() as server:
        connection = await MqttTransport(server.url).connect(hello(keepalive=1))
        server.freeze()
        began = asyncio.get_running_loop().time()
        error = await lost(connection)
        assert isinstance(error, LinkLost)
        assert "silent" in str(error)
        assert asyncio.get_running_loop().time() - began <= 1.5 + 0.4  # the machine may be slow, not the rule
        server.thaw()
        await connection.close()


async def test_a_quiet_link_is_kept_by_pings() -> None:
    pings = 0
    enough = asyncio.Event()

    async def script(peer: FakePeer) -> None:
        nonlocal pings
        await peer.connect()
        peer.write(fakes.welcome_5(b"\x13\x00\x01"))  # ServerKeepAlive 1: the client must take it
        while pings < 3:
            await peer.expect(fakes.PING)
            pings += 1
            peer.write(fakes.PONG)
        enough.set()
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello(keepalive=600))
        await asyncio.wait_for(enough.wait(), 5)
        assert not connection.lost.done()
        await connection.close()


async def test_a_missing_suback_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "ANSWER", 0.05)
    async with FakeBroker(welcome) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        with pytest.raises(LinkLost, match="SUBSCRIBE"):
            await connection.subscribe(["a"])
        assert connection.lost.done()
        await connection.close()


# -- what comes in ------------------------------------------------------------------------------------------


async def test_a_burst_leaves_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "SLICE", 0.0005)
    order: list[str] = []
    done = asyncio.Event()
    count = 3000

    def handler(delivery: Delivery) -> None:
        order.append("message")
        if len(order) == 1:
            asyncio.get_running_loop().call_soon(tick)
        if order.count("message") == count:
            done.set()

    def tick() -> None:
        order.append("other")
        if not done.is_set():
            asyncio.get_running_loop().call_soon(tick)

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        burst = b"".join(fakes.publish_4(b"a", bytes(60), i % 60000 + 1) for i in range(count))
        peer.write(fakes.WELCOME_4 + burst)
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url, protocol=4).connect(Hello("client", 20, handler))
        await asyncio.wait_for(done.wait(), 30)
        assert order.count("other") > 20
        await connection.close()


async def test_bytes_that_are_no_mqtt_end_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.WELCOME_5 + b"\x30\x01\x00" * 3)
        await peer.ended()

    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url).connect(hello())
        assert "not MQTT" in str(await lost(connection))
        await connection.close()


async def test_a_topic_that_is_no_text_is_dropped_and_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    acked = asyncio.Event()

    async def script(peer: FakePeer) -> None:
        await peer.connect()
        peer.write(fakes.WELCOME_4 + fakes.publish_4(b"a\xff", b"x", 7) + fakes.publish_4(b"good", b"x", 8))
        assert await peer.expect(fakes.PUBACK) == b"\x00\x07"
        acked.set()
        await peer.ended()

    got: asyncio.Queue[Delivery] = asyncio.Queue()
    async with FakeBroker(script) as broker:
        connection = await MqttTransport(broker.url, protocol=4).connect(Hello("client", 20, got.put_nowait))
        assert (await asyncio.wait_for(got.get(), 5)).topic == "good"
        await asyncio.wait_for(acked.wait(), 5)
        assert "not UTF-8" in caplog.text
        await connection.close()


# -- TLS and WebSocket --------------------------------------------------------------------------------------


async def test_a_certificate_nobody_vouches_for(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with mosquitto(tls=certificates) as server:
        transport = MqttTransport(server.tls_url)
        with pytest.raises(Refused, match="tls_ca"):
            await transport.connect(hello())
        insecure = MqttTransport(server.tls_url, insecure=True)
        await (await insecure.connect(hello())).close()


async def test_a_certificate_for_another_name(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.server, certificates.server_key = certificates.issue("other", "subjectAltName=DNS:other.example")
    with mosquitto(tls=certificates) as server:
        with pytest.raises(Refused, match="name that its certificate carries"):
            await MqttTransport(server.tls_url, tls_ca=str(certificates.ca)).connect(hello())


async def test_a_certificate_that_fails_later_may_pass_again(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with mosquitto(tls=certificates) as server:
        transport = MqttTransport(server.tls_url, tls_ca=str(certificates.ca))
        await (await transport.connect(hello())).close()
        transport._dialer._context = None
        other = tmp_path / "other"
        other.mkdir()
        certificates.ca.write_bytes(Certificates(other).ca.read_bytes())
        with pytest.raises(Unreachable, match="not trusted"):
            await transport.connect(hello())


async def test_a_client_certificate_is_asked_for(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    ca, cert, key = (str(path) for path in (certificates.ca, certificates.client, certificates.client_key))
    with mosquitto(tls=certificates, client_certificates=True) as server:
        with pytest.raises(Refused, match="tls_cert"):
            await MqttTransport(server.tls_url, tls_ca=ca).connect(hello())
        good = MqttTransport(server.tls_url, tls_ca=ca, tls_cert=cert, tls_key=key)
        await (await good.connect(hello())).close()


async def test_tls_where_there_is_none_and_none_where_there_is_tls(tmp_path: Path) -> None:
    with mosquitto(tls=Certificates(tmp_path)) as server:
        with pytest.raises(Unreachable, match="TLS"):
            await MqttTransport(server.url.replace("mqtt://", "mqtts://")).connect(hello())
        with pytest.raises(Unreachable, match="is it an MQTT broker"):
            await MqttTransport(server.tls_url.replace("mqtts://", "mqtt://")).connect(hello())


def test_tls_files_are_looked_at_early(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tls_ca.*missing"):
        MqttTransport("mqtts://h", tls_ca=str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="tls_cert"):
        MqttTransport("mqtts://h", tls_key=__file__)


async def test_a_file_that_is_no_certificate() -> None:
    async with FakeBroker(welcome) as broker:
        with pytest.raises(UsageError, match="PEM"):
            await MqttTransport(f"mqtts://127.0.0.1:{broker.port}", tls_ca=__file__).connect(hello())


async def test_a_web_server_without_mqtt() -> None:
    status = b"404 Not Found"

    async def script(peer: FakePeer) -> None:
        peer.write(b"HTTP/1.1 %b\r\n\r\n" % status)
        await peer.ended()

    async with FakeBroker(script) as broker:
        transport = MqttTransport(f"ws://127.0.0.1:{broker.port}/wrong")
        with pytest.raises(Unreachable, match=r"404.*path right"):
            await transport.connect(hello())
        status = b"403 Forbidden"
        with pytest.raises(Refused, match="403"):
            await transport.connect(hello())


async def test_a_web_server_that_hangs_up_in_the_handshake() -> None:
    async def script(peer: FakePeer) -> None:
        peer.close()

    async with FakeBroker(script) as broker:
        with pytest.raises(Unreachable):
            await asyncio.wait_for(MqttTransport(f"ws://127.0.0.1:{broker.port}").connect(hello()), 5)
