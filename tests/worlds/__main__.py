"""Run worlds: `python -m tests.worlds --seeds 1000 --first 0 --profile all`."""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.worlds.checker import check
from tests.worlds.world import PROFILES, World


def judge(seed: int, profile: str) -> tuple[list[str], Counter[str]]:
    """Run one world. A crash of the code is a violation too."""
    world = World(seed, profile)
    try:
        return check(world.run()), world.hits
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [f"BUG {type(error).__name__} in {where.name}:{where.lineno}: {error}"], world.hits


def profile_of(seed: int, profile: str) -> str:
    return PROFILES[seed % len(PROFILES)] if profile == "mixed" else profile


Result = tuple[dict[str, list[tuple[int, str]]], Counter[str]]


def run(first: int, seeds: int, profile: str) -> Result:
    """Violations by kind with their seeds, and how often each situation was reached."""
    found: dict[str, list[tuple[int, str]]] = {}
    hits: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        violations, reached = judge(seed, profile_of(seed, profile))
        hits.update(reached)
        for kind in dict.fromkeys(kind_of(text) for text in violations):
            found.setdefault(kind, []).append((seed, next(t for t in violations if kind_of(t) == kind)))
    return found, hits


def kind_of(text: str) -> str:
    """The violation without its numbers."""
    head = text.partition(":")[0].partition(" (")[0]
    return head[:3] + re.sub(r"[0-9.]+", "N", head[3:])[:70]


def parallel(first: int, seeds: int, profile: str, jobs: int) -> Result:
    if jobs == 1:
        return run(first, seeds, profile)
    found: dict[str, list[tuple[int, str]]] = {}
    hits: Counter[str] = Counter()
    step = max(1, min(250, seeds // jobs))
    starts = range(first, first + seeds, step)
    counts = [min(step, first + seeds - start) for start in starts]
    with ProcessPoolExecutor(jobs) as pool:
        for part, reached in pool.map(run, starts, counts, [profile] * len(counts)):
            hits.update(reached)
            for kind, seen in part.items():
                found.setdefault(kind, []).extend(seen)
    return found, hits


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.worlds")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--profile", choices=[*PROFILES, "mixed"], default="mixed")
    parser.add_argument("--reach", action="store_true", help="print how often each situation was reached")
    args = parser.parse_args()
    began = time.perf_counter()
    found, hits = parallel(args.first, args.seeds, args.profile, args.jobs)
    violating = {seed for seen in found.values() for seed, _ in seen}
    took = time.perf_counter() - began
    print(f"{args.seeds} worlds from {args.first} ({args.profile}): {len(violating)} violating, {took:.1f} s")
    for kind, seen in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"  {len(seen):6} {kind}\n         seed {seen[0][0]}: {seen[0][1]}")
    if args.reach:
        print("".join(f"  {count:8} {name}\n" for name, count in sorted(hits.items())), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
