"""Everything may die: `./dev demo [--broker mosquitto]`.

A broker, a program under `agentmqtt run` and two watchers, each a process of its own. A watcher, the
agent and the broker are killed with SIGKILL in the middle of traffic and started again by name. At the
end every watcher's file must hold what the surviving attempt wrote, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

NAME = "demo run"
COUNT, PAUSE = 320, 0.025
PATIENCE = 20.0
BEGAN = time.monotonic()


def tell(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:5.1f} s  {text}", flush=True)


class Process:
    """A command that can be killed and started again."""

    def __init__(self, label: str, folder: Path, *command: str | Path) -> None:
        self.label, self.command = label, [str(word) for word in command]
        self.output, self.errors = folder / f"{label}.out", folder / f"{label}.err"
        self.environment = os.environ | {"AGENTMQTT_STATE_DIR": str(folder / "state")}
        self.start()

    def start(self) -> None:
        with self.output.open("wb") as out, self.errors.open("ab") as err:
            self.popen = subprocess.Popen(self.command, stdout=out, stderr=err, env=self.environment)

    def kill(self, why: str = "") -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()
        tell(f"kill -9  {self.label} (PID {self.popen.pid}) {why}")

    def again(self, how: str) -> None:
        self.start()
        tell(f"start    {self.label} again, {how} (PID {self.popen.pid})")

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(5)
            except subprocess.TimeoutExpired:
                self.popen.kill()


def agentmqtt(label: str, folder: Path, *words: str | Path) -> Process:
    return Process(label, folder, sys.executable, "-m", "agentmqtt", *words)


def wait(what: str, true: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"demo: {what} did not happen within {patience:g} s")
        time.sleep(0.02)


# ---- brokers


class Bundled:
    """`agentmqtt broker`, with its journal in the same process."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        state, listen = folder / "broker", f"127.0.0.1:{self.port}"
        self.processes = [agentmqtt("broker", folder, "broker", "--state", state, "--listen", listen)]
        self.ready()

    def ready(self) -> None:
        last = self.processes[-1]
        wait(f"the word `ready` of the {last.label}", lambda: b"ready" in last.output.read_bytes())

    def restart(self) -> None:
        for process in self.processes:
            process.kill()
        time.sleep(0.5)
        for process in self.processes:
            process.again("on the same port and state")
            wait(f"the port of the {process.label}", lambda: answers(self.port))
        self.ready()


class Mosquitto(Bundled):
    """mosquitto, and `agentmqtt journal` beside it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        binary = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if binary is None:
            sys.exit("demo: mosquitto is not installed; install it, or run the demo without --broker")
        config = folder / "mosquitto.conf"
        config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        self.processes = [Process("mosquitto", folder, binary, "-c", config)]
        wait("mosquitto's port", lambda: answers(self.port))
        url = f"mqtt://127.0.0.1:{self.port}"
        self.processes.append(agentmqtt("journal", folder, "journal", "--broker", url, "--state", folder / "journal"))
        self.ready()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


# ---- what a watcher holds


def items(file: Path) -> list[dict[str, object]]:
    whole, _, _ = file.read_bytes().rpartition(b"\n") if file.exists() else (b"", b"", b"")
    return [json.loads(line) for line in whole.splitlines()]


def place(cursor: object) -> tuple[int, ...]:
    return tuple(int(part) for part in str(cursor).split("."))


def fold(file: Path) -> Iterator[dict[str, object]]:
    """The events that count: a rewind takes back what came after its cursor."""
    kept: list[dict[str, object]] = []
    for item in items(file):
        if "gap" in item:
            sys.exit(f"demo: {file} has a gap: {item}")
        elif "rewound" in item:
            kept = [event for event in kept if place(event["cursor"]) <= place(item["rewound"])]
        else:
            kept.append(item)
    return iter(kept)


def text(file: Path) -> bytes:
    return "".join(str(event["data"]) for event in fold(file) if event["type"] == "text").encode()


def count(data: bytes) -> int:
    return data.count(b"\n")


def ended(file: Path) -> bool:
    last = items(file)[-1:]
    return bool(last) and last[0].get("type") == "am.end"


# ---- the story


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=["bundled", "mosquitto"], default="bundled")
    broker = {"bundled": Bundled, "mosquitto": Mosquitto}[parser.parse_args().broker]
    processes: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="agentmqtt-demo-") as folder:
        try:
            sys.exit(story(Path(folder), broker, processes))
        finally:
            for process in processes:
                process.end()


def story(folder: Path, kind: type[Bundled], processes: list[Process]) -> int:
    broker = kind(folder)
    processes += broker.processes
    tell(f"ready    {' and '.join(process.label for process in processes)} on port {broker.port}")
    os.environ["AGENTMQTT_BROKER"] = f"mqtt://127.0.0.1:{broker.port}"
    record = folder / "record"
    files = [folder / "watcher-1.jsonl", folder / "watcher-2.jsonl"]
    watchers = [
        agentmqtt(f"watcher-{number}", folder, "watch", NAME, "--until-end", "--into", file)
        for number, file in enumerate(files, 1)
    ]
    program = [sys.executable, Path(__file__).with_name("tokens.py"), str(COUNT), str(PAUSE), record]
    agent = agentmqtt("agent", folder, "run", NAME, "--", *program)
    processes += [*watchers, agent]
    tell(f"start    two watchers, and an agent: a program that prints {COUNT} lines")
    trouble(broker, agent, watchers, files)
    wait("the end of the run", lambda: agent.popen.poll() is not None)
    wait("the end at every watcher", lambda: all(ended(file) for file in files))
    return verdict(record, files)


def trouble(broker: Bundled, agent: Process, watchers: list[Process], files: list[Path]) -> None:
    """Each kill comes in the middle of traffic."""

    def seen(lines: int) -> None:
        wait(f"line {lines} at every watcher", lambda: all(count(text(file)) >= lines for file in files))

    seen(40)
    watchers[0].kill(f"after {count(text(files[0]))} lines")
    seen_by_second(files[1], 70)
    watchers[0].again("by name")
    seen(100)
    agent.kill(f"after {count(text(files[0]))} lines; its program dies with it")
    agent.again("by name")
    wait("the withdrawal", lambda: all(count(text(file)) < 100 for file in files))
    tell("         the broken attempt is withdrawn at both watchers; the second one begins")
    seen(120)
    broker.restart()
    seen(160)
    tell("         both watchers follow again")


def seen_by_second(file: Path, lines: int) -> None:
    wait(f"line {lines} at the second watcher", lambda: count(text(file)) >= lines)


def verdict(record: Path, files: list[Path]) -> int:
    truth = record.read_bytes()
    print()
    show("the program's record", truth)
    for file in files:
        show(file.stem, text(file))
    rewinds = [sum("rewound" in item for item in items(file)) for file in files]
    exact = count(truth) == COUNT and all(text(file) == truth for file in files)
    print(f"\n{'EXACT' if exact else 'NOT EXACT'}: 3 kills, {rewinds[0]} and {rewinds[1]} rewinds, no gap")
    return 0 if exact else 1


def show(label: str, data: bytes) -> None:
    print(f"{label:>20}  {count(data)} lines  {len(data)} bytes  sha256 {hashlib.sha256(data).hexdigest()[:32]}")


if __name__ == "__main__":
    main()
