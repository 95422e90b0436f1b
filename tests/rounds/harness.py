"""Kill rounds: agent, two watchers, journal and broker as processes; kill -9 at random moments; then compare.

    python -m tests.rounds.harness --broker bundled --rounds 20 --seed 1

The verdict reads only what the roles wrote down: the agent's record, the watchers' databases.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.servers import Mosquitto, free_port, mosquitto

STARTUP = 20.0


@dataclasses.dataclass
class Verdict:
    """What one series of rounds showed."""

    kills: Counter[str] = dataclasses.field(default_factory=Counter)
    emitted: int = 0
    receipted: int = 0
    unreceipted_kills: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    events: int = 0
    gaps: int = 0
    rewinds: int = 0
    epochs: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.disordered or self.problems)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {who}" for who, count in sorted(self.kills.items()))
        return (
            f"kills: {kills}; {self.unreceipted_kills} with events on their way; epochs {self.epochs}; "
            f"emitted {self.emitted}, receipted {self.receipted}, shown {self.events} to the watchers; "
            f"rewinds {self.rewinds}, gaps {self.gaps}; "
            f"lost {self.lost}, doubled {self.doubled}, out of order {self.disordered}"
        )


class Process:
    """One role as a process that can be started again."""

    def __init__(self, args: Sequence[str], log: Path, *, ready: bool = False) -> None:
        self.args, self.log, self._ready = args, log, ready
        self.child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        out = subprocess.PIPE if self._ready else subprocess.DEVNULL
        with self.log.open("a") as log:
            self.child = subprocess.Popen([sys.executable, *self.args], stdout=out, stderr=log, text=True)
        if self._ready:
            assert self.child.stdout is not None
            if self.child.stdout.readline() != "ready\n":
                raise RuntimeError(f"{self.args} did not start:\n{self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            if self.child.stdout is not None:
                self.child.stdout.close()

    def wait(self, timeout: float) -> int:
        assert self.child is not None
        return self.child.wait(timeout)

    def signal(self, number: signal.Signals) -> None:
        assert self.child is not None
        self.child.send_signal(number)


class Rounds:
    """A series on one name. `broker` is bundled or mosquitto."""

    def __init__(self, folder: Path, broker: str, seed: int, *, pace: float = 0.002) -> None:
        self.folder, self.broker, self.dice = folder, broker, random.Random(seed)
        self.verdict = Verdict()
        self.record, self.stop = folder / "record.txt", folder / "stop"
        self.pace = pace
        self.server: Mosquitto | None = None

    def _cast(self, port: int) -> None:
        folder, log = self.folder, self.folder / "log.txt"
        url, name = f"mqtt://127.0.0.1:{port}", "kill/round"
        place = "bundled" if self.broker == "bundled" else "journal"
        self.place = Process(["-m", "tests.rounds.place", place, str(port), str(folder)], log, ready=True)
        agent = ["-m", "tests.rounds.agent", url, str(folder / "agent.db"), name, str(self.record)]
        self.agent = Process([*agent, "--stop", str(self.stop), "--pace", str(self.pace)], log)
        self.readers = [
            Process(
                ["-m", "tests.rounds.reader", url, str(folder / f"r{n}-state.db"), name, self.database(n), *extra], log
            )
            for n, extra in enumerate(([], ["--stored"]))
        ]

    def database(self, n: int) -> str:
        return str(self.folder / f"reader{n}.sqlite")

    def run(self, rounds: int) -> Verdict:
        """Start everything, kill `rounds` times, let it finish, and judge."""
        with mosquitto() if self.broker == "mosquitto" else contextlib.nullcontext() as server:
            self.server = server
            self._cast(server.port if server else free_port())
            try:
                self._run(rounds)
            finally:
                for process in (*self.readers, self.agent, self.place):
                    process.kill()
        return self.verdict

    def _run(self, rounds: int) -> None:
        self.place.start()
        for process in (self.agent, *self.readers):
            process.start()
        self._until_emitting(0)
        for _ in range(rounds):
            before = self._emitted()
            time.sleep(self.dice.uniform(0.05, 0.6))
            self._kill_one()
            self._until_emitting(before)
        self.stop.touch()
        for process in (self.agent, *self.readers):
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                self.verdict.problems.append(f"{process.args[1]} ended with {code}")
        self._judge()

    def _kill_one(self) -> None:
        who = self.dice.choice(["agent", "agent", "watcher", "stored watcher", "journal", "broker"])
        who = "broker" if who == "journal" and self.broker == "bundled" else who
        if self._emitted() > self._stored():
            self.verdict.unreceipted_kills += 1
        self.verdict.kills[who] += 1
        if who == "broker" and self.server is not None:
            self.server.restart()
            return
        process = {
            "agent": self.agent,
            "watcher": self.readers[0],
            "stored watcher": self.readers[1],
        }.get(who, self.place)
        process.kill()
        time.sleep(self.dice.uniform(0, 0.3))
        process.start()

    def _lines(self, word: str) -> list[int]:
        if not self.record.exists():
            return []
        lines = self.record.read_text().split("\n")[:-1]
        return [int(line.split()[1]) for line in lines if line.startswith(word + " ")]

    def _emitted(self) -> int:
        return max(self._lines("emit"), default=0)

    def _stored(self) -> int:
        return max(self._lines("stored"), default=0)

    def _receipted(self) -> set[int]:
        """Numbers of which their own process was told that they are stored."""
        receipted: set[int] = set()
        mine: list[int] = []
        for line in self.record.read_text().split("\n")[:-1]:
            word, number = line.split()[:2]
            if word == "epoch":
                mine = []
            elif word == "emit":
                mine.append(int(number))
            elif word in ("stored", "ended"):
                receipted.update(mine)
        return receipted

    def _until_emitting(self, before: int) -> None:
        """The agent goes on, and something more was stored: no manual step was needed."""
        deadline = time.monotonic() + STARTUP
        while self._emitted() <= before or self._stored() < before:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"stuck after {dict(self.verdict.kills)}: emitted {self._emitted()}, stored {self._stored()}, "
                    f"before {before}\n{(self.folder / 'log.txt').read_text()[-3000:]}"
                )
            time.sleep(0.02)

    def _judge(self) -> None:
        verdict = self.verdict
        receipted = self._receipted()
        verdict.emitted, verdict.receipted = len(self._lines("emit")), len(receipted)
        verdict.epochs = max(self._lines("epoch"), default=0)
        for n in range(len(self.readers)):
            self._judge_reader(n, receipted)

    def _judge_reader(self, n: int, receipted: set[int]) -> None:
        verdict = self.verdict
        shown: list[tuple[int, int, int]] = []
        for epoch, at, kind, data in items(self.database(n)):
            if kind == "Rewound":
                verdict.rewinds += 1
                if n == 1:
                    verdict.problems.append("a stored watcher was rewound")
                shown = [event for event in shown if event[:2] <= (epoch, at)]
            elif kind == "Gap":
                verdict.gaps += 1
            elif kind == "step":
                shown.append((epoch, at, int(data)))
        numbers = [number for _, _, number in shown]
        verdict.events += len(numbers)
        counts = Counter(numbers)
        verdict.doubled += sum(count - 1 for count in counts.values())
        verdict.disordered += sum(a >= b for a, b in itertools.pairwise(numbers))
        missing = sorted(receipted - set(counts))
        verdict.lost += len(missing)
        if missing:
            verdict.problems.append(f"reader {n} misses {missing[:5]} of {len(missing)}")


def items(database: str) -> list[tuple[int, int, str, str]]:
    """What a reader kept: epoch, number in it, kind, data."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        return db.execute("select epoch, n, kind, data from item order by id").fetchall()


def series(broker: str, rounds: int, seed: int, *, keep: bool = False) -> Verdict:
    """One series in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="rounds-"))
    try:
        return Rounds(folder, broker, seed).run(rounds)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=["bundled", "mosquitto"], default="bundled")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    verdict = series(args.broker, args.rounds, args.seed, keep=args.keep)
    print(verdict)
    for problem in verdict.problems:
        print("  ", problem)
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
