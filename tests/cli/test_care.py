"""`broker check`, `backup` and `restore`."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.cli.kit import Inside, Tool
from tests.servers import free_port


def findings(inside: Inside, *words: str) -> tuple[int, dict[str, tuple[bool, str]]]:
    code, out, err = inside("broker", "check", "--json", *words)
    assert not err, err
    return code, {row["what"]: (row["good"], row["text"]) for row in map(json.loads, out.splitlines())}


def config(tmp_path: Path, text: str) -> tuple[str, str]:
    path = tmp_path / "c.toml"
    path.write_text(f"[server]\n{text}\n")
    return "--config", str(path)


def test_a_sound_machine_has_nothing_to_be_done(inside: Inside, tmp_path: Path) -> None:
    code, found = findings(inside, *config(tmp_path, f'listen = ["127.0.0.1:{free_port()}"]'))
    assert code == 0
    assert all(good for good, _ in found.values())
    assert set(found) >= {"config", "port", "state", "accounts", "clock"}


def test_what_is_to_be_done_is_named(inside: Inside, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "journal.db").write_bytes(b"no database at all" * 100)
        (tmp_path / "accounts.json").write_text("{")
        where = config(tmp_path, f'listen = ["127.0.0.1:{port}"]\naccounts = "{tmp_path}/accounts.json"')
        code, found = findings(inside, *where, "--state", str(tmp_path / "state"))
    assert code == 1
    assert "listens there" in found["port"][1]
    assert "set it aside" in found["store"][1]
    assert "is damaged" in found["accounts"][1]
    code, found = findings(inside, *config(tmp_path, 'listen = ["0.0.0.0:1883"]'))
    assert code == 1
    assert "nobody could log in" in found["config"][1]


@pytest.mark.slow
def test_a_backup_brings_everything_back_under_a_new_incarnation(alone: Tool, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    alone.broker = f"mqtt://{listen}"
    broker = alone.start("broker", "--listen", listen)
    assert broker.line().startswith("ready")
    assert alone("run", "kept", "--", "echo", "before")[0] == 0
    copy = str(tmp_path / "copy.db")
    code, _, err = alone("broker", "backup", copy)
    assert code == 0, err
    assert alone("broker", "backup", copy)[0] == 2
    assert alone("run", "lost", "--", "echo", "after")[0] == 0
    assert "stop the broker first" in alone("broker", "restore", copy)[2]
    broker.kill()
    code, _, err = alone("broker", "restore", copy)
    assert code == 0, err
    assert "1 runs are back" in err
    assert alone.start("broker", "--listen", listen).line().startswith("ready")
    assert [row.split()[0] for row in alone("ls")[1].splitlines() if "kept" in row or "lost" in row] == ["kept"]
    watched = alone.start("watch", "kept", "--json", "--until-end", "--from", "start").items()
    assert [item["data"] for item in watched if item.get("type") == "text"] == ["before\n"]
    (tmp_path / "torn").write_bytes(b"x" * 5000)
    assert "nothing was changed" in alone("broker", "restore", tmp_path / "torn")[2]
