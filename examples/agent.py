"""An agent: `python examples/agent.py report-42`. Kill it, start it again: it resumes by name."""

import asyncio
import sys

import agentmqtt


async def main(name: str) -> None:
    async with agentmqtt.connect() as client, client.own(name, retry="withdraw_attempt") as run:
        async with run.interruptible():
            for number in range(1, 101):
                await run.emit("text", f"word {number}\n")
                await asyncio.sleep(0.1)
        await run.end({"words": number})


asyncio.run(main(sys.argv[1]))
