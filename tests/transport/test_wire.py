"""What Wire changes in aiomqtt's client."""

from __future__ import annotations

import asyncio

import pytest

from agentmqtt.transport.base import Hello
from agentmqtt.transport.url import parse
from agentmqtt.transport.wire import V311, Wire


class Deaf:
    def message(self, *_: object) -> None: ...
    def puback(self, *_: object) -> None: ...
    def flushed(self) -> None: ...
    def ended(self, *_: object) -> None: ...


@pytest.mark.parametrize("moment", range(4))
async def test_a_cancellation_is_not_lost_when_the_answer_comes_in_the_same_moment(moment: int) -> None:
    wire = Wire(Hello("a" * 23, 20, lambda _: None), parse("mqtt://127.0.0.1"), V311, Deaf())
    answer, ended = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        await wire._wait_for(answer.wait(), 5)
        await ended.wait()

    task = asyncio.create_task(ask())
    await asyncio.sleep(0.001)
    answer.set()
    for _ in range(moment):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,), timeout=1)
    assert task.cancelled()
