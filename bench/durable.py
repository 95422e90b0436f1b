"""`python -m bench.durable`: QoS 1 through the bundled broker over TCP, with and without a disk behind every PUBACK.

Publishers and subscribers run in this process, so the figures are what this client can do at most; what
counts is the ratio of the two sides of one round. Each round runs both, in a shuffled order.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from pathlib import Path

from tests.broker.kill import Publisher, Subscriber, scratch, until
from tests.servers import free_port

SIDES = ("memory", "disk", "disk, subscriber away")


async def once(side: str, folder: Path, publishers: int, count: int) -> float:
    """Acknowledged messages per second."""
    port = free_port()
    path = "" if side == "memory" else str(folder / f"{port}.db")
    command = [sys.executable, "-m", "tests.broker.serve", path, str(port)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    subscriber = Subscriber(port, "reader", 1)
    crowd = [Counted(port, digit, count) for digit in range(1, publishers + 1)]
    try:
        assert child.stdout is not None
        await child.stdout.readline()
        subscriber.start()
        await until(lambda: subscriber.subscribed)
        if side.endswith("away"):
            await subscriber.stop()
        start = time.perf_counter()
        for publisher in crowd:
            publisher.start()
        await until(lambda: all(publisher.done for publisher in crowd))
        return publishers * count / (time.perf_counter() - start)
    finally:
        for client in (subscriber, *crowd):
            if client.task is not None:
                await client.stop()
        child.kill()
        await child.wait()


class Counted(Publisher):
    """Publishes `limit` messages, none retained."""

    def __init__(self, port: int, digit: int, limit: int) -> None:
        super().__init__(port, digit, 1, clean=True)
        self.limit = limit

    @property
    def done(self) -> bool:
        return self.count >= self.limit and not self.open

    def message(self, pid: int, number: int, *, dup: bool = False) -> bytes:
        self.goes_on = number < self.limit
        return super().message(pid, 10 * number + 1, dup=dup)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.durable", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--count", type=int, default=5_000)
    args = parser.parse_args()
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    with scratch() as folder:
        for _ in range(args.rounds):
            for side in random.sample(SIDES, len(SIDES)):
                found[side].append(asyncio.run(once(side, folder, args.publishers, args.count)))
    for side, rates in found.items():
        ratio = statistics.median(rate / memory for rate, memory in zip(rates, found["memory"], strict=True))
        print(f"{side:24} {statistics.median(rates):8.0f} msg/s acknowledged, {ratio:.2f} of memory")


if __name__ == "__main__":
    main()
