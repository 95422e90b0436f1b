"""Kill a real broker process under load and see that nothing acknowledged is lost.

`python -m tests.broker.kill --rounds 100` does by hand what the tests do shortly.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.broker import wire
from tests.servers import free_port

WINDOW = 50
"""Messages of one publisher without their acknowledgement."""


class Client:
    """Connects again and again until it is told to stop. One connection is one call of `talk`."""

    def __init__(self, port: int, name: str, *, clean: bool) -> None:
        self.port, self.name, self.clean = port, name, clean
        self.present = False
        self.task: asyncio.Task[None] | None = None
        self.writer: asyncio.StreamWriter | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.run(), name=self.name)

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def run(self) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self.once()
            await asyncio.sleep(0.02)

    async def once(self) -> None:
        reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            self.say(wire.connect(self.name, clean=self.clean))
            kind, body = await self.packet(reader)
            assert (kind, body[1]) == (0x20, 0)
            self.present = bool(body[0])
            self.arrived()
            while True:
                kind, body = await self.packet(reader)
                self.heard(kind >> 4, kind >> 1 & 3, body)
                await self.writer.drain()
        finally:
            self.writer.transport.abort()

    @staticmethod
    async def packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
        kind, size, shift, byte = (await reader.readexactly(1))[0], 0, 0, 128
        while byte & 128:
            byte = (await reader.readexactly(1))[0]
            size |= (byte & 127) << shift
            shift += 7
        return kind, await reader.readexactly(size)

    def say(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    def arrived(self) -> None: ...

    def heard(self, kind: int, qos: int, body: bytes) -> None: ...


class Publisher(Client):
    """Numbers its messages, and sends again what was not acknowledged. Every tenth is retained."""

    def __init__(self, port: int, digit: int, qos: int, *, clean: bool) -> None:
        super().__init__(port, f"w{digit}", clean=clean)
        self.digit, self.qos = digit, qos
        self.count = 0
        self.kept = 0
        self.goes_on = True
        self.open: dict[int, int] = {}
        self.received: set[int] = set()

    def arrived(self) -> None:
        for pid, number in self.open.items():
            self.say(wire.pubrel(pid) if pid in self.received else self.message(pid, number, dup=True))
        self.more()

    def message(self, pid: int, number: int, *, dup: bool = False) -> bytes:
        return wire.publish(f"t/{self.digit}", b"%d" % number, self.qos, pid, retain=number % 10 == 0, dup=dup)

    def more(self) -> None:
        while self.goes_on and len(self.open) < WINDOW:
            self.count += 1
            pid = self.count % 65_535 + 1
            self.open[pid] = self.count
            self.say(self.message(pid, self.count))

    def heard(self, kind: int, qos: int, body: bytes) -> None:
        pid = int.from_bytes(body[:2])
        if kind == 5:
            self.received.add(pid)
            self.say(wire.pubrel(pid))
        elif pid in self.open:
            number = self.open.pop(pid)
            self.kept = max(self.kept, number - number % 10 if number % 10 == 0 else self.kept)
            self.received.discard(pid)
            self.more()


class Subscriber(Client):
    """Subscribes once: later its session has to be there. Knows QoS 2."""

    def __init__(self, port: int, name: str, qos: int, *, clean: bool = False) -> None:
        super().__init__(port, name, clean=clean)
        self.qos = qos
        self.seen: dict[str, list[int]] = {}
        self.open: set[int] = set()
        self.subscribed = False

    def arrived(self) -> None:
        if self.subscribed:
            assert self.present, f"the session of {self.name} is lost"
        else:
            self.say(wire.subscribe(1, ("t/#", self.qos)))

    def heard(self, kind: int, qos: int, body: bytes) -> None:
        if kind == 9:
            self.subscribed = True
        elif kind == 6:
            self.open.discard(int.from_bytes(body))
            self.say(wire.pubcomp(int.from_bytes(body)))
        elif kind == 3:
            self.take(qos, body)

    def take(self, qos: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2])
        topic, pid = body[2:end].decode(), int.from_bytes(body[end : end + 2])
        if qos != 2 or pid not in self.open:
            self.seen.setdefault(topic, []).append(int(body[end + 2 :] if qos else body[end:]))
        if qos == 2:
            self.open.add(pid)
        if qos:
            self.say((wire.pubrec if qos == 2 else wire.puback)(pid))


class Trial:
    """One broker that is killed, its publishers and subscribers."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.file, self.port = folder / "broker.db", free_port()
        self.child: asyncio.subprocess.Process | None = None
        self.publishers = [
            Publisher(self.port, 1, 1, clean=True),
            Publisher(self.port, 2, 1, clean=False),
            Publisher(self.port, 3, 2, clean=False),
        ]
        self.subscribers = [Subscriber(self.port, "one", 1), Subscriber(self.port, "two", 2)]
        self.sleeper = Subscriber(self.port, "sleeper", 1)

    async def up(self) -> None:
        command = [sys.executable, "-m", "tests.broker.serve", str(self.file), str(self.port)]
        self.child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert self.child.stdout is not None
        assert await self.child.stdout.readline() == b"ready\n"

    async def down(self) -> None:
        assert self.child is not None
        self.child.kill()
        await self.child.wait()

    async def run(self, rounds: int) -> None:
        await self.up()
        try:
            await self.first_steps()
            for number in range(rounds):
                await asyncio.sleep(self.dice.uniform(0.05, 0.5))
                await self.down()
                await self.up()
                if number % 5 == 0:
                    await self.check_retained()
            await self.drain()
        finally:
            for client in (*self.publishers, *self.subscribers, self.sleeper):
                if client.task is not None:
                    await client.stop()
            await self.down()

    async def first_steps(self) -> None:
        for client in (*self.subscribers, self.sleeper):
            client.start()
        await until(lambda: all(client.subscribed for client in (*self.subscribers, self.sleeper)))
        await self.sleeper.stop()
        self.sleeper.task = None
        for publisher in self.publishers:
            publisher.start()

    async def check_retained(self) -> None:
        least = {f"t/{publisher.digit}": publisher.kept for publisher in self.publishers if publisher.kept}
        fresh = Subscriber(self.port, "fresh", 1, clean=True)
        fresh.start()
        await until(lambda: fresh.seen.keys() >= least.keys())
        assert all(max(fresh.seen[topic]) >= number for topic, number in least.items())
        await fresh.stop()

    async def drain(self) -> None:
        for publisher in self.publishers:
            publisher.goes_on = False
        await until(lambda: not any(publisher.open for publisher in self.publishers))
        self.sleeper.start()
        everyone = [*self.subscribers, self.sleeper]
        await until(lambda: all(self.has_all(client) for client in everyone))
        await asyncio.sleep(0.2)  # for what should not come
        for client in everyone:
            self.check(client)

    def has_all(self, client: Subscriber) -> bool:
        return all(p.count in client.seen.get(f"t/{p.digit}", ()) for p in self.publishers)

    def check(self, client: Subscriber) -> None:
        for publisher in self.publishers:
            seen = client.seen[f"t/{publisher.digit}"]
            assert list(dict.fromkeys(seen)) == list(range(1, publisher.count + 1)), (client.name, publisher.name)
            if client.qos == publisher.qos == 2:
                assert len(seen) == publisher.count


async def until(done: object, limit: float = 60.0) -> None:
    async with asyncio.timeout(limit):
        while not done():  # type: ignore[operator]
            await asyncio.sleep(0.02)


async def rounds(count: int, seed: int, folder: Path) -> int:
    """Kill `count` times; returns how many messages were acknowledged. AssertionError if one of them is not there."""
    trial = Trial(folder, seed)
    await trial.run(count)
    return sum(publisher.count for publisher in trial.publishers)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.kill", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args()
    start = time.monotonic()
    with scratch() as folder:
        total = asyncio.run(rounds(args.rounds, args.seed, folder))
    seconds = time.monotonic() - start
    print(f"seed {args.seed}: {args.rounds} kills, {total} messages acknowledged, 0 lost, in {seconds:.0f} s")


if __name__ == "__main__":
    main()
