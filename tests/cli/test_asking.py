"""`send`, `interrupt`, `status`, `ls`: questions to the journal."""

from __future__ import annotations

import json

import pytest

from tests.cli.kit import Inside, Tool, python

WAITER = python("print('ready', flush=True)", "input()")


def test_status_of_a_run_from_nothing_to_its_end(tool: Tool, name: str) -> None:
    new = tool.status(name)
    assert (new["state"], new["owner"], new["tail"], new["updated"]) == ("new", "none", "0.0", 0)
    run = tool.start("run", name, *WAITER)
    tool.start("watch", name).line()
    running = tool.status(name)
    assert set(running) == {"workflow", "state", "owner", "epoch", "tail", "updated", "attempt"}
    assert (running["workflow"], running["state"], running["owner"]) == (name, "running", "online")
    assert (running["epoch"], running["attempt"]) == (1, 1)
    tool("send", name, "go")
    assert run.wait() == 0
    ended = tool.status(name)
    assert (ended["state"], ended["owner"], ended["result"]) == ("done", "none", {"exit": 0})
    code, out, _ = tool("status", name)
    assert (code, out.splitlines()[:3]) == (0, [f"workflow: {name}", "state: done", "owner: none"])


@pytest.mark.slow
def test_ls_lists_runs_as_lines_or_objects(alone: Tool) -> None:
    alone.broker = alone.start("broker", "--listen", "127.0.0.1:0").line().split()[1]
    names = ["a", "b c", "ü/#"]
    for name in names:
        assert alone("send", name, "x")[0] == 0
    rows = alone.start("ls", "--json").items()
    assert [row["workflow"] for row in rows] == names
    assert set(rows[0]) == {"workflow", "state", "owner", "epoch", "tail", "updated"}
    lines = list(alone.start("ls").lines())
    assert [line.split("\t")[:2] for line in lines] == [[name, "new"] for name in names]


@pytest.mark.slow
def test_send_says_where_the_command_is(tool: Tool, name: str) -> None:
    run = tool.start("run", name, *WAITER)
    tool.start("watch", name).line()
    assert tool("send", name, "go", "--wait") == (0, "applied\n", "")
    assert run.wait() == 0
    code, out, err = tool("send", name, "late", "--wait")
    assert (code, out) == (1, "too_late\n")
    assert "had ended" in err


def test_a_command_that_nobody_takes_expires(tool: Tool, name: str) -> None:
    code, out, err = tool("send", name, "x", "--expires", "0.3", "--wait")
    assert (code, out) == (1, "expired\n")
    assert "in time" in err


@pytest.mark.slow
def test_text_from_stdin(tool: Tool, name: str, tmp_path: object) -> None:
    import subprocess
    import sys

    from tests.cli.kit import environment, text

    words = [sys.executable, "-m", "agentmqtt", "send", name, "-"]
    env = environment(tool.state, tool.broker)
    done = subprocess.run(words, input="from a pipe\n", text=True, env=env, check=True, capture_output=True)
    assert done.stdout == "accepted\n"
    assert tool("run", name, *python("print(input())"))[0] == 0
    assert text(tool.read(name)) == "from a pipe\n"


@pytest.mark.slow
def test_commands_leave_one_identity_behind_not_many(tool: Tool, name: str) -> None:
    for _ in range(3):
        assert tool("status", name)[0] == 0
    assert len(list(tool.state.glob("*/command/*.id"))) == 1


@pytest.mark.parametrize("words", [["status"], ["send"], ["interrupt"], ["watch"], ["run"]])
@pytest.mark.parametrize("name", ["", "\udc80"], ids=["empty", "surrogate"])
def test_a_name_that_no_topic_can_carry(inside: Inside, words: list[str], name: str) -> None:
    rest = {"send": ["text"], "run": ["--", "true"]}.get(words[0], [])
    code, out, err = inside(*words, name, *rest)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "workflow ID" in err


def test_data_is_json(tool: Tool, name: str) -> None:
    [status] = tool.start("status", name, "--json").lines()
    assert json.loads(status)["workflow"] == name
