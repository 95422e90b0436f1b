"""`agentmqtt watch`: follow, and resume by itself."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Inside, Tool, environment, fold, place, python, text, until

COUNTER = python("for i in range(2000): print('line', i)")
ENDLESS = python("import itertools, time", "for i in itertools.count(): print('line', i, flush=True), time.sleep(0.01)")


def counted(text: str) -> int:
    """How many lines there are, if they are the first ones of a counter."""
    lines = text.splitlines()
    assert lines == [f"line {i}" for i in range(len(lines))]
    return len(lines)


def three(tool: Tool, name: str) -> None:
    assert tool("run", name, *python("for word in 'abc': print(word)"))[0] == 0


def test_text_goes_to_stdout_and_the_rest_to_stderr(tool: Tool, name: str) -> None:
    three(tool, name)
    assert tool("watch", name, "--until-end") == (0, "a\nb\nc\n", '· ended: done {"exit": 0}\n')


def test_it_goes_on_where_it_stopped(tool: Tool, name: str) -> None:
    run = tool.start("run", name, *python("for word in 'abc':", " print(word, flush=True)", " input()"))
    first = tool.start("watch", name, "--json")
    assert json.loads(first.line())["data"] == "a\n"
    tool("send", name, "go")
    assert [json.loads(first.line())["type"] for _ in range(2)] == ["am.received", "am.receipt"]
    assert json.loads(first.line())["data"] == "b\n"
    first.kill()
    second = tool.start("watch", name, "--json", "--until-end")
    tool("send", name, "go")
    tool("send", name, "go")
    again = second.items()
    assert run.wait() == 0
    assert text(again).removeprefix("b\n") == "c\n"  # what was being shown when it was killed may come again
    assert tool("watch", name, "--until-end") == (0, "", "")


def test_a_watcher_before_the_first_run(tool: Tool, name: str) -> None:
    watcher = tool.start("watch", name, "--until-end")
    until(lambda: list(tool.state.glob("*/watch/*.db")), "the start of the watcher")
    three(tool, name)
    assert list(watcher.lines()) == ["a\n", "b\n", "c\n"]
    assert watcher.wait() == 0


def test_two_watchers_of_one_user_both_get_everything(tool: Tool, name: str) -> None:
    watchers = [tool.start("watch", name, "--until-end") for _ in range(3)]
    until(lambda: len(list(tool.state.glob("*/watch/*.db"))) == 3, "the start of the watchers")
    three(tool, name)
    assert [list(watcher.lines()) for watcher in watchers] == [["a\n", "b\n", "c\n"]] * 3


@pytest.mark.slow
def test_from_says_where_to_begin(tool: Tool, name: str) -> None:
    run = tool.start("run", name, *ENDLESS)
    follower = tool.start("watch", name, "--json")
    early = [json.loads(follower.line()) for _ in range(3)][-1]
    until(lambda: place(tool.status(name)["tail"]) > place(early["cursor"]))
    late = json.loads(tool.start("watch", name, "--json", "--from", "end").line())
    assert place(late["cursor"]) > (place(early["cursor"])[0], place(early["cursor"])[1] + 1)
    assert tool("interrupt", name)[0] == 0
    run.wait()
    everything = text(tool.read(name))
    assert counted(everything) > 3
    before = everything.partition(early["data"])
    for cursor in (early["at"], early["cursor"]):
        rest = tool.start("watch", name, "--json", "--until-end", "--from", cursor).items()
        assert text(rest) == before[2]


def test_a_rewind_is_an_object_of_its_own_and_a_line_for_a_person(tool: Tool, name: str) -> None:
    three(tool, name)
    watcher = tool.start("watch", name, "--json")
    person = tool.start("watch", name)
    assert [person.line() for _ in range(3)] == ["a\n", "b\n", "c\n"]
    while json.loads(watcher.line()).get("type") != "am.end":
        pass
    until(lambda: "ended" in person.stderr)
    assert tool("run", name, "--again", "--", "echo", "z")[0] == 0
    rewound = json.loads(watcher.line())
    assert (rewound["rewound"], set(rewound)) == ("0.0", {"rewound", "at"})
    assert json.loads(watcher.line())["data"] == "z\n"
    assert person.line() == "z\n"
    assert "withdrawn" in person.stderr


def test_stored_and_paced_watchers_get_the_same(tool: Tool, name: str) -> None:
    stored = tool.start("watch", name, "--json", "--until-end", "--stored")
    paced = tool.start("watch", name, "--json", "--until-end", "--pace", "0.2")
    assert tool("run", name, *COUNTER)[0] == 0
    assert counted(text(stored.items())) == counted(text(paced.items())) == 2000


# ---- into a file


def held(file: Path) -> list[dict[str, Any]]:
    return fold([json.loads(line) for line in file.read_text().splitlines()])


@pytest.mark.slow
def test_a_file_holds_each_event_once_whatever_is_killed(tool: Tool, name: str, tmp_path: Path) -> None:
    file, dice = tmp_path / "events", random.Random(7)
    words = ("watch", name, "--until-end", "--into", file)
    run = tool.start("run", name, *ENDLESS)
    for kills in range(4):
        watcher = tool.start(*words)
        enough = (file.stat().st_size if file.exists() else 0) + dice.randrange(3000)
        until(lambda enough=enough: file.exists() and file.stat().st_size > enough, "growth")  # type: ignore[misc]
        watcher.kill()
        if kills % 2:
            with file.open("ab") as torn:
                torn.write(b'{"cursor": "1.9')
    assert tool("interrupt", name)[0] == 0
    run.wait()
    assert tool(*words)[0] == 0
    events = held(file)
    assert text(events) == text(tool.read(name))
    assert counted(text(events)) > 10
    ends = [place(event["cursor"])[1] for event in events]
    assert [end - event.get("span", 1) for end, event in zip(ends, events, strict=True)] == [0, *ends[:-1]]
    before = file.read_bytes()
    assert tool(*words)[0] == 0
    assert file.read_bytes() == before


def test_a_file_of_something_else_is_refused(tool: Tool, name: str, tmp_path: Path) -> None:
    file = tmp_path / "letter"
    file.write_text("Dear Sir,\n")
    code, _, err = tool("watch", name, "--into", file)
    assert (code, err.count("\n")) == (2, 1)
    assert file.read_text() == "Dear Sir,\n"


# ---- trouble


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_error(tool: Tool, name: str) -> None:
    assert tool("run", name, *python("for i in range(30_000): print('line', i)"))[0] == 0
    watcher = tool.start("watch", name)
    assert watcher.line() == "line 0\n"
    assert watcher.popen.stdout is not None
    watcher.popen.stdout.close()
    assert (watcher.wait(), watcher.stderr) == (0, "")


@pytest.mark.slow
def test_it_survives_the_broker(alone: Tool, name: str, free_port: int) -> None:
    listen = ("broker", "--listen", f"127.0.0.1:{free_port}")
    alone.broker = f"mqtt://127.0.0.1:{free_port}"
    watcher = alone.start("watch", name, "--until-end")
    until(lambda: "no broker listens" in watcher.stderr, "the word that there is none")
    first = alone.start(*listen)
    first.line()
    run = alone.start("run", name, *python("for word in 'ab':", " print(word, flush=True)", " input()"))
    assert watcher.line() == "a\n"
    first.kill()
    alone.start(*listen).line()
    assert alone("send", name, "go")[0] == 0
    assert watcher.line() == "b\n"
    assert alone("send", name, "go")[0] == 0
    assert run.wait() == watcher.wait() == 0


@pytest.mark.parametrize("start", ["middle", "7", "7.x", "-1.2"])
def test_a_place_that_is_none_is_refused(inside: Inside, start: str) -> None:
    code, out, err = inside("watch", "name", f"--from={start}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cursor" in err


def test_the_environment_of_tests_is_clean(tmp_path: Path) -> None:
    names = {name for name in environment(tmp_path) if name.startswith("AGENTMQTT_")}
    assert names == {"AGENTMQTT_STATE_DIR", "AGENTMQTT_BROKER"}


def test_a_cursor_of_an_epoch_that_never_was_is_refused(tool: Tool, name: str) -> None:
    """It waited without a word, also with --until-end."""
    three(tool, name)
    code, out, err = tool("watch", name, "--from", "7.42", "--until-end")
    assert (code, out) == (2, "")
    assert "--from 7.42 lies after everything in" in err
