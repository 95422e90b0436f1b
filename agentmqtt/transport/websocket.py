"""The client side of WebSocket (RFC 6455) as MQTT needs it: bytes in, bytes out, no I/O."""

from __future__ import annotations

import base64
import hashlib
import os

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MAX_HEADER = 16 * 1024
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class WebSocketError(Exception):
    """The peer is no WebSocket server for MQTT, or said goodbye. `status` is its HTTP status, 0 after the upgrade."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class WebSocket:
    """One connection: `request()` goes out first, then everything received through `feed()`.

    What `feed` leaves in `replies` must be sent; payload goes out through `frame()`.
    """

    def __init__(self, host: str, target: str) -> None:
        self._host, self._target = host, target
        self._key = base64.b64encode(os.urandom(16))
        self._buffer = bytearray()
        self._left = 0
        self.upgraded = False
        self.replies = bytearray()

    def request(self) -> bytes:
        """The HTTP request that asks for the upgrade."""
        lines = (
            f"GET {self._target} HTTP/1.1",
            f"Host: {self._host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key.decode()}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: mqtt",
        )
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def frame(self, payload: bytes, opcode: int = _BINARY) -> bytes:
        """`payload` as one masked frame (RFC 6455 §5.2, §5.3)."""
        size = len(payload)
        if size < 126:
            header = bytes((0x80 | opcode, 0x80 | size))
        elif size < 65536:
            header = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
        else:
            header = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
        key = os.urandom(4)
        return header + key + _mask(payload, key)

    def goodbye(self) -> bytes:
        """The frame that ends a WebSocket in peace (RFC 6455 §7.4.1)."""
        return self.frame(b"\x03\xe8", _CLOSE)

    def feed(self, data: bytes) -> bytes:
        """The payload in `data`.

        Raises:
            WebSocketError: the upgrade was refused, the frames are invalid, or the peer closed.
        """
        self._buffer += data
        if not self.upgraded and not self._upgrade():
            return b""
        payload = bytearray()
        while self._payload(payload) or self._frame():
            pass
        return bytes(payload)

    def _upgrade(self) -> bool:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            if len(head) > _MAX_HEADER:
                raise WebSocketError("it answers with something that is not HTTP")
            return False
        status, headers = _parse_head(bytes(head))
        accept = base64.b64encode(hashlib.sha1(self._key + _GUID, usedforsecurity=False).digest())
        if status != 101:
            raise WebSocketError(
                f"it answers HTTP {status} and no WebSocket at {self._target.partition('?')[0]}", status
            )
        if headers.get(b"sec-websocket-accept") != accept:
            raise WebSocketError("its WebSocket handshake is wrong")
        self._buffer = rest
        self.upgraded = True
        return True

    def _payload(self, into: bytearray) -> bool:
        """Move what is there of the current data frame; true if there was anything."""
        if not self._left or not self._buffer:
            return False
        part = self._buffer[: self._left]
        del self._buffer[: len(part)]
        self._left -= len(part)
        into += part
        return True

    def _frame(self) -> bool:
        """Take the next frame's header, and the whole frame if it is a control frame; true if there was one."""
        buffer = self._buffer
        if self._left or len(buffer) < 2:
            return False
        opcode, size, start = buffer[0] & 0x0F, buffer[1] & 0x7F, 2
        if buffer[0] & 0x70 or buffer[1] & 0x80:
            raise WebSocketError("its frames are no plain WebSocket frames")
        if size > 125:
            start = 4 if size == 126 else 10
            if len(buffer) < start:
                return False
            size = int.from_bytes(buffer[2:start], "big")
        if opcode in (_BINARY, _CONTINUATION):
            self._left = size
            del buffer[:start]
            return True
        if size > 125 or opcode == _TEXT:
            raise WebSocketError("it sends text where MQTT needs bytes")
        return self._control(opcode, start, size)

    def _control(self, opcode: int, start: int, size: int) -> bool:
        if len(self._buffer) < start + size:
            return False
        body = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        if opcode == _PING:
            self.replies += self.frame(body, _PONG)
        elif opcode == _CLOSE:
            code = int.from_bytes(body[:2], "big") if body else 1000
            raise WebSocketError(f"it closed the WebSocket ({code})")
        return True


def _parse_head(head: bytes) -> tuple[int, dict[bytes, bytes]]:
    first, *lines = head.split(b"\r\n")
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise WebSocketError("it answers with something that is not HTTP")
    pairs = (line.partition(b":") for line in lines)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _mask(payload: bytes, key: bytes) -> bytes:
    size = len(payload)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(size, "big")
