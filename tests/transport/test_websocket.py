"""The WebSocket codec, without a socket."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest

from agentmqtt.transport.websocket import WebSocket, WebSocketError


def answer(request: bytes, *, status: str = "101 Switching Protocols", accept: bytes | None = None) -> bytes:
    key = request.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
    token = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return b"HTTP/1.1 %b\r\nUpgrade: websocket\r\nsec-websocket-accept: %b\r\n\r\n" % (
        status.encode(),
        accept or token,
    )


def upgraded() -> WebSocket:
    websocket = WebSocket("host", "/mqtt")
    assert websocket.feed(answer(websocket.request())) == b""
    assert websocket.upgraded
    return websocket


def unmask(frame: bytes) -> tuple[int, bytes]:
    size, start = frame[1] & 127, 2
    assert frame[1] & 128, "a client must mask"
    if size > 125:
        start = 4 if size == 126 else 10
        size = int.from_bytes(frame[2:start], "big")
    key, body = frame[start : start + 4], frame[start + 4 :]
    assert len(body) == size
    return frame[0], bytes(byte ^ key[i % 4] for i, byte in enumerate(body))


def test_the_request_asks_for_mqtt() -> None:
    request = WebSocket("h:81", "/p?q=1").request()
    assert request.startswith(b"GET /p?q=1 HTTP/1.1\r\nHost: h:81\r\n")
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in request
    assert request.endswith(b"\r\n\r\n")


def test_the_handshake_may_come_in_pieces_with_the_first_frame() -> None:
    websocket = WebSocket("host", "/mqtt")
    data = answer(websocket.request()) + b"\x82\x03abc"
    got = b"".join(websocket.feed(data[i : i + 1]) for i in range(len(data)))
    assert got == b"abc"


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_frames_of_every_length(size: int) -> None:
    payload = os.urandom(size)
    websocket = upgraded()
    assert unmask(websocket.frame(payload)) == (0x82, payload)
    wide, width = (b"\x7e", 2) if size < 65536 else (b"\x7f", 8)
    header = bytes((size,)) if size < 126 else wide + size.to_bytes(width, "big")
    data = b"\x82" + header + payload
    assert b"".join(websocket.feed(data[i : i + 1000]) for i in range(0, len(data), 1000)) == payload


def test_fragments_and_pings_in_between() -> None:
    websocket = upgraded()
    assert websocket.feed(b"\x02\x02ab\x89\x01p\x80\x01c\x8a\x00\x82\x01d") == b"abcd"
    assert unmask(bytes(websocket.replies)) == (0x8A, b"p")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x81\x01x", "text"),
        (b"\x88\x02\x03\xe9", "1001"),
        (b"\x88\x00", "1000"),
        (b"\xc2\x01x", "plain"),
        (b"\x82\x81kkkkx", "plain"),
        (b"\x89\x7e\x00\x7e", "bytes"),
    ],
)
def test_what_ends_it(data: bytes, words: str) -> None:
    with pytest.raises(WebSocketError, match=words):
        upgraded().feed(data)


def test_a_server_that_does_not_upgrade() -> None:
    websocket = WebSocket("host", "/x?token=hush")
    with pytest.raises(WebSocketError, match=r"HTTP 404 .* at /x$") as caught:
        websocket.feed(answer(websocket.request(), status="404 Not Found"))
    assert caught.value.status == 404


@pytest.mark.parametrize("data", [b"SSH-2.0-x\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"x" * 17000])
def test_a_server_that_is_no_web_server(data: bytes) -> None:
    with pytest.raises(WebSocketError, match="not HTTP"):
        WebSocket("host", "/").feed(data)


def test_a_wrong_key() -> None:
    websocket = WebSocket("host", "/")
    with pytest.raises(WebSocketError, match="handshake is wrong"):
        websocket.feed(answer(websocket.request(), accept=b"no"))
