"""`answer`, `inbox`, `withdraw`, `send --when`, `watch --children` against a program that asks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Inside, Tool, until

ASKS = """
import asyncio, sys, agentmqtt

async def main():
    async with agentmqtt.connect(state=":memory:") as client, client.own(sys.argv[1]) as run:
        print("asking", flush=True)
        one = asyncio.create_task(run.ask("Deploy?", choices=["yes", "no"]))
        n = await run.ask("How many?", schema={"type": "integer"})
        async with run.child("search") as child:
            await child.emit("text", f"{await one} {n + 1}")
            await child.end()
        await run.end()

asyncio.run(main())
"""


@pytest.mark.slow
def test_questions_are_shown_and_answered(tool: Tool, name: str, tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(ASKS)
    agent = tool.program(sys.executable, script, name)
    assert agent.line() == "asking\n"

    def questions() -> list[dict[str, str]]:
        code, out, err = tool("answer", name, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    until(lambda: len(questions()) == 2, "two questions")
    deploy, many = sorted(questions(), key=lambda question: question["question"])
    assert "name one" in tool("answer", name, "yes")[2]
    assert "is not one of" in tool("answer", name, deploy["id"], "maybe")[2]
    assert tool("answer", name, deploy["id"], "yes")[1] == "applied\n"
    assert tool("answer", name, "41")[1] == "applied\n"
    assert agent.wait() == 0
    assert "has no open question" in tool("answer", name, "x")[2]
    assert many["question"] == "How many?"
    family = tool.start("watch", name, "--children", "--json")
    items = (json.loads(line) for line in family.lines())
    found = next(item for item in items if item.get("type") == "text")
    assert (found["run"], found["data"]) == (f"{name}/search", "yes 42")


@pytest.mark.slow
def test_what_waits_is_listed_and_taken_back(tool: Tool, name: str) -> None:
    code, out, err = tool("send", name, "later", "--when", "next_turn", "--json")
    assert code == 0, err
    id_ = json.loads(out)["id"]
    listed = json.loads(tool("inbox", name, "--json")[1])
    assert (listed["id"], listed["when"], listed["state"]) == (id_, "next_turn", "accepted")
    assert id_ in tool("inbox", name)[1]
    assert tool("withdraw", name, id_)[1] == "withdrawn\n"
    assert tool("inbox", name)[1] == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["interrupt", "x", "--mode", "gently"], "'gently' is not one of"),
        (["watch", "x", "--children", "--from", "end"], "--children goes with"),
    ],
)
def test_what_cannot_be_asked_is_said(inside: Inside, words: list[str], says: str) -> None:
    code, _, err = inside(*words)
    assert code == 2
    assert says in err
