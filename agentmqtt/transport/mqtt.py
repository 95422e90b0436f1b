"""MQTT over TCP, TLS, WebSocket or a Unix socket: one object per connection, nothing kept across them."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple

import aiomqtt
import paho.mqtt.client as paho

from agentmqtt.errors import Congested, LinkError, LinkLost, Refused, TooLarge, Unreachable, UsageError
from agentmqtt.transport import reasons
from agentmqtt.transport.base import Delivery, Hello
from agentmqtt.transport.dial import Dialer, Tls
from agentmqtt.transport.pipe import Pipe
from agentmqtt.transport.reasons import NoContact
from agentmqtt.transport.url import Address, parse
from agentmqtt.transport.websocket import WebSocketError
from agentmqtt.transport.wire import V5, V311, Wire

WINDOW = 1000
"""Publishes without PUBACK at most, where the broker allows more (packet IDs, and what a loss throws away)."""

MAX_WAITING = 4096
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""Bounds of what waits for room in the window; above either, `publish` fails with Congested."""

BURST = 256 * 1024
"""Bytes handed to the network in one turn of the loop, about; the rest follows in the next ones."""

FIRST_CONTACT = 3.0
"""Seconds in which a broker must answer a CONNECT of MQTT 5 before 3.1.1 is tried."""

ANSWER = 30.0
"""Seconds after which a missing SUBACK or UNSUBACK ends the connection."""

GOODBYE = 1.0
"""Seconds for the broker to close after our DISCONNECT."""

_log = logging.getLogger("agentmqtt.transport")


class _Publish(NamedTuple):
    topic: str
    payload: bytes
    retain: bool
    done: asyncio.Future[None]


class _Ack:
    """PUBACK for one delivery, once: a packet ID belongs to another message afterwards."""

    __slots__ = ("_connection", "_mid", "_qos")

    def __init__(self, connection: MqttConnection, mid: int, qos: int) -> None:
        self._connection: MqttConnection | None = connection
        self._mid, self._qos = mid, qos

    def __call__(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.ack(self._mid, self._qos)


def _no_ack() -> None:
    """QoS 0 asks for none."""


class MqttConnection:
    """One connection (see transport.base.Connection). Made by MqttTransport."""

    def __init__(self, hello: Hello, address: Address, version: aiomqtt.ProtocolVersion) -> None:
        self._loop = asyncio.get_running_loop()
        self._hello, self._address = hello, address
        self._wire = Wire(hello, address, version, self)
        self._pipe: Pipe | None = None
        self._limit = 0
        self._unacked: dict[int, _Publish] = {}
        self._waiting: collections.deque[_Publish] = collections.deque()
        self._waiting_bytes = self._burst = 0
        self._timer: asyncio.TimerHandle | None = None
        self._congested = False
        self.lost: asyncio.Future[Exception] = self._loop.create_future()

    def __repr__(self) -> str:
        state = "lost" if self.lost.done() else "up" if self._limit else "opening"
        return f"<MqttConnection {self._hello.client_id} {self._address} {state}>"

    # -- opening ----------------------------------------------------------------------------------------

    async def open(self, dialer: Dialer, first_contact: float | None) -> None:
        """Returns after CONNACK. Raises LinkError, OSError or WebSocketError; then nothing is left open."""
        try:
            self._pipe = pipe = await dialer.open(Pipe)
            pipe.on_lost = self._stream_ended
            pipe.on_writable = self._pump
            self._wire.start(pipe)
            await self._first_contact(first_contact)
        except BaseException:
            self._end(LinkLost("the attempt to connect was given up"))
            raise
        self._limit = min(self._wire.receive_maximum, WINDOW)
        self._tick()

    async def _first_contact(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._wire.opened
        except TimeoutError:
            text = f"{self._address} took the connection and did not answer; is it an MQTT broker?"
            raise NoContact(text) from None

    # -- transport.base.Connection ------------------------------------------------------------------

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> asyncio.Future[None]:
        item = _Publish(topic, payload, retain, self._loop.create_future())
        if self.lost.done():
            _fail_quietly(item.done, self._lost_error())
        elif not self._waiting and self._has_room():
            self._send(item)
        elif len(self._waiting) >= MAX_WAITING or self._waiting_bytes + len(payload) > MAX_WAITING_BYTES:
            self._congest(item)
        else:
            self._waiting.append(item)
            self._waiting_bytes += len(payload)
        return item.done

    async def subscribe(self, filters: Sequence[str]) -> None:
        try:
            refused = await self._wire.grant(filters, ANSWER)
        except aiomqtt.MqttError as exc:
            raise self._unanswered("SUBSCRIBE") from exc
        except ValueError as exc:
            raise UsageError(f"a filter among {list(filters)} is invalid: {exc}") from exc
        if refused:
            names = ", ".join(refused)
            raise Refused(f"the broker does not let {self._hello.client_id!r} read {names}", filters=tuple(refused))

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        try:
            await self._wire.drop(filters, ANSWER)
        except aiomqtt.MqttError as exc:
            raise self._unanswered("UNSUBSCRIBE") from exc
        if self.lost.done():
            raise self._lost_error()

    async def close(self, *, goodbye: bool = True) -> None:
        pipe = self._pipe
        if pipe is None:
            return
        try:
            if goodbye:
                await self._part(pipe)
        finally:
            self._end(LinkLost("this side closed the connection"))
            pipe.close()
        await asyncio.wait((pipe.closed,), timeout=GOODBYE)

    async def _part(self, pipe: Pipe) -> None:
        if self._waiting:  # a small window of the broker must not eat the last words
            await asyncio.wait((self._waiting[-1].done,), timeout=GOODBYE)
        if not self.lost.done():
            self._wire.goodbye()
            self._end(LinkLost("this side closed the connection"), abort=False)
            await asyncio.wait((pipe.closed,), timeout=GOODBYE)  # it closes once it has read our DISCONNECT

    # -- what the wire says -------------------------------------------------------------------------

    def message(self, topic: str, message: paho.MQTTMessage) -> None:
        ack = _Ack(self, message.mid, message.qos) if message.qos else _no_ack
        delivery = Delivery(topic, bytes(message.payload), message.retain, message.dup, ack)
        try:
            self._hello.on_message(delivery)
        except Exception as exc:
            context = {"message": f"the handler of {topic} failed", "exception": exc}
            self._loop.call_exception_handler(context)

    def puback(self, mid: int, code: int, name: str) -> None:
        item = self._unacked.pop(mid, None)
        if item is not None and not item.done.done():
            if code >= 0x80:
                item.done.set_exception(reasons.puback(code, name, item.topic))
            else:
                item.done.set_result(None)
        self._pump()

    def ended(self, error: LinkError) -> None:
        if not self._wire.opened.done() and not isinstance(error, Refused | Unreachable):
            error = NoContact(f"{self._address} closed the connection before it answered; is it an MQTT broker?")
        self._end(error)

    def flushed(self) -> None:
        self._burst = 0
        self._pump()

    def ack(self, mid: int, qos: int) -> None:
        if not self.lost.done():  # a late one would acknowledge another message on the next connection
            self._wire.ack(mid, qos)

    # -- inside -----------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        writable = self._burst < BURST and self._pipe is not None and self._pipe.writable
        return writable and len(self._unacked) < self._limit

    def _congest(self, item: _Publish) -> None:
        text = f"{len(self._waiting)} messages ({self._waiting_bytes} bytes) wait for {self._address} already"
        error = Congested(f"{text}; wait for some of them first")
        if not self._congested:  # said once until there is room again; who awaits the future learns it each time
            _log.warning("%s", error)
        self._congested = True
        _fail_quietly(item.done, error)

    def _pump(self) -> None:
        while self._waiting and self._has_room():
            item = self._waiting.popleft()
            self._waiting_bytes -= len(item.payload)
            if not item.done.cancelled():
                self._send(item)
        self._congested = self._congested and bool(self._waiting)

    def _send(self, item: _Publish) -> None:
        size = len(item.topic.encode()) + len(item.payload) + 16
        try:
            if size > self._wire.maximum_packet:
                limit = self._wire.maximum_packet
                raise TooLarge(f"a message of {size} bytes on {item.topic}: the broker takes {limit} at most")
            self._unacked[self._wire.send(item.topic, item.payload, item.retain)] = item
            self._burst += size
        except UsageError as exc:
            item.done.set_exception(exc)

    def _stream_ended(self, exc: Exception | None) -> None:
        self.ended(reasons.ended(exc, self._address))

    def _unanswered(self, packet: str) -> LinkError:
        if not self.lost.done():
            self._end(LinkLost(f"{self._address} did not answer {packet} within {ANSWER:g} s"))
        return self._lost_error()

    def _lost_error(self) -> LinkError:
        error = self.lost.result()
        return error if isinstance(error, LinkError) else LinkLost(str(error))

    def _end(self, error: LinkError, *, abort: bool = True) -> None:
        """Once: everything that waits fails, and nothing is sent or taken in any more."""
        if abort and self._pipe is not None:
            self._pipe.close()
        if self.lost.done():
            return
        self.lost.set_result(error)
        self._wire.stop(error)
        if self._timer is not None:
            self._timer.cancel()
        for item in (*self._unacked.values(), *self._waiting):
            if not item.done.done():
                _fail_quietly(item.done, error)
        self._unacked.clear()
        self._waiting.clear()

    def _tick(self) -> None:
        """Ping after half a keep-alive of silence in either direction; give up at five quarters.

        With a tick each eighth, a half-open connection is found within 1.5 times the keep-alive.
        """
        keepalive, pipe = self._wire.keepalive, self._pipe
        if not keepalive or pipe is None:
            return
        now = self._loop.time()
        if now - pipe.received_at >= 1.25 * keepalive:
            self._end(LinkLost(f"{self._address} has been silent for {now - pipe.received_at:.1f} s"))
            return
        quiet = now - min(pipe.received_at, pipe.sent_at) >= keepalive / 2
        if quiet and now - pipe.sent_at >= keepalive / 4:
            self._wire.ping()
        self._timer = self._loop.call_later(keepalive / 8, self._tick)


def _fail_quietly(future: asyncio.Future[None], error: Exception) -> None:
    """Fail it, and count it as seen: it is told in another place too, and need not be once per message."""
    future.set_exception(error)
    future.exception()


class MqttTransport:
    """Connects to one broker (see transport.base.Transport).

    MQTT 5 is tried first and 3.1.1 where that is refused, closed or not answered within 3 s; what worked is
    kept, until it fails three times in a row. `protocol` fixes it: 5 or 4 (3.1.1). `connect_timeout` is
    seconds for one `connect`, all tries together.

    Raises:
        BadURL: `url` cannot be understood.
        UsageError: a TLS file cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        insecure: bool = False,
        connect_timeout: float = 10.0,
        protocol: Literal[4, 5] | None = None,
    ) -> None:
        self._address = parse(url, username=username, password=password)
        tls = Tls(tls_ca, tls_cert, tls_key, insecure)
        tls.check()
        self._dialer = Dialer(self._address, tls)
        self._timeout = connect_timeout
        self._fixed = {None: None, 4: V311, 5: V5}[protocol]
        self._proven: aiomqtt.ProtocolVersion | None = None
        self._failures = 0
        self._known = False

    def __repr__(self) -> str:
        return f"<MqttTransport {self._address}>"

    def describe(self) -> str:
        return str(self._address)

    @property
    def protocol(self) -> int | None:
        """The protocol level that works with this broker: 5, 4 (MQTT 3.1.1), or None while that is open."""
        version = self._fixed or self._proven
        return None if version is None else int(version)

    async def connect(self, hello: Hello) -> MqttConnection:
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connect(hello)
        except TimeoutError:
            self._doubt()
            raise Unreachable(f"{self._address} did not answer within {self._timeout:g} s") from None
        except NoContact:
            self._doubt()
            raise
        self._failures, self._known = 0, True
        return connection

    async def _connect(self, hello: Hello) -> MqttConnection:
        *earlier, last = self._plan()
        for version, limit in earlier:
            try:
                return await self._try(hello, version, limit)
            except NoContact as exc:
                _log.debug("%s with %s: %s", self._address, version.name, exc)
        return await self._try(hello, *last)

    async def _try(self, hello: Hello, version: aiomqtt.ProtocolVersion, limit: float | None) -> MqttConnection:
        connection = MqttConnection(hello, self._address, version)
        try:
            await connection.open(self._dialer, limit)
        except (OSError, WebSocketError) as exc:
            raise reasons.dial(exc, self._address, known=self._known) from exc
        self._proven = version
        return connection

    def _doubt(self) -> None:
        """No broker answered. After three times in a row, perhaps another one is there now."""
        self._failures += 1
        if self._failures >= 3:
            self._proven = None

    def _plan(self) -> list[tuple[aiomqtt.ProtocolVersion, float | None]]:
        """What to try in turn, and how long each may be silent."""
        settled = self._fixed or self._proven
        if settled is not None:
            return [(settled, None)]
        return [(V5, min(FIRST_CONTACT, self._timeout / 2)), (V311, None)]
