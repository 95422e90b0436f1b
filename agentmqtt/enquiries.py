"""What a process asks the journal about runs, and what it says when nobody answers (PROTOCOL §8)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable

from agentmqtt import wire
from agentmqtt.errors import AgentMQTTError, NoJournal, Unreachable
from agentmqtt.frames import (
    CommandList,
    Describe,
    ListCommands,
    Listing,
    ListRuns,
    ListWatchers,
    PendingCommand,
    Row,
    Status,
    WatcherList,
    WatcherRow,
)
from agentmqtt.names import Topics
from agentmqtt.options import ClientOptions
from agentmqtt.session import Session
from agentmqtt.transport.base import Transport

Answer = Status | Listing | CommandList | WatcherList


class Enquiries:
    """The asking half of a client."""

    options: ClientOptions
    topics: Topics
    client_id: str
    session: Session

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._requests = secrets.randbelow(2**31)
        self._journal_lives = False

    def publish(self, topic: str, payload: bytes) -> bool:
        """Send if there is a connection; False if there is none. Nothing is kept."""
        return self.session.publish(topic, payload) is not None

    async def status(self, name: str) -> Status:
        """The state of a run, now.

        Raises:
            NoJournal: no journal answered in time.
            BadName: no topic can carry it.
        """
        topic = self.topics.req(name, self.client_id)
        answer = await self._ask(lambda request: (topic, wire.encode(Describe(request, name))))
        assert isinstance(answer, Status)
        return answer

    async def runs(self) -> AsyncIterator[Row]:
        """Every run that the journal knows, in order of name. Raises NoJournal."""
        after, more = "", True
        while more:
            page = await self._list(after)
            for row in page.rows:
                yield row
            more = page.more and bool(page.rows)
            after = page.rows[-1].workflow if page.rows else after

    async def commands(self, name: str) -> tuple[PendingCommand, ...]:
        """The commands of a run that have no outcome yet, in order. Raises NoJournal, BadName."""
        topic = self.topics.req(name, self.client_id)
        answer = await self._ask(lambda request: (topic, wire.encode(ListCommands(request, name))))
        assert isinstance(answer, CommandList)
        return answer.rows

    async def watched_by(self, name: str) -> tuple[WatcherRow, ...]:
        """Who watches a run now: client IDs, and since when. Raises NoJournal, BadName."""
        topic = self.topics.req(name, self.client_id)
        answer = await self._ask(lambda request: (topic, wire.encode(ListWatchers(request, name))))
        assert isinstance(answer, WatcherList)
        return answer.rows

    async def require_journal(self) -> None:
        """Raises NoJournal or LinkError unless a journal answers."""
        await self._list("", limit=1)

    async def _list(self, after: str, limit: int = 100) -> Listing:
        topic = self.topics.client_req(self.client_id)
        answer = await self._ask(lambda request: (topic, wire.encode(ListRuns(request, after, limit))))
        assert isinstance(answer, Listing)
        return answer

    async def _ask(self, make: Callable[[int], tuple[str, bytes]]) -> Answer:
        """Ask the journal until it answers, once a second."""
        self._requests += 1
        request = self._requests
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[request] = future
        try:
            async with asyncio.timeout(self.options.patience):
                await self.session.connected()
                while not future.done():
                    self.publish(*make(request))
                    await asyncio.wait((future,), timeout=1.0)
                return future.result()
        except TimeoutError:
            raise self._nobody() from None
        finally:
            del self._answers[request]

    def _nobody(self) -> AgentMQTTError:
        where = self._transport.describe()
        if not self.session.up and self.session.last_error is not None:
            error = self.session.last_error
            return error if isinstance(error, AgentMQTTError) else NoJournal(f"no link to {where}: {error}")
        if not self.session.up:
            return Unreachable(f"{where} did not answer within {self.options.patience:g} s; check address and network")
        if self._journal_lives:
            return NoJournal(
                f"the journal on {where} lives, but did not answer: it is busy, or this login may not ask it that"
            )
        return NoJournal(f"no journal answers on {where}; start one with: agentmqtt journal --broker {where}")

    def _answered(self, message: Answer) -> None:
        future = self._answers.get(message.request)
        if future is not None and not future.done():
            future.set_result(message)

    def _give_up(self) -> None:
        for future in self._answers.values():
            future.cancel()
