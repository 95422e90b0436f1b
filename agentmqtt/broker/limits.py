"""What the bundled broker may use at most, and what it was asked to be."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agentmqtt.broker.topics import valid_filter
from agentmqtt.errors import BadURL, UsageError

DEFAULT_LISTEN = ("127.0.0.1:1883",)
DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 8083, "wss": 8084}
_DAY = 86_400
_MOST_IN_FLIGHT = 65_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one broker. Sizes are bytes, times seconds."""

    max_packet: int = 1 << 20
    """One MQTT packet after CONNECT."""
    max_connect: int = 128 << 10
    """The CONNECT packet, the only one that a stranger can send."""
    max_levels: int = 64
    """Levels of a topic or filter."""
    max_client_id: int = 256
    """Characters of a client ID."""
    connections: int = 20_000
    sessions: int = 50_000
    subscriptions: int = 2_000
    """Filters of one session."""
    retained: int = 200_000
    retained_bytes: int = 256 << 20
    queue: int = 20_000
    """Messages that wait for one session, beside those in flight."""
    queue_bytes: int = 16 << 20
    """Bytes of what one session has not acknowledged, waiting or in flight."""
    window: int = 256
    """Messages in flight to one session."""
    inbound: int = 4_096
    """QoS 2 messages of one session between PUBLISH and PUBREL."""
    write_buffer: int = 256 << 10
    """Bytes handed to one socket before the rest waits in the session's queue."""
    local_window: int = 4_096
    """Unacknowledged deliveries of a client in this process before publishers are held."""
    connect_timeout: float = 10.0
    """From the accepted socket to CONNACK."""
    session_expiry: float = 7 * _DAY
    """How long a persistent session outlives its connection."""

    def __post_init__(self) -> None:
        for name in ("window", "local_window"):
            if not 1 <= getattr(self, name) <= _MOST_IN_FLIGHT:
                raise UsageError(f"{name} is {getattr(self, name)}; packet IDs allow 1 to {_MOST_IN_FLIGHT}")


class Address(NamedTuple):
    """Where a listener is: mqtt, mqtts, ws, wss, or unix, whose `host` is a path. Port 0 asks for a free one."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def tls(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def web(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.scheme == "unix" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `127.0.0.1:1883`, `mqtt://host`, `mqtts://host:8883`, `ws://[::1]:8083`, `unix:///run/mqtt.sock`.

        Raises:
            BadURL: if it is none of these.
        """
        if text.startswith("unix://"):
            path = text.removeprefix("unix://")
            if not path.startswith("/"):
                raise BadURL(f"{text!r} names no socket; write unix:///path/to/socket")
            return cls("unix", path, 0)
        url = urlsplit(text if "://" in text else f"mqtt://{text}")
        if url.scheme not in DEFAULT_PORTS or not url.hostname or url.path.strip("/") or url.query or url.username:
            raise BadURL(
                f"{text!r} is no address to listen on; write HOST:PORT, mqtt|mqtts|ws|wss://HOST:PORT or unix:///PATH"
            )
        try:
            port = url.port
        except ValueError as error:
            raise BadURL(f"{text!r} has no usable port: {error}") from error
        return cls(url.scheme, url.hostname, DEFAULT_PORTS[url.scheme] if port is None else port)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What the broker is to be.

    `anonymous=None` lets clients in without a name where nobody but this machine can reach a
    listener and there is neither a password file nor a plugin that could know them.
    `accounts`, `token_key` and `rules` say who gets in and what it may do (docs/SECURITY.md); `root` are
    the first levels of agentmqtt's topics. Files are read again when they change.
    `client_ca` signs client certificates; with `require_certificate` nobody gets in without one.
    `origins` are the web pages (`https://host`) that may connect by WebSocket; without any, those of
    this machine, or all where a password is asked for.
    `unqueued` are topic filters whose messages are not kept for a session that is offline.
    `sys_interval` are the seconds between two rounds of messages below `$SYS`; 0 says nothing there.
    `metrics` is a HOST:PORT for Prometheus and health checks; nothing is served without it.
    `plugins` maps dotted names of amqtt plugin classes to their options.

    Raises:
        BadURL: an address that cannot be understood.
        UsageError: settings under which nobody could get in, TLS without a certificate, a bad filter.
    """

    listen: tuple[str, ...] = DEFAULT_LISTEN
    anonymous: bool | None = None
    password_file: Path | None = None
    accounts: Path | None = None
    token_key: Path | None = None
    rules: Path | None = None
    root: str = "agentmqtt/v1"
    certfile: Path | None = None
    keyfile: Path | None = None
    client_ca: Path | None = None
    require_certificate: bool = False
    origins: tuple[str, ...] = ()
    unqueued: tuple[str, ...] = ()
    sys_interval: float = 10.0
    metrics: str = ""
    plugins: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    limits: Limits = dataclasses.field(default_factory=Limits)

    def __post_init__(self) -> None:
        addresses = self.listeners()
        if bad := [pattern for pattern in self.unqueued if not valid_filter(pattern)]:
            raise UsageError(f"`unqueued` has {bad[0]!r}, which is no topic filter")
        if any(address.tls for address in addresses) and not self.certfile:
            raise UsageError("a mqtts or wss listener needs `certfile` (and `keyfile`)")
        if self.require_certificate and not self.client_ca:
            raise UsageError("`require_certificate` needs `client_ca`: who signs the certificates of clients?")
        if not (self.lets_strangers_in or self.guarded):
            open_to = ", ".join(str(address) for address in addresses if not address.loopback) or "nobody"
            raise UsageError(
                f"nobody could log in: {open_to} is reachable from other machines; "
                "make an account (agentmqtt user add NAME), give an auth plugin, or say anonymous=True"
            )

    def listeners(self) -> tuple[Address, ...]:
        """The addresses of `listen`, understood."""
        return tuple(Address.parse(text) for text in self.listen)

    @property
    def guarded(self) -> bool:
        """Whether somebody could log in, as far as files and plugins say now."""
        files = (self.accounts, self.token_key)
        return bool(self.password_file or self.plugins) or any(path and path.exists() for path in files)

    @property
    def private(self) -> bool:
        """Whether only this machine can reach a listener."""
        return all(address.loopback for address in self.listeners())

    @property
    def lets_strangers_in(self) -> bool:
        """Whether a client without a user name gets in."""
        if self.anonymous is not None:
            return self.anonymous
        return not self.guarded and self.private
