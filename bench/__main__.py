"""`./dev bench latency|tokens [--broker bundled|mosquitto] [--rounds N] [--json]`.

Each round runs every side once, in a shuffled order, on the same broker. What counts is the ratio to
raw MQTT QoS 1 of the same round: median and range over the rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.place import place, scratch

SIDES = ("raw", "ours", "stored")


def once(side: str, url: str, folder: Path, name: str, count: int, rate: float) -> dict[str, float]:
    """One source and one reader; milliseconds and tokens per second."""

    def start(role: str) -> subprocess.Popen[str]:
        args = [side, role, url, str(folder / f"{name}-{role}.db"), name, str(count), str(rate)]
        return subprocess.Popen([sys.executable, "-m", "bench.roles", *args], stdout=subprocess.PIPE, text=True)

    with start("reader") as reader:
        if reader.stdout is None or reader.stdout.readline() != "ready\n":
            raise RuntimeError(f"the reader of {side} did not start")
        with start("source") as source:
            seconds = float(source.communicate(timeout=300)[0])
        heard = json.loads(reader.communicate(timeout=300)[0])
    latencies = heard["latencies"]
    return {
        "p50_ms": latencies[len(latencies) // 2] / 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] / 1000,
        "acknowledged_per_s": count / seconds,
        "shown_per_s": count / max(heard["seconds"], 1e-9),
    }


def measure(broker: str, rounds: int, count: int, rate: float) -> list[dict[str, dict[str, float]]]:
    """Every side once a round, in a shuffled order."""
    found = []
    with place(broker) as url, scratch() as folder:
        for number in range(rounds):
            order = random.sample(SIDES, len(SIDES))
            found.append({side: once(side, url, folder, f"{side}-{number}", count, rate) for side in order})
            print(f"round {number + 1} of {rounds}: {order}", file=sys.stderr)
    return found


def summary(found: list[dict[str, dict[str, float]]], figures: tuple[str, ...]) -> dict[str, Any]:
    """Median of each figure, and median, least and most of its ratio to raw."""
    result: dict[str, Any] = {}
    for side in SIDES:
        for figure in figures:
            values = [round_[side][figure] for round_ in found]
            ratios = sorted(round_[side][figure] / round_["raw"][figure] for round_ in found)
            result[f"{side} {figure}"] = {
                "median": round(statistics.median(values), 3),
                "ratio": round(statistics.median(ratios), 2),
                "least": round(ratios[0], 2),
                "most": round(ratios[-1], 2),
            }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("name", choices=["latency", "tokens"])
    parser.add_argument("--broker", choices=["bundled", "mosquitto"], default="bundled")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    latency = args.name == "latency"
    count, rate = args.count or (500 if latency else 20_000), 100.0 if latency else 0.0
    figures = ("p50_ms", "p99_ms") if latency else ("acknowledged_per_s", "shown_per_s")
    result = summary(measure(args.broker, args.rounds, count, rate), figures)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    what = "100 tokens/s, one run" if latency else f"{count} tokens as fast as they are taken, one run, a live reader"
    print(f"{args.name} on {args.broker}: {what}, {args.rounds} rounds; ratio to raw MQTT QoS 1 of the same round")
    for label, row in result.items():
        print(f"{label:28} {row['median']:>12} {row['ratio']:>8} x ({row['least']} to {row['most']})")


if __name__ == "__main__":
    main()
