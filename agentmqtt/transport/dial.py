"""Open a byte stream to a broker: name look-up, the fastest of its addresses, TLS, WebSocket upgrade.

Nothing here uses the loop's default executor: a look-up that hangs holds up nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from agentmqtt.errors import UsageError
from agentmqtt.transport.pipe import Pipe
from agentmqtt.transport.url import Address
from agentmqtt.transport.websocket import WebSocket

HEAD_START = 0.25
"""Seconds one address may try alone before the next one starts too (RFC 8305)."""

T = TypeVar("T")
_Info: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: `ca` to trust instead of the system's, `cert` and `key` to show. `insecure` trusts anybody."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False

    def check(self) -> None:
        """Raises UsageError for a file that cannot be read, or a key without a certificate."""
        if self.key and not self.cert:
            raise UsageError("tls_key without tls_cert; give the certificate (PEM) that belongs to the key")
        for name, path in (("tls_ca", self.ca), ("tls_cert", self.cert), ("tls_key", self.key)):
            if path and not os.access(path, os.R_OK):
                raise UsageError(f"{name}: the file {path} cannot be read; give the path of a PEM file")

    def context(self) -> ssl.SSLContext:
        """Reads the files; may block. Raises UsageError for a file that is not PEM."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key, password=_no_password)
        except (ssl.SSLError, OSError) as exc:
            files = ", ".join(filter(None, (self.ca, self.cert, self.key)))
            raise UsageError(f"TLS files {files}: {exc}; give PEM files without a password") from exc
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class Dialer:
    """Opens streams to one address. One look-up at a time: attempts that come meanwhile share it."""

    def __init__(self, address: Address, tls: Tls) -> None:
        self._address, self._tls = address, tls
        self._lookup: Future[list[_Info]] | None = None
        self._context: ssl.SSLContext | None = None

    async def open(self, pipe_for: Callable[[WebSocket | None], Pipe]) -> Pipe:
        """A pipe that is ready for MQTT. Whatever it raises, and when cancelled, nothing stays open.

        Raises:
            OSError: the look-up, the connection or TLS failed.
            WebSocketError: the server does not upgrade.
            UsageError: a TLS file is not PEM.
        """
        address = self._address
        host = address.host if address.port in (80, 443) else address.place
        pipe = pipe_for(WebSocket(host, address.target) if address.websocket else None)
        try:
            await self._connect(pipe)
            await pipe.ready
        except BaseException:
            pipe.close()
            raise
        return pipe

    async def _connect(self, pipe: Pipe) -> None:
        loop, address = asyncio.get_running_loop(), self._address
        if address.scheme == "unix":
            await loop.create_unix_connection(lambda: pipe, address.path)
            return
        context = await self._tls_context() if address.tls else None
        sock = await _race(await self._resolve())
        host = address.host if context else None
        await loop.create_connection(lambda: pipe, sock=sock, ssl=context, server_hostname=host)
        pipe.tune(sock)

    async def _tls_context(self) -> ssl.SSLContext:
        context = self._context
        if context is None:  # reading the system's certificates takes tens of milliseconds
            self._context = context = await asyncio.wrap_future(_in_thread("agentmqtt-tls", self._tls.context))
        return context

    async def _resolve(self) -> list[_Info]:
        host, port = self._address.host, self._address.port
        with contextlib.suppress(socket.gaierror):
            return _getaddrinfo(host, port, socket.AI_NUMERICHOST)
        if self._lookup is None or self._lookup.done():
            self._lookup = _in_thread("agentmqtt-dns", lambda: _getaddrinfo(host, port, 0))
        return await asyncio.wrap_future(self._lookup)


def _getaddrinfo(host: str, port: int, flags: int) -> list[_Info]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except UnicodeError as exc:  # an empty or over-long label never reaches the resolver
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from exc


def _in_thread(name: str, work: Callable[[], T]) -> Future[T]:
    """Run `work` in a daemon thread of its own, which holds up neither an executor nor the end of the process."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on a waiter that gives up does not cancel it for the others

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:  # whoever awaits it gets it
            future.set_exception(exc)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def _race(infos: list[_Info]) -> socket.socket:
    """The first socket that connects. Each address starts when the one before failed or has had its head start."""
    errors: list[OSError] = []
    tasks: set[asyncio.Task[socket.socket]] = set()
    try:
        for i, info in enumerate(infos):
            tasks.add(asyncio.create_task(_attempt(info), name=f"dial[{info[4][0]}]"))
            last = i + 1 == len(infos)
            while tasks:
                done, _ = await asyncio.wait(
                    tasks, timeout=None if last else HEAD_START, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    if (winner := _outcome(task, errors)) is not None:
                        tasks.discard(task)
                        return winner
                tasks -= done
                if not done:
                    break
    finally:
        _drop(tasks)
    raise errors[0] if errors else OSError("the name has no address")


def _outcome(task: asyncio.Task[socket.socket], errors: list[OSError]) -> socket.socket | None:
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, OSError):
        raise error
    errors.append(error)
    return None


def _drop(tasks: set[asyncio.Task[socket.socket]]) -> None:
    for task in tasks:
        task.cancel()
        task.add_done_callback(_close_late)


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _attempt(info: _Info) -> socket.socket:
    family, kind, proto, _, address = info
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _no_password() -> str:
    """Without it OpenSSL would ask at the terminal and wait."""
    raise OSError("the key has a password")
