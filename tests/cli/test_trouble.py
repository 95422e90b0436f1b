"""Errors: one line with the cause and the remedy, an exit code, never a traceback."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Inside, Tool, environment, text, until
from tests.servers import mosquitto

ONE_SHOT = [["status", "w"], ["send", "w", "x"], ["interrupt", "w"], ["ls"], ["run", "w", "--", "true"]]


def names(words: list[str]) -> str:
    return words[0]


def failed(tool: Tool | Inside, *words: str, code: int = 1) -> str:
    """The one line on stderr."""
    found, out, err = tool(*words)
    assert (found, out) == (code, "")
    assert err.startswith("agentmqtt: ")
    assert err.count("\n") == 1
    return err


def soon(tool: Tool, *words: str) -> str:
    """The one line on stderr, within 3 s and what this machine takes now to start a process."""
    begin = time.monotonic()
    failed(tool, "status", "", code=2)
    start = time.monotonic() - begin
    line = failed(tool, *words)
    assert time.monotonic() - begin < 3 + 4 * start
    return line


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """A broker without a journal."""
    with mosquitto() as server:
        yield server.url


@pytest.mark.slow
@pytest.mark.parametrize("words", ONE_SHOT, ids=names)
def test_no_journal_is_said_with_the_command_that_starts_one(alone: Tool, bare: str, words: list[str]) -> None:
    alone.broker = bare
    assert f"start one with: agentmqtt journal --broker {bare}" in soon(alone, *words)


@pytest.mark.slow
@pytest.mark.parametrize("words", [ONE_SHOT[0], ONE_SHOT[-1]], ids=names)
def test_no_broker_is_said(alone: Tool, free_port: int, words: list[str]) -> None:
    alone.broker = f"mqtt://127.0.0.1:{free_port}"
    assert f"no broker listens at 127.0.0.1:{free_port}; start one with: agentmqtt broker" in soon(alone, *words)


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_said(alone: Tool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        alone.broker = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        assert "did not answer within 2.5 s" in soon(alone, "status", "w")


@pytest.mark.slow
def test_a_watcher_without_a_journal_says_so_and_waits(alone: Tool, bare: str) -> None:
    alone.broker = bare
    watcher = alone.start("watch", "w", "--until-end")
    until(lambda: f"agentmqtt journal --broker {bare}; waiting for it" in watcher.stderr, "the word that none answers")
    alone.start("journal").line()
    assert alone("run", "w", "--", "echo", "late")[0] == 0
    assert list(watcher.lines()) == ["late\n"]


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("nonsense", "mqtt://nonsense"),
        ("http://host", "ws://"),
        ("mqtt://me:hush@host:70000", "1 to 65535"),
        ("mqtt://", "host"),
    ],
)
def test_a_wrong_url_is_said_without_its_password(inside: Inside, url: str, hint: str) -> None:
    err = failed(inside, "ls", "--broker", url, code=2)
    assert hint in err
    assert "hush" not in err


def test_a_refused_password_is_said(alone: Tool) -> None:
    with mosquitto(users={"me": "right"}) as server:
        alone.broker = server.url.replace("//", "//me:wrong@")
        assert "check user name and password" in failed(alone, "status", "w")
        alone.broker = server.url
        assert "check user name and password" in failed(alone, "run", "w", "--", "true")
        watcher = alone.start("watch", "w")
        assert watcher.wait() == 1
        assert watcher.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [*ONE_SHOT, ["watch", "w"], ["journal"], ["broker", "--listen", "127.0.0.1:0"]], ids=names
)
def test_a_state_directory_that_cannot_be_used_is_said(alone: Tool, inside: Inside, words: list[str]) -> None:
    alone.folder.mkdir(exist_ok=True)
    alone.state.write_text("a file where the directory should be")
    assert str(alone.state) in failed(inside, *words)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["nonsense"], "No such command"),
        (["send", "w"], "Missing argument"),
        (["watch", "w", "--nonsense"], "No such option"),
        (["run", "w"], "COMMAND"),
        (["run", "w", "--retry", "maybe", "--", "true"], "retry"),
        (["watch", "w", "--into", "x", "--from", "end"], "--into"),
        (["watch", "w", "--pace", "soon"], "--pace"),
    ],
)
def test_wrong_usage_is_one_line_that_points_to_the_help(inside: Inside, words: list[str], hint: str) -> None:
    assert hint in failed(inside, *words, code=2)


def test_help_and_version(inside: Inside) -> None:
    code, out, err = inside()
    assert (code, err) == (0, "")
    assert all(word in out for word in ("broker", "journal", "run", "watch", "send", "interrupt", "status", "ls"))
    assert inside("--version")[:2] == (0, "agentmqtt 0.1.0\n")
    assert "WORKFLOW" in inside("watch", "--help")[1]


def test_a_fault_of_ours_is_one_line_unless_asked(alone: Tool, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "usercustomize.py").write_text("")
    code = "import agentmqtt.cli.app as app, agentmqtt.cli.status as s, sys\n"
    code += "s.complete = lambda work: (work.close(), 1 / 0)\nsys.exit(app.execute(['ls']))"
    for debug in ("0", "1"):
        env = environment(alone.state, "mqtt://127.0.0.1:9", AGENTMQTT_DEBUG=debug)
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "ZeroDivisionError" in done.stderr
        assert ("Traceback" in done.stderr) == (debug == "1")
        assert (done.stderr.count("\n") == 1) == (debug == "0")


def test_without_typer_one_line_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['typer'] = None; import agentmqtt.cli; agentmqtt.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install 'agentmqtt[cli]'" in done.stderr


def test_closed_streams_are_no_trouble(tool: Tool, name: str) -> None:
    """A socket took the number of stderr, and the first word for a person broke the run."""
    script = f"exec {sys.executable} -m agentmqtt run '{name}' -- echo hello <&- >&- 2>&-"
    env = environment(tool.state, tool.broker)
    assert subprocess.run(["sh", "-c", script], env=env, check=False).returncode == 0
    assert text(tool.read(name)) == "hello\n"


def test_output_that_cannot_be_written_is_said(tool: Tool, name: str) -> None:
    assert tool("run", name, "--", "echo", "hello")[0] == 0
    with Path("/dev/full").open("wb") as full:
        words = [sys.executable, "-m", "agentmqtt", "watch", name, "--until-end"]
        env = environment(tool.state, tool.broker)
        done = subprocess.run(words, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "agentmqtt: the output: No space left on device\n")
