"""One paho client for one connection, taken over from aiomqtt and fed through a Pipe; never entered again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar

import aiomqtt
import paho.mqtt.client as paho
from aiomqtt.types import PahoSocket
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from agentmqtt.errors import LinkError, UsageError
from agentmqtt.transport import reasons
from agentmqtt.transport.base import Hello
from agentmqtt.transport.pipe import Pipe
from agentmqtt.transport.url import Address

V5, V311 = aiomqtt.ProtocolVersion.V5, aiomqtt.ProtocolVersion.V311

RECEIVE_MAXIMUM = 256
"""Messages that a broker may send without our acknowledgement (MQTT 5): bounds what a slow reader holds."""

MAXIMUM_PACKET = 1024 * 1024
"""Bytes of the largest packet that a broker may send (MQTT 5). The protocol's own stay far below."""

_PINGREQ, _DISCONNECT = b"\xc0\x00", b"\xe0\x00"
_log = logging.getLogger("agentmqtt.transport")
T = TypeVar("T")


class Listener(Protocol):
    """Who is told what happens on the wire. Nothing here may call back into paho's socket functions."""

    def message(self, topic: str, message: paho.MQTTMessage) -> None: ...
    def puback(self, mid: int, code: int, name: str) -> None: ...
    def flushed(self) -> None: ...
    def ended(self, error: LinkError) -> None: ...


class Wire(aiomqtt.Client):
    """aiomqtt's client without its socket, its tasks and its automatic acknowledgement.

    aiomqtt binds its `_on_*` methods to paho in its constructor, so overriding them is enough. paho never
    opens a socket: it gets the pipe, and its own timers do not run.
    """

    def __init__(self, hello: Hello, address: Address, version: aiomqtt.ProtocolVersion, listener: Listener) -> None:
        v5, will = version is V5, hello.will
        clean: paho.CleanStartOption = hello.session_expiry == 0 if v5 else 3  # 3 is what paho wants for 3.1.1
        super().__init__(
            address.host,
            identifier=hello.client_id,
            username=address.username,
            password=address.password,
            protocol=version,
            keepalive=min(hello.keepalive, 0xFFFF),
            will=aiomqtt.Will(will.topic, will.payload, 1, True) if will else None,
            clean_session=None if v5 else hello.session_expiry == 0,
            clean_start=clean,
            properties=_connect_properties(hello) if v5 else None,
            max_inflight_messages=0,  # paho's own window off: the connection keeps one, and paho then skips a scan
        )
        self._client.manual_ack_set(True)  # before the first byte, or early deliveries are acknowledged unseen
        self._client.disable_logger()
        self.pending_calls_threshold = 1 << 30
        self._address, self._hello, self._listener = address, hello, listener
        self._clean: paho.CleanStartOption = clean
        self._pipe: Pipe | None = None
        self._flushing = False
        self.receive_maximum, self.maximum_packet, self.keepalive = 65535, 1 << 28, hello.keepalive
        self.opened: asyncio.Future[None] = self._loop.create_future()

    # -- what the connection asks for ---------------------------------------------------------------

    def start(self, pipe: Pipe) -> None:
        """Send CONNECT over `pipe`; `opened` is done at the CONNACK."""
        self._pipe, pipe.parse = pipe, self._parse
        client = self._client
        client.connect_async(
            self._hostname, keepalive=self._keepalive, clean_start=self._clean, properties=self._properties
        )
        client._sock = pipe
        client._send_connect(self._keepalive)

    def stop(self, error: LinkError) -> None:
        """Nothing is sent or taken in any more; calls that wait for an answer end."""
        self._client._sock = None
        if self._pipe is not None:
            self._pipe.parse = self._pipe.discard
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # a connect that was cancelled does not ask for it
        for future in self._pending_subscribes.values():
            if not future.done():
                future.set_exception(error)
        for event in self._pending_unsubscribes.values():
            event.set()

    def send(self, topic: str, payload: bytes, retain: bool) -> int:
        """PUBLISH at QoS 1; returns its packet ID. The PUBACK cannot come before this returns."""
        while True:
            try:
                info = self._client.publish(topic, payload, 1, retain)
            except ValueError as exc:
                raise UsageError(f"{topic!r} cannot be published to: {exc}") from exc
            if info.rc != paho.MQTT_ERR_QUEUE_SIZE:  # that is: an old message still has this packet ID
                return info.mid

    def ack(self, mid: int, qos: int) -> None:
        self._client.ack(mid, qos)

    def ping(self) -> None:
        self.flush()
        if self._pipe is not None:
            self._pipe.send(_PINGREQ)
            self._pipe.flush()

    def goodbye(self) -> None:
        """DISCONNECT, after everything else. Not by paho, which would drop the socket before it is sent."""
        self.flush()
        if self._pipe is not None:
            self._pipe.send(_DISCONNECT)
            self._pipe.flush()
            self._pipe.finish()

    async def grant(self, filters: Sequence[str], timeout: float) -> list[str]:
        """SUBSCRIBE at QoS 1; the filters that were not granted."""
        codes = await self.subscribe([(item, 1) for item in filters], timeout=timeout)
        return [
            item for item, code in zip(filters, codes, strict=True) if isinstance(code, ReasonCode) and code.is_failure
        ]

    async def drop(self, filters: Sequence[str], timeout: float) -> None:
        await self.unsubscribe(list(filters), timeout=timeout)

    async def _wait_for(self, fut: Awaitable[T], timeout: float | None) -> T:
        """Not asyncio.wait_for: before Python 3.12 a cancellation is lost there if the answer comes with it."""
        try:
            async with asyncio.timeout(timeout):
                return await fut
        except TimeoutError:
            raise aiomqtt.MqttError("the operation timed out") from None

    def flush(self) -> None:
        self._flushing = False
        self._client.loop_write()
        if self._pipe is not None:
            self._pipe.flush()
            self._listener.flushed()

    # -- paho's callbacks -----------------------------------------------------------------------------

    def _parse(self) -> None:
        try:
            self._client.loop_read()
        except Exception as exc:
            _log.warning("unreadable bytes from %s", self._address, exc_info=exc)
            self._listener.ended(reasons.garbled(self._address))

    def _on_socket_register_write(self, client: paho.Client, userdata: Any, sock: PahoSocket) -> None:
        if not self._flushing:  # one write per turn of the loop, however many packets
            self._flushing = True
            self._loop.call_soon(self.flush)

    def _on_socket_unregister_write(self, client: paho.Client, userdata: Any, sock: PahoSocket) -> None:
        """The pipe waits for the network itself."""

    def _on_socket_close(self, client: paho.Client, userdata: Any, sock: PahoSocket) -> None:
        """The connection closes the pipe."""

    def _on_connect(
        self,
        client: paho.Client,
        userdata: Any,
        flags: paho.ConnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        if self.opened.done():
            return
        if reason_code.is_failure:
            error = reasons.connack(reason_code.value, str(reason_code), self._address, self._hello.client_id)
            self._listener.ended(error)
            return
        self.receive_maximum = getattr(properties, "ReceiveMaximum", self.receive_maximum)
        self.maximum_packet = getattr(properties, "MaximumPacketSize", self.maximum_packet)
        self.keepalive = getattr(properties, "ServerKeepAlive", self.keepalive)
        self.opened.set_result(None)

    def _on_disconnect(
        self,
        client: paho.Client,
        userdata: Any,
        flags: paho.DisconnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        if not flags.is_disconnect_packet_from_server:  # paho gave up on what it read
            self._listener.ended(reasons.garbled(self._address))
            return
        client_id = self._hello.client_id
        self._listener.ended(reasons.disconnect(reason_code.value, str(reason_code), self._address, client_id))

    def _on_message(self, client: paho.Client, userdata: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:  # refusing it would bring it back at each connection
            _log.warning("dropped a message from %s: its topic is not UTF-8", self._address)
            client.ack(message.mid, message.qos)
            return
        self._listener.message(topic, message)

    def _on_subscribe(
        self,
        client: paho.Client,
        userdata: Any,
        mid: int,
        reason_codes: list[ReasonCode],
        properties: Properties | None = None,
    ) -> None:
        if (answer := self._pending_subscribes.pop(mid, None)) is not None and not answer.done():
            answer.set_result(reason_codes)

    def _on_unsubscribe(
        self,
        client: paho.Client,
        userdata: Any,
        mid: int,
        reason_codes: list[ReasonCode],
        properties: Properties | None = None,
    ) -> None:
        if (answer := self._pending_unsubscribes.pop(mid, None)) is not None:  # None: whoever asked has gone
            answer.set()

    def _on_publish(
        self, client: paho.Client, userdata: Any, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        self._listener.puback(mid, reason_code.value, str(reason_code))


def _connect_properties(hello: Hello) -> Properties:
    properties = Properties(PacketTypes.CONNECT)
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    properties.MaximumPacketSize = MAXIMUM_PACKET
    if hello.session_expiry:
        properties.SessionExpiryInterval = min(hello.session_expiry, 0xFFFFFFFF)
    return properties
