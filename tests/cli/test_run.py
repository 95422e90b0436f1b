"""`agentmqtt run`: any program as an agent."""

from __future__ import annotations

import hashlib
import signal
from typing import Any

import pytest

from tests.cli.kit import Tool, alive, fold, place, python, text, until

SLEEPER = python("import os, time", "print(os.getpid(), flush=True)", "time.sleep(60)")


def end_of(items: list[dict[str, Any]]) -> dict[str, Any]:
    assert items[-1]["type"] == "am.end"
    return dict(items[-1]["data"])


def test_output_becomes_events_and_the_exit_code_the_outcome(tool: Tool, name: str) -> None:
    program = "echo one; echo oops >&2; printf 'no newline'; exit 7"
    assert tool("run", name, "--", "sh", "-c", program) == (7, "", "")
    items = tool.read(name)
    assert text(items) == "one\nno newline"
    assert text(items, "log") == "oops\n"
    assert end_of(items) == {"outcome": "failed", "result": {"exit": 7}}


def test_each_line_is_an_event(tool: Tool, name: str) -> None:
    watcher = tool.start("watch", name, "--json", "--until-end")
    run = tool.start("run", name, *python("for i in range(3):", " print(i, flush=True)", " input()"))
    for number in range(3):
        assert f'"data": "{number}\\n"' in watcher.line()
        assert tool("send", name, "go", "--wait")[:2] == (0, "applied\n")
        assert ["am.received" in watcher.line(), "am.receipt" in watcher.line()] == [True, True]
    assert run.wait() == 0
    assert end_of(watcher.items())["outcome"] == "done"


def test_the_program_knows_its_workflow_and_is_not_buffered(tool: Tool, name: str) -> None:
    program = python("import os, sys", "print(os.environ['AGENTMQTT_WORKFLOW'], sys.stdout.write_through)")
    assert tool("run", name, *program)[0] == 0
    assert text(tool.read(name)) == f"{name} True\n"


def test_whatever_comes_out_is_carried(tool: Tool, name: str) -> None:
    program = python(
        "import sys",
        "out = sys.stdout.buffer",
        "out.write(b'x' * 100_000 + b'\\n' + bytes(range(256)) + b'\\n')",
        "out.write('ü€😀'.encode() * 20_000)",
    )
    assert tool("run", name, *program)[0] == 0
    expected = "x" * 100_000 + "\n" + bytes(range(256)).decode("utf-8", "replace") + "\n" + "ü€😀" * 20_000
    assert text(tool.read(name)) == expected


@pytest.mark.slow
def test_much_output_at_once_is_exact(tool: Tool, name: str) -> None:
    program = python("for i in range(20_000): print('line', i)")
    assert tool("run", name, *program)[0] == 0
    expected = "".join(f"line {i}\n" for i in range(20_000)).encode()
    assert hashlib.sha256(text(tool.read(name)).encode()).digest() == hashlib.sha256(expected).digest()


def test_chunks_come_without_their_newline(tool: Tool, name: str) -> None:
    watcher = tool.start("watch", name, "--json", "--until-end")
    program = python("import sys", "sys.stdout.write('password: ')", "sys.stdout.flush()", "input()")
    run = tool.start("run", name, "--chunks", *program)
    assert '"data": "password: "' in watcher.line()
    assert tool("send", name, "x")[0] == 0
    assert run.wait() == 0


# ---- commands


def test_an_interrupt_is_sigint_and_ends_the_run_as_cancelled(tool: Tool, name: str) -> None:
    program = python(
        "import time",
        "try:",
        " print('ready', flush=True)",
        " time.sleep(60)",
        "except KeyboardInterrupt:",
        " print('saved')",
    )
    run = tool.start("run", name, *program)
    watcher = tool.start("watch", name, "--json", "--until-end")
    assert "ready" in watcher.line()
    assert tool("interrupt", name, "enough", "--wait")[:2] == (0, "applied\n")
    assert run.wait() == 0
    items = watcher.items()
    assert text(items) == "saved\n"
    assert end_of(items) == {"outcome": "cancelled", "result": {"exit": 0, "reason": "enough"}}


def test_an_interrupt_is_one_sigint_not_two(tool: Tool, name: str) -> None:
    """The second one hit programs while they saved what they had."""
    program = python(
        "import signal, time",
        "got = []",
        "signal.signal(signal.SIGINT, lambda *_: got.append(1))",
        "print('ready', flush=True)",
        "while not got: time.sleep(0.01)",
        "time.sleep(0.3)",
        "print(len(got))",
    )
    run = tool.start("run", name, *program)
    watcher = tool.start("watch", name, "--json", "--until-end")
    assert "ready" in watcher.line()
    assert tool("interrupt", name)[0] == 0
    assert run.wait() == 0
    assert text(watcher.items()) == "1\n"


def test_a_program_that_does_not_listen_is_killed(tool: Tool, name: str) -> None:
    deaf = "import signal, time; signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN)"
    run = tool.start("run", name, "--grace", "0.1", *python(deaf, "print('ready', flush=True)", "time.sleep(60)"))
    watcher = tool.start("watch", name, "--json", "--until-end")
    assert "ready" in watcher.line()
    assert tool("interrupt", name)[0] == 0
    assert run.wait() == 137
    assert end_of(watcher.items())["result"] == {"exit": 137, "signal": "SIGKILL", "reason": "interrupted"}


@pytest.mark.slow
def test_an_interrupt_overtakes_input_that_nobody_reads(tool: Tool, name: str) -> None:
    """The pipe to the program is full: the messages wait, the interrupt must not."""
    run = tool.start("run", name, "--grace", "0.1", *SLEEPER)
    tool.start("watch", name, "--json").line()
    for _ in range(8):
        assert tool("send", name, "x" * 30_000)[0] == 0
    assert tool("interrupt", name, "--wait")[0] == 0
    assert run.wait() == 130


def test_what_a_program_does_not_take_is_rejected(tool: Tool, name: str) -> None:
    run = tool.start("run", name, *SLEEPER)
    tool.start("watch", name, "--json").line()
    code, out, err = tool("send", name, "x", "--kind", "dance", "--wait")
    assert (code, out) == (1, "rejected\n")
    assert "'message' and 'interrupt'" in err
    run.kill()


def test_commands_wait_for_the_first_run(tool: Tool, name: str) -> None:
    assert tool("send", name, "early\n")[:2] == (0, "accepted\n")
    assert tool("run", name, *python("print('got', input())"))[0] == 0
    assert text(tool.read(name)) == "got early\n"


# ---- ends of all kinds


@pytest.mark.slow
def test_kill_9_of_the_runner_kills_the_program_and_the_next_one_begins_anew(tool: Tool, name: str) -> None:
    watcher = tool.start("watch", name, "--json", "--until-end")
    family = python(
        "import os, subprocess, sys, time",
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])",
        "print(os.getpid(), child.pid, flush=True)",
        "time.sleep(60)",
    )
    run = tool.start("run", name, *family)
    seen = [watcher.line()]
    pids = [int(pid) for pid in text_of(seen[0]).split()]
    assert all(alive(pid) for pid in pids)
    run.kill()
    until(lambda: not any(alive(pid) for pid in pids), "the death of the program and its child")
    until(lambda: tool.status(name)["owner"] == "lost")
    assert tool("run", name, "--", "echo", "second")[0] == 0
    items = watcher.items()
    assert [item for item in items if "rewound" in item]
    assert text(items) == "second\n"
    assert text(tool.read(name)) == "second\n"
    assert tool.status(name)["attempt"] == 2


def text_of(line: str) -> str:
    import json

    return str(json.loads(line)["data"])


def test_with_continue_the_next_one_adds_to_it(tool: Tool, name: str) -> None:
    run = tool.start("run", name, *SLEEPER)
    pid = text_of(tool.start("watch", name, "--json").line())
    run.kill()
    assert tool("run", name, "--retry", "continue", "--", "echo", "second")[0] == 0
    assert text(tool.read(name)) == f"{pid}second\n"


@pytest.mark.slow
def test_sigterm_stops_the_program_and_leaves_the_run_to_the_next_one(tool: Tool, name: str) -> None:
    run = tool.start("run", name, *SLEEPER)
    pid = int(text_of(tool.start("watch", name, "--json").line()))
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert not alive(pid)
    status = tool.status(name)
    assert (status["state"], status["owner"]) == ("interrupted", "none")
    assert tool("run", name, "--", "echo", "second")[0] == 0
    assert text(tool.read(name)) == "second\n"


def test_ctrl_c_cancels_the_run(tool: Tool, name: str) -> None:
    run = tool.start("run", name, *SLEEPER)
    tool.start("watch", name, "--json").line()
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert tool.status(name)["state"] == "cancelled"


def test_a_program_killed_by_a_signal_has_failed(tool: Tool, name: str) -> None:
    assert tool("run", name, "--", "sh", "-c", "kill -9 $$")[0] == 137
    assert end_of(tool.read(name)) == {"outcome": "failed", "result": {"exit": 137, "signal": "SIGKILL"}}


def test_what_a_program_leaves_running_does_not_hold_up_its_end(tool: Tool, name: str) -> None:
    assert tool("run", name, "--", "sh", "-c", "sleep 15 & echo $!")[0] == 0
    assert alive(int(text(tool.read(name))))


@pytest.mark.slow
def test_an_ended_run_says_so_and_can_be_run_again(tool: Tool, name: str) -> None:
    assert tool("run", name, "--", "echo", "first")[0] == 0
    code, out, err = tool("run", name, "--", "echo", "second")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert 'has ended: done {"exit": 0}; --again' in err
    assert tool("run", name, "--again", "--", "echo", "second")[0] == 0
    assert text(tool.read(name)) == "second\n"


@pytest.mark.slow
def test_two_runs_of_one_name(tool: Tool, name: str) -> None:
    first = tool.start("run", name, *SLEEPER)
    watcher = tool.start("watch", name, "--json", "--until-end")
    pid = int(text_of(watcher.line()))
    code, _, err = tool("run", name, "--", "true")
    assert (code, err.count("\n")) == (1, 1)
    assert f"in use by process {first.popen.pid}" in err
    other = tool.another("other")
    code, _, err = other("run", name, "--", "true")
    assert (code, err.count("\n")) == (1, 1)
    assert "--takeover" in err
    assert other("run", name, "--takeover", "--", "echo", "mine")[0] == 0
    assert first.wait() == 1
    assert "taken by another owner" in first.stderr
    assert first.stderr.count("\n") == 1
    assert not alive(pid)
    assert text(watcher.items()).endswith("mine\n")


# ---- without a broker


@pytest.mark.slow
def test_offline_it_runs_and_stores_later(alone: Tool, name: str, free_port: int) -> None:
    alone.broker = f"mqtt://127.0.0.1:{free_port}"
    marker = alone.folder / "done"
    run = alone.start("run", name, "--offline", "--", "sh", "-c", f"echo one; echo two; touch {marker}")
    until(marker.exists, "the end of the program")
    alone.start("broker", "--listen", f"127.0.0.1:{free_port}").line()
    assert run.wait() == 0
    assert text(alone.read(name)) == "one\ntwo\n"


@pytest.mark.slow
def test_what_waits_when_it_is_killed_is_sent_by_the_next_one(alone: Tool, name: str, free_port: int) -> None:
    alone.broker = f"mqtt://127.0.0.1:{free_port}"
    run = alone.start("run", name, "--offline", "--", "echo", "kept")
    until(lambda: "wait to be stored" in run.stderr, "the word that it waits")
    run.kill()
    alone.start("broker", "--listen", f"127.0.0.1:{free_port}").line()
    code, _, err = alone("run", name, "--", "echo", "second")
    assert (code, "has ended: done" in err) == (1, True)
    assert text(alone.read(name)) == "kept\n"


def test_ctrl_c_leaves_what_waits_on_the_disk(alone: Tool, name: str, free_port: int) -> None:
    alone.broker = f"mqtt://127.0.0.1:{free_port}"
    run = alone.start("run", name, "--offline", "--", "sh", "-c", "echo kept; exit 3")
    until(lambda: "wait to be stored" in run.stderr, "the word that it waits")
    run.signal(signal.SIGINT)
    assert run.wait() == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "hint"), [("no-such-program", "no program"), ("/etc/passwd", "no program"), ("", "no program")]
)
def test_a_program_that_is_not_there_is_said_before_anything_is_claimed(
    tool: Tool, name: str, command: str, hint: str
) -> None:
    code, out, err = tool("run", name, "--", command)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert hint in err
    assert tool.status(name)["state"] == "new"


def test_a_program_that_cannot_start_is_a_failed_run(tool: Tool, name: str) -> None:
    script = tool.folder / "script"
    script.write_text("#!/nowhere/interpreter\n")
    script.chmod(0o755)
    assert tool("run", name, "--", str(script))[0] == 127
    assert "cannot start" in text(tool.read(name), "log")


def test_cursors_of_what_counts_have_no_hole(tool: Tool, name: str) -> None:
    assert tool("run", name, *python("for i in range(500): print(i)"))[0] == 0
    items = fold(tool.read(name))
    ends = [place(item["cursor"])[1] for item in items]
    begins = [end - item.get("span", 1) for end, item in zip(ends, items, strict=True)]
    assert begins == [0, *ends[:-1]]


def test_a_reason_too_large_for_the_log_does_not_keep_the_run_from_its_end(tool: Tool, name: str) -> None:
    """The end was refused as too large, and the command came again to every later process."""
    run = tool.start("run", name, *SLEEPER)
    watcher = tool.start("watch", name, "--json", "--until-end")
    watcher.line()
    assert tool("interrupt", name, "é" * 16_370)[0] == 0
    assert run.wait() == 130
    end = end_of(watcher.items())
    assert end["outcome"] == "cancelled"
    assert end["result"]["reason"] == "é" * 4096 + "…"
