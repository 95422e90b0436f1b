"""A TCP proxy in front of the broker: links can be cut, frozen without a word, or refused."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit

CHUNK = 65_536


class Proxy:
    """`async with Proxy("mqtt://127.0.0.1:1883") as proxy`: clients connect to `proxy.url`."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._frozen = False
        self._refuses = False

    @property
    def url(self) -> str:
        """Where clients connect."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"mqtt://{host}:{port}"

    @property
    def links(self) -> frozenset[asyncio.Task[None]]:
        """Connections right now; each is done when it has ended."""
        return frozenset(self._links)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._end_links()

    async def cut(self) -> None:
        """Every link breaks, and new ones are refused until `heal`."""
        self._refuses = True
        await self._end_links()

    def freeze(self) -> None:
        """Every link stays up, and what is sent vanishes until `heal`: a half-open connection."""
        self._frozen = True

    async def drop(self) -> None:
        """Every link breaks; new ones work at once."""
        await self._end_links()

    async def heal(self) -> None:
        """Links work. What was frozen is gone: its clients find a broken connection."""
        if self._frozen:
            await self._end_links()
        self._refuses = self._frozen = False

    async def _end_links(self) -> None:
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        link = asyncio.current_task()
        assert link is not None
        link.set_name("agentmqtt conformance link")
        self._links.add(link)
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            return  # a cut link is what this is for
        finally:
            self._links.discard(link)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = urlsplit(self.target)
        far_reader, far_writer = await asyncio.open_connection(there.hostname, there.port)
        ways = [
            asyncio.create_task(self._copy(reader, far_writer), name="agentmqtt conformance up"),
            asyncio.create_task(self._copy(far_reader, writer), name="agentmqtt conformance down"),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if not self._frozen:
                    writer.write(data)
                    await writer.drain()
