"""The client of this library passes the cases that every client has to pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentmqtt.conformance import CASES

ROOT = Path(__file__).parents[2]
DRIVER = ("python", "-m", "agentmqtt.conformance.driver")
HALF = len(CASES) // 2


def conformance(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agentmqtt", "conformance", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)


def only(names: list[str]) -> list[str]:
    return [word for name in names for word in ("--case", name)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [list(CASES)[:HALF], list(CASES)[HALF:]], ids=["first half", "second half"])
def test_the_python_client_passes(names: list[str]) -> None:
    done = conformance(*only(names), "--json", "--", *DRIVER)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["case"] for result in results if result["why"]] == [], done.stdout + done.stderr
    assert {result["case"] for result in results} == set(names)
    assert done.returncode == 0


@pytest.mark.slow
def test_a_client_that_shows_nothing_fails() -> None:
    """It answers every order and does nothing."""
    answer = "print(json.dumps({'id': json.loads(line)['id'], 'ok': {}}), flush=True)"
    lazy = f"import sys, json\nfor line in sys.stdin: {answer}"
    done = conformance("--case", "status", "--json", "--", sys.executable, "-c", lazy)
    assert done.returncode == 1
    assert json.loads(done.stdout)["why"]


def test_a_client_that_cannot_be_started_is_said() -> None:
    done = conformance("--case", "live", "--", "no-such-client")
    assert done.returncode == 1
    assert "no-such-client cannot be started" in done.stdout


def test_a_case_that_nobody_knows_is_said() -> None:
    done = conformance("--case", "riddle", "--", "x")
    assert done.returncode == 2
    assert "there is no case 'riddle'" in done.stderr
