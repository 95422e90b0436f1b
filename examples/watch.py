"""A watcher: `python examples/watch.py report-42 [MESSAGE]`. Kill it, start it again: it goes on where it was."""

import asyncio
import sys

import agentmqtt


async def main(name: str, message: str = "") -> None:
    async with agentmqtt.connect() as client, client.watch(name) as run:
        if message:
            receipt = await run.send(message)
            print("the message is", receipt.state)
        async for event in run:
            match event:
                case agentmqtt.Event(type="text"):
                    print(event.data, end="", flush=True)
                case agentmqtt.Event(type="am.end"):
                    return
                case _:
                    print(event)


asyncio.run(main(*sys.argv[1:]))
