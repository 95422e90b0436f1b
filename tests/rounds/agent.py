"""An agent for kill rounds: emits numbered events for ever, and writes down what it was told is stored.

    python -m tests.rounds.agent URL STATE NAME RECORD [--takeover] [--pace SECONDS]

RECORD gets a line `stored N` after each flush and `begin N` at each start; N counts over all
processes, because an agent reads its own record to know where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from pathlib import Path

import agentmqtt
from agentmqtt.options import ClientOptions


def emitted_before(record: Path) -> int:
    """The highest number that was handed to `emit` by an earlier process."""
    lines = record.read_text().splitlines() if record.exists() else []
    return max((int(line.split()[1]) for line in lines if line.startswith("emit ")), default=0)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("state")
    parser.add_argument("name")
    parser.add_argument("record", type=Path)
    parser.add_argument("--takeover", action="store_true")
    parser.add_argument("--pace", type=float, default=0.002)
    parser.add_argument("--stop", type=Path)
    args = parser.parse_args()
    record = args.record.open("a", buffering=1)
    number = emitted_before(args.record)
    options = ClientOptions(keepalive=4, resend=0.5)
    async with agentmqtt.connect(args.url, state=args.state, options=options) as client:
        async with client.own(args.name, wait=60, takeover=args.takeover) as run:
            record.write(f"epoch {run.epoch} {os.getpid()}\n")
            while not args.stop.exists():
                for _ in range(random.randint(1, 30)):
                    number += 1
                    record.write(f"emit {number}\n")
                    await run.emit("step", number)
                if random.random() < 0.5:
                    last = number
                    await run.flush()
                    record.write(f"stored {last}\n")
                await asyncio.sleep(args.pace)
            await run.end({"last": number})
            record.write(f"ended {number}\n")


if __name__ == "__main__":
    asyncio.run(main())
