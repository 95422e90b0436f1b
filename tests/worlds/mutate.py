"""Plant faults in the core one by one and see who notices: `python -m tests.worlds.mutate`.

Each fault runs in a process of its own, in which one module of the core is read with one text replaced.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.worlds.faults import FAULTS, Fault
from tests.worlds.mended import ONCE, PINNED, PINS

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "WORLDS.md"
BEGIN, END = "<!-- faults -->\n", "<!-- /faults -->\n"


class Patched(importlib.machinery.SourceFileLoader):
    """Reads a module with one text replaced."""

    def __init__(self, name: str, path: str, fault: Fault) -> None:
        super().__init__(name, path)
        self._fault = fault

    def get_code(self, fullname: str) -> Any:
        source = Path(self.path).read_text(encoding="utf-8")
        if source.count(self._fault.old) != 1:
            raise ValueError(f"{self._fault.name!r}: its text is {source.count(self._fault.old)} times in {self.path}")
        return compile(source.replace(self._fault.old, self._fault.new), self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    """Finds the one module that has a fault."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._name = f"agentmqtt.core.{fault.module}"

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> Any:
        if fullname != self._name:
            return None
        file = str(ROOT / "agentmqtt" / "core" / f"{self._fault.module}.py")
        return importlib.util.spec_from_loader(fullname, Patched(fullname, file, self._fault))


class Verdict(NamedTuple):
    """`kind` is empty if nobody noticed in `seeds` worlds."""

    name: str
    kind: str
    seeds: int


def one(name: str, seeds: int, first: int) -> Verdict:
    """Run worlds with this fault until somebody notices. In this process, before the core is imported."""
    fault = next(fault for fault in (*FAULTS, *ONCE) if fault.name == name)
    sys.meta_path.insert(0, Finder(fault))
    runner = importlib.import_module("tests.worlds.__main__")
    for count in range(seeds):
        seed = first + count
        violations, _ = runner.judge(seed, runner.profile_of(seed, fault.profile))
        if violations:
            return Verdict(name, runner.kind_of(violations[0]), count + 1)
    return Verdict(name, "", seeds)


def child(name: str, seeds: int, first: int) -> Verdict:
    command = [sys.executable, "-m", "tests.worlds.mutate", "--one", name, "--seeds", str(seeds), "--first", str(first)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    verdict = Verdict(*json.loads(done.stdout))
    print(f"  {verdict.seeds:6} {verdict.kind or 'NOBODY NOTICED':60} {verdict.name}", flush=True)
    return verdict


def table(verdicts: Sequence[Verdict]) -> str:
    """The table of docs/WORLDS.md."""
    rows = ["| fault planted in the core | noticed by | worlds |", "|---|---|---|"]
    rows += [f"| {v.name} | {v.kind or '**nobody**'} | {v.seeds} |" for v in verdicts]
    killed = sum(bool(v.kind) for v in verdicts)
    return "\n".join([f"{killed} of {len(verdicts)} faults are noticed.", "", *rows, ""])


def _write(text: str) -> None:
    page = TABLE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    TABLE.write_text(head + BEGIN + text + END + tail, encoding="utf-8")


def pin(jobs: int, seeds: int) -> int:
    """Look for a new seed of every mended fault whose pinned world does not show it any more. 1 if one has none."""
    with ThreadPoolExecutor(jobs) as pool:
        shown = pool.map(lambda fault: child(fault.name, 1, PINNED.get(fault.name, 0)), ONCE)
        dull = [verdict.name for verdict in shown if not verdict.kind]
        found = list(pool.map(lambda name: child(name, seeds, 0), dull))
    seeds_of = {verdict.name: verdict.seeds - 1 for verdict in found if verdict.kind}
    kept = {fault.name: seeds_of.get(fault.name, PINNED.get(fault.name, 0)) for fault in ONCE}
    PINS.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return 0 if len(seeds_of) == len(dull) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.worlds.mutate")
    parser.add_argument("--one", default="")
    parser.add_argument("--only", default="", help="faults whose name holds this")
    parser.add_argument("--seeds", type=int, default=8000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the table to docs/WORLDS.md")
    parser.add_argument("--pin", action="store_true", help="find new seeds for mended faults that theirs do not show")
    args = parser.parse_args()
    if args.pin:
        return pin(args.jobs, args.seeds)
    if args.one:
        print(json.dumps(one(args.one, args.seeds, args.first)))
        return 0
    names = [fault.name for fault in (*FAULTS, *ONCE) if args.only in fault.name]
    with ThreadPoolExecutor(args.jobs) as pool:
        verdicts = list(pool.map(lambda name: child(name, args.seeds, args.first), names))
    if args.write:
        _write(table(verdicts))
    return 0 if sum(not v.kind for v in verdicts) <= len(verdicts) // 15 else 1


if __name__ == "__main__":
    sys.exit(main())
