"""A zombie: SIGSTOP the owner, let another take over, SIGCONT the first (P5, S30)."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rounds.harness import Process, items
from tests.servers import free_port, mosquitto


def until(done: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def numbers(database: Path) -> tuple[list[tuple[int, int]], int]:
    """What a reader shows: (epoch, number), and how often it was rewound."""
    shown: list[tuple[int, int, int]] = []
    rewinds = 0
    for epoch, n, kind, data in items(str(database)):
        if kind == "Rewound":
            rewinds += 1
            shown = [event for event in shown if event[:2] <= (epoch, n)]
        elif kind == "step":
            shown.append((epoch, n, json.loads(data)))
    return [(epoch, number) for epoch, _, number in shown], rewinds


@pytest.mark.timeout(120)
@pytest.mark.parametrize("broker", ["bundled", pytest.param("mosquitto", marks=pytest.mark.slow)])
def test_a_zombie_is_fenced_and_nobody_keeps_its_output(broker: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(mosquitto()) if broker == "mosquitto" else None
        port = server.port if server else free_port()
        url, log = f"mqtt://127.0.0.1:{port}", tmp_path / "log.txt"
        kind = "journal" if server else "bundled"
        place = Process(["-m", "tests.rounds.place", kind, str(port), str(tmp_path)], log, ready=True)
        readers = [
            Process(
                [
                    *("-m", "tests.rounds.reader", url, str(tmp_path / f"{mode}.db"), "z"),
                    *(str(tmp_path / f"{mode}.sqlite"), *(["--stored"] if mode == "stored" else [])),
                ],
                log,
            )
            for mode in ("live", "stored")
        ]
        agents = [
            Process(
                [
                    *("-m", "tests.rounds.agent", url, str(tmp_path / f"{who}.db"), "z", str(tmp_path / f"{who}.txt")),
                    *("--stop", str(tmp_path / "stop"), *(["--takeover"] if who == "second" else [])),
                ],
                tmp_path / f"{who}.log",
            )
            for who in ("first", "second")
        ]
        for process in (place, *agents, *readers):
            stack.callback(process.kill)
        place.start()
        for process in readers:
            process.start()
        first, second = agents
        first.start()
        until(lambda: "stored" in _read(tmp_path / "first.txt"))
        first.signal(signal.SIGSTOP)
        second.start()
        until(lambda: "stored" in _read(tmp_path / "second.txt"))
        first.signal(signal.SIGCONT)
        assert first.wait(30) != 0
        assert "Fenced" in _read(tmp_path / "first.log")
        (tmp_path / "stop").touch()
        for process in (second, *readers):
            assert process.wait(30) == 0
        live, _ = numbers(tmp_path / "live.sqlite")
        stored, rewinds = numbers(tmp_path / "stored.sqlite")
        assert live == stored
        assert rewinds == 0
        taken = max(int(line.split()[1]) for line in _read(tmp_path / "second.txt").splitlines() if "emit" in line)
        assert [number for epoch, number in live if epoch == 2] == list(range(1, taken + 1))
        assert live == sorted(live)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
