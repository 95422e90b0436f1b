"""Broker URLs: `mqtt:// mqtts:// ws:// wss:// unix://`, with credentials, read once and checked."""

from __future__ import annotations

import dataclasses
from urllib.parse import SplitResult, unquote, urlsplit

from agentmqtt.errors import BadURL

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443, "unix": 0}
_ALIASES = {"tcp": "mqtt", "mqtt+tcp": "mqtt", "ssl": "mqtts", "tls": "mqtts", "http": "ws", "https": "wss"}
WEBSOCKET_PATH = "/mqtt"


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens and who asks. `str()` leaves out every secret, the query included.

    `path` is the request path of a WebSocket (with its query in `query`) or the file of a Unix socket.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str = dataclasses.field(default="", repr=False)
    username: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)

    @property
    def tls(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def target(self) -> str:
        """What a WebSocket handshake asks for."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def place(self) -> str:
        """`host:port`, or the path of a Unix socket."""
        if self.scheme == "unix":
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        user = f"{self.username}@" if self.username else ""
        return f"{self.scheme}://{user}{self.place}{self.path if self.websocket else ''}"


def parse(url: str, *, username: str | None = None, password: str | None = None) -> Address:
    """Read a broker URL; `username` and `password` go before those in it.

    Raises:
        BadURL: it is none of the forms above. The message shows what to write, never a password.
    """
    parts = _split(url)
    user = username if username is not None else _decoded(parts.username)
    word = password if password is not None else _decoded(parts.password)
    if word is not None and not user:
        raise BadURL("a password needs a user name too; write mqtt://NAME:PASSWORD@HOST")
    if parts.scheme == "unix":
        return _unix(url, parts, user, word)
    host, port = _place(url, parts)
    path, query = _path(url, parts)
    return Address(parts.scheme, host, port, path, query, user, word)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        raise BadURL(f"{_safe(url)!r} is not a URL; write mqtt://HOST, with [..] around an IPv6 address") from None
    if "://" not in url:
        raise BadURL(f"{_safe(url)!r} has no scheme; write mqtt://{_safe(url).rpartition('@')[2] or 'HOST'}")
    if parts.scheme not in PORTS:
        hint = _ALIASES.get(parts.scheme)
        known = "mqtt://, mqtts://, ws://, wss:// or unix:///PATH"
        raise BadURL(f"{parts.scheme}:// is no broker URL; write {f'{hint}://' if hint else known} instead")
    return parts


def _unix(url: str, parts: SplitResult, user: str | None, word: str | None) -> Address:
    path = unquote(parts.path)
    if parts.netloc.rpartition("@")[2] or len(path) < 2 or parts.query or parts.fragment:
        raise BadURL(f"{_safe(url)!r} names no socket; write unix:///absolute/path/of/socket")
    return Address("unix", "localhost", 0, path, "", user, word)


def _place(url: str, parts: SplitResult) -> tuple[str, int]:
    try:
        port = parts.port
    except ValueError:
        hint = f"{parts.scheme}://HOST:{PORTS[parts.scheme]}"
        raise BadURL(
            f"the port in {_safe(url)!r} is not a number from 1 to 65535; write {hint} "
            "(and %-encode / : @ in a password)"
        ) from None
    if not parts.hostname or port == 0:
        raise BadURL(f"{_safe(url)!r} names no host; write {parts.scheme}://HOST:{PORTS[parts.scheme]}")
    return parts.hostname, port or PORTS[parts.scheme]


def _path(url: str, parts: SplitResult) -> tuple[str, str]:
    if parts.fragment:
        raise BadURL(f"{_safe(url)!r} has a '#'; leave it out (in a password, write %23)")
    if parts.scheme in ("ws", "wss"):
        return parts.path if parts.path not in ("", "/") else WEBSOCKET_PATH, parts.query
    if parts.path not in ("", "/") or parts.query:
        raise BadURL(f"{_safe(url)!r}: {parts.scheme}:// takes no path; write {parts.scheme}://HOST:PORT")
    return "", ""


def _decoded(text: str | None) -> str | None:
    return unquote(text) if text else None


def _safe(url: str) -> str:
    """`url` without whatever may be a credential: all before the last @, wherever it stands."""
    head, at, tail = url.strip().rpartition("@")
    if not at:
        return tail.partition("?")[0]
    scheme = head.partition("://")[0] + "://" if "://" in head else ""
    return f"{scheme}…@{tail.partition('?')[0]}"
