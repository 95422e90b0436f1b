"""`agentmqtt broker` and `agentmqtt journal` as processes."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.cli.kit import Inside, Tool, python, text, until
from tests.servers import mosquitto

COUNTS = ("import time", "for n in range(400):", " print(n, flush=True)", " time.sleep(0.02)")
LOCAL = ("--listen", "127.0.0.1:0")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_means_that_the_journal_answers_and_a_signal_ends_it(alone: Tool, number: signal.Signals) -> None:
    broker = alone.start("broker", *LOCAL)
    word, alone.broker = broker.line().split()
    assert word == "ready"
    assert alone("ls") == (0, "", "")
    follower = alone.start("watch", "name")
    begin = time.monotonic()
    broker.signal(number)
    assert broker.wait() == 0
    assert time.monotonic() - begin < 5
    assert broker.stderr == ""
    assert follower.popen.poll() is None


@pytest.mark.slow
def test_runs_survive_kill_9_of_the_broker(alone: Tool) -> None:
    state = alone.folder / "broker"
    first = alone.start("broker", "--state", state, *LOCAL)
    alone.broker = first.line().split()[1]
    assert alone("run", "name", "--", "echo", "kept")[0] == 0
    first.kill()
    second = alone.start("broker", "--state", state, "--listen", alone.broker)
    assert second.line().split()[1] == alone.broker
    assert text(alone.read("name")) == "kept\n"


def test_a_taken_port_is_named_with_its_holder(alone: Tool) -> None:
    holder = alone.start("broker", *LOCAL)
    url = holder.line().split()[1]
    for state in ("broker", "elsewhere"):
        code, out, err = alone("broker", "--state", alone.folder / "state" / state, "--listen", url)
        assert (code, out) == (1, "")
        # A slow disk may have its say before; why it does not start is the last line.
        assert f"cannot listen on {url}: Address already in use; PID {holder.popen.pid}" in err.splitlines()[-1]


@pytest.mark.slow
def test_two_brokers_cannot_share_a_state(alone: Tool) -> None:
    holder = alone.start("broker", *LOCAL)
    holder.line()
    code, out, err = alone("broker", *LOCAL)
    assert (code, out) == (1, "")
    assert f"in use by process {holder.popen.pid}" in err


def test_a_damaged_store_is_set_aside_loudly(alone: Tool) -> None:
    state = alone.folder / "broker"
    state.mkdir()
    (state / "journal.db").write_bytes(b"\x00" * 8192)
    broker = alone.start("broker", "--state", state, *LOCAL)
    alone.broker = broker.line().split()[1]
    assert "WARNING" in broker.stderr
    [kept] = state.glob("journal.db.bad-*")
    assert str(kept) in broker.stderr
    assert alone("run", "name", "--", "true")[0] == 0


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--listen", "0.0.0.0:0"), "agentmqtt user add"),
        (("--listen", "nonsense:port"), "port"),
        (("--listen", "mqtts://127.0.0.1:0"), "certfile"),
        (("--root", "a/#"), "root"),
        (("--config", "/nowhere.toml"), "cannot be read"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(inside: Inside, words: tuple[str, ...], hint: str) -> None:
    code, out, err = inside("broker", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert hint in err


def test_the_config_file_and_the_flags(alone: Tool) -> None:
    file = alone.folder / "broker.toml"
    file.write_text('root = "mine"\n[server]\nlisten = ["127.0.0.1:0", "ws://127.0.0.1:0"]\n')
    broker = alone.start("broker", "--config", file)
    urls = [broker.line().split()[1], broker.line().split()[1]]
    assert urls[1].startswith("ws://")
    alone.broker = urls[1]
    assert alone("run", "name", "--root", "mine", "--", "echo", "by WebSocket")[0] == 0
    alone.broker = urls[0]
    code, out, _ = alone("ls", "--config", file)
    assert (code, out.split("\t")[0]) == (0, "name")


@pytest.mark.slow
def test_the_journal_beside_another_broker(alone: Tool) -> None:
    with mosquitto() as server:
        alone.broker = server.url
        journal = alone.start("journal")
        assert journal.line() == "ready\n"
        assert alone("run", "name", "--", "echo", "beside")[0] == 0
        assert text(alone.read("name")) == "beside\n"
        code, _, err = alone("journal", "--state", alone.folder / "other")
        assert (code, err.count("\n")) == (1, 1)
        assert "already runs" in err
        journal.signal(signal.SIGTERM)
        assert (journal.wait(), journal.stderr) == (0, "")
        as_of = alone.status("name")
        assert (as_of["state"], as_of["tail"]) == ("done", "1.2")
        assert as_of["as_of"] >= as_of["updated"] > 0


@pytest.mark.slow
def test_two_journals_that_could_not_see_each_other_do_not_fight(alone: Tool, tmp_path: Path) -> None:
    """Their presence was the same message on each connection, so each took the other for a late will."""
    with mosquitto() as server:
        alone.broker = server.url
        first = alone.start("journal")
        first.line()
        first.signal(signal.SIGSTOP)  # it cannot answer the question of the second
        second = alone.start("journal", "--state", tmp_path / "second")
        assert second.line() == "ready\n"
        first.signal(signal.SIGCONT)
        until(lambda: {first.popen.poll(), second.popen.poll()} == {None, 1}, "the end of one of them")
        assert "another journal" in first.stderr + second.stderr
        assert alone("ls")[0] == 0


@pytest.mark.slow
@pytest.mark.timeout(150)  # a client may wait 15 s before it tries the broker again
@pytest.mark.parametrize("own", [True, False], ids=["broker", "journal"])
def test_a_history_removed_while_everybody_lives_begins_anew_by_itself(alone: Tool, own: bool) -> None:
    """The journal answered nobody until somebody restarted it."""
    history = alone.folder / "history"
    with contextlib.ExitStack() as stack:
        if own:
            server = alone.start("broker", "--state", history, *LOCAL)
            alone.broker = server.line().split()[1]
        else:
            alone.broker = stack.enter_context(mosquitto()).url
            server = alone.start("journal", "--state", history)
            server.line()
        watcher = alone.start("watch", "name", "--json", "--until-end")
        run = alone.start("run", "name", *python(*COUNTS))
        while json.loads(watcher.line())["data"] != "20\n":
            pass
        time.sleep(2)  # a store that fails at once is no reason to try another
        shutil.rmtree(history)
        assert run.popen.wait(90) == 0
        items = watcher.items()
        assert [item["gap"] for item in items if "gap" in item] == ["reset"]
        assert items[-1]["type"] == "am.end"
        assert alone.status("name")["state"] == "done"
        assert "was removed or replaced while it was open" in server.stderr
        assert "the history was lost; it starts anew" in server.stderr
        assert (history / "journal.db").exists()
