"""The sockets that the broker listens on: TCP and WebSocket, each with or without TLS."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import websockets.asyncio.server
from websockets.asyncio.server import ServerConnection
from websockets.typing import Origin, Subprotocol

from agentmqtt.broker.activation import Inherited
from agentmqtt.broker.holder import holder_of
from agentmqtt.broker.limits import DEFAULT_LISTEN, Address, BrokerSettings
from agentmqtt.broker.pipes import Client, StreamPipe
from agentmqtt.broker.tls import ServerTLS
from agentmqtt.errors import ListenError

Server: TypeAlias = asyncio.Server | websockets.asyncio.server.Server

log = logging.getLogger("agentmqtt.broker")

RETRY = 2.0
"""Seconds between two looks for an address that this machine does not have yet."""
_OWN_PAGES = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
"""Web pages of this machine: any other must not reach a broker that asks for no password."""


class Listeners:
    """Open servers for the addresses of `settings`; accepted connections go to `stream` and `web`."""

    def __init__(
        self,
        settings: BrokerSettings,
        stream: Callable[[StreamPipe], Client | None],
        web: Callable[[ServerConnection, str], Awaitable[None]],
        inherited: Sequence[Inherited] = (),
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._web = web
        self._inherited = inherited
        self._retries: list[asyncio.Task[None]] = []
        self._servers: list[Server] = []
        self._tls: ServerTLS | None = None
        self.addresses: tuple[Address, ...] = ()

    async def open(self) -> None:
        """Listen everywhere. After an error some listeners may be open: close them.

        An address that this machine does not have yet is tried again in the background.

        Raises:
            ListenError: an address is taken or not ours.
            UsageError: the certificate cannot be used.
        """
        ports = {given.sock.getsockname()[1] for given in self._inherited if given.sock.family != socket.AF_UNIX}
        wanted = [address for address in self._settings.listeners() if not address.port or address.port not in ports]
        if any(address.tls for address in wanted) or any(given.scheme in ("mqtts", "wss") for given in self._inherited):
            self._tls = self._certificates()
        for given in self._inherited:
            await self._serve(Address(given.scheme, "", 0), given.sock)
        for address in wanted if not self._inherited or self._settings.listen != DEFAULT_LISTEN else ():
            try:
                await self._serve(address)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise ListenError(_why(address, error)) from error
                log.warning("%s is no address of this machine yet; it is tried again until it is", address)
                retry = asyncio.create_task(self._retry(address), name=f"agentmqtt broker listen {address}")
                self._retries.append(retry)

    async def _retry(self, address: Address) -> None:
        while True:
            await asyncio.sleep(RETRY)
            try:
                await self._serve(address)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    log.warning("%s; it is tried again", _why(address, error))
            else:
                log.info("listening on %s", address)
                return

    async def _serve(self, address: Address, sock: socket.socket | None = None) -> None:
        if address.scheme == "unix":
            server = await self._serve_unix(address)
        else:
            server = await (self._serve_web(address, sock) if address.web else self._serve_stream(address, sock))
        self._servers.append(server)
        self.addresses += tuple(_bound(address, server))

    def stop(self) -> None:
        """Accept nothing more."""
        for retry in self._retries:
            retry.cancel()
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Stop listening. Connections are closed by whoever accepted them."""
        self.stop()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        self.addresses = ()

    async def _serve_unix(self, address: Address) -> Server:
        """A socket in the file system, for this user and group. One that a dead process left is replaced."""
        limits = self._settings.limits
        if _answers(address.host):
            raise OSError(errno.EADDRINUSE, "another process listens there")
        before = os.umask(0o117)  # for this user and group only, from its first moment
        try:
            return await asyncio.get_running_loop().create_unix_server(
                lambda: StreamPipe(self._stream, write_buffer=limits.write_buffer), address.host, backlog=512
            )
        finally:
            os.umask(before)

    async def _serve_stream(self, address: Address, sock: socket.socket | None) -> Server:
        limits = self._settings.limits
        tls: dict[str, Any] = {}
        if address.tls and self._tls:
            tls = {
                "ssl": self._tls.context,
                "ssl_handshake_timeout": limits.connect_timeout,
                "ssl_shutdown_timeout": 2.0,
            }
        return await asyncio.get_running_loop().create_server(
            lambda: StreamPipe(self._stream, write_buffer=limits.write_buffer),
            **_place(address, sock),
            backlog=512,
            **tls,
        )

    async def _serve_web(self, address: Address, sock: socket.socket | None) -> Server:
        limits = self._settings.limits
        return await websockets.asyncio.server.serve(
            lambda socket: self._web(socket, str(address)),
            **_place(address, sock),
            ssl=self._tls.context if address.tls and self._tls else None,
            subprotocols=[Subprotocol("mqtt")],
            origins=self._origins(),
            compression=None,  # frames are small, and large ones are compressed by those who send them
            max_size=2 * limits.max_packet,
            open_timeout=limits.connect_timeout,
            ping_interval=None,  # MQTT has its own keep-alive
            close_timeout=2.0,
            server_header=None,
            logger=_quiet(),
        )

    def _origins(self) -> list[Origin | re.Pattern[str] | None] | None:
        """Which web pages may connect; programs that are no browser send no origin."""
        allowed: list[Origin | re.Pattern[str] | None] = [Origin(origin) for origin in self._settings.origins]
        if not allowed and not self._settings.lets_strangers_in:
            return None
        return [None, _OWN_PAGES, *allowed]

    def _certificates(self) -> ServerTLS:
        settings = self._settings
        assert settings.certfile is not None
        return ServerTLS(settings.certfile, settings.keyfile, settings.client_ca, required=settings.require_certificate)

    def certificate_days(self) -> float | None:
        """Days until the certificate ends; None if there is none, or the clock is not set."""
        return None if self._tls is None else self._tls.days_left()

    def reload(self) -> None:
        """Use the certificate files as they are now."""
        if self._tls is not None:
            self._tls.reload()

    def review(self) -> None:
        """Use certificate files that changed; warn before one ends."""
        if self._tls is not None:
            self._tls.review()


def _place(address: Address, sock: socket.socket | None) -> dict[str, Any]:
    return {"host": address.host, "port": address.port} if sock is None else {"sock": sock}


def _bound(address: Address, server: Server) -> Iterable[Address]:
    for sock in server.sockets:
        if sock.family == socket.AF_UNIX:
            yield Address("unix", str(sock.getsockname()), 0)
        else:
            yield Address(address.scheme, *sock.getsockname()[:2])


def _answers(path: str) -> bool:
    """Whether a living process listens on a socket in the file system."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _why(address: Address, error: OSError) -> str:
    holder = holder_of(address.port) if address.port else None
    taken = f"; {holder} listens there" if holder else ""
    # asyncio's own text says where once more.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return f"cannot listen on {address}: {reason}{taken}. Stop it or choose another port"


def _quiet() -> logging.Logger:
    """Failed handshakes of port scanners are no news."""
    logger = logging.getLogger("agentmqtt.broker.websocket")
    logger.setLevel(logging.CRITICAL)
    return logger
