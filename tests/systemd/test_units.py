"""The units: systemd takes them, they are tight, and a real systemd starts, watches and restarts what they name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentmqtt.cli.install import UNITS, unit
from tests.cli.kit import Inside, Tool
from tests.servers import free_port, need
from tests.systemd.machine import Machine, booted

ROOT = Path(__file__).parents[2]
URL = "mqtt://127.0.0.1:18831"


@pytest.fixture
def written(tmp_path: Path) -> list[Path]:
    """The units as they are installed, with a command that is everywhere."""
    paths = []
    for name in UNITS:
        path = tmp_path / name
        path.write_text(unit(name).replace("@EXEC@", "/bin/true"))
        paths.append(path)
    return paths


@pytest.mark.slow
def test_systemd_takes_every_unit(written: list[Path]) -> None:
    done = subprocess.run(
        [need("systemd-analyze"), "verify", *written], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agentmqtt-broker.service", "agentmqtt-journal.service"])
def test_a_service_is_tight(written: list[Path], name: str) -> None:
    path = next(path for path in written if path.name == name)
    words = [need("systemd-analyze"), "security", "--offline=true", path]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stdout
    exposure = re.search(r"exposure level for \S+: ([0-9.]+)", said)
    assert exposure is not None, said
    assert float(exposure[1]) <= 2.0


def test_installing_twice_is_as_once(alone: Tool, inside: Inside, tmp_path: Path) -> None:
    root = tmp_path / "root"
    code, out, _ = inside("broker", "install", "--root", root)
    assert code == 0
    assert out.count("AGENTMQTT_PASSWORD=") == 2
    config = root / "etc/agentmqtt/broker.toml"
    config.write_text('[server]\nlisten = ["127.0.0.1:1"]\n')
    code, out, err = inside("broker", "install", "--root", root)
    assert (code, out) == (0, "")
    assert "keeps" in err
    assert "127.0.0.1:1" in config.read_text()
    code, _, err = inside("broker", "install", "--root", tmp_path / "dry", "--dry-run")
    assert code == 0
    assert not (tmp_path / "dry").exists()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> object:
    shared = {ROOT, Path(sys.prefix), Path(sys.base_prefix)}
    with booted(tmp_path_factory.mktemp("machine"), *shared) as made:
        made.run("ip", "link", "set", "lo", "up")
        _install(made)
        yield made


def _install(machine: Machine) -> None:
    """As `broker install` writes it, but for a Python below /root and a checkout that may lie anywhere."""
    command = f"{sys.executable} -m agentmqtt"
    for name in UNITS:
        machine.write(f"/etc/systemd/system/{name}", unit(name).replace("@EXEC@", command))
        if name.endswith(".service"):
            open_up = (
                "[Service]\nUser=root\nGroup=root\nDynamicUser=no\nProtectHome=no\nPrivateTmp=no\nPrivateUsers=no\n"
            )
            where = f"WorkingDirectory={ROOT}\nEnvironment=PYTHONPATH={ROOT} AGENTMQTT_BROKER={URL}\n"
            machine.write(f"/etc/systemd/system/{name}.d/test.conf", open_up + where)
    machine.write("/etc/agentmqtt/broker.toml", '[server]\nlisten = ["127.0.0.1:18831"]\n')
    machine.run("systemctl", "daemon-reload")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_real_systemd_starts_watches_and_restarts(machine: Machine) -> None:
    broker = "agentmqtt-broker.service"
    machine.run("systemctl", "start", broker)  # returns at READY=1
    assert machine.show(broker, "ActiveState") == "active"
    assert "listening on mqtt://127.0.0.1:18831" in machine.show(broker, "StatusText")
    _agent(machine)
    first = machine.show(broker, "MainPID")
    machine.run("kill", "-9", first)
    machine.until(broker, "NRestarts", "1")
    machine.until(broker, "ActiveState", "active")
    assert machine.show(broker, "MainPID") != first
    machine.run("systemctl", "reload", broker)
    assert machine.show(broker, "ActiveState") == "active"
    _is_killed_when_it_hangs(machine, broker)
    _refused_settings_are_not_tried_for_ever(machine, broker)


def _agent(machine: Machine) -> None:
    """An agent with a hard name prints one line more after each kill -9, and resumes its run by name."""
    name = "report/42 ü"
    escaped = machine.run("systemd-escape", name)
    lines = "for i in 1 2 3; do echo line $i; done; sleep 1000"
    machine.write(f"/etc/agentmqtt/agents/{escaped}.env", f"COMMAND='{lines}'\n")
    agent = f"agentmqtt-agent@{escaped}.service"
    machine.run("systemctl", "start", agent)
    watch = [sys.executable, "-m", "agentmqtt", "status", name, "--json"]
    where = ["env", f"PYTHONPATH={ROOT}", "HOME=/tmp", f"AGENTMQTT_BROKER={URL}"]
    machine.until(agent, "ActiveState", "active")
    for restarts in ("0", "1"):
        machine.until(agent, "NRestarts", restarts)
        for _ in range(100):
            status = machine.run(*where, *watch, check=False)
            if '"owner": "online"' in status:
                break
        assert '"owner": "online"' in status
        machine.run("systemctl", "kill", "--signal=KILL", agent)
    machine.run("systemctl", "stop", agent)


def _is_killed_when_it_hangs(machine: Machine, broker: str) -> None:
    machine.write(f"/etc/systemd/system/{broker}.d/brisk.conf", "[Service]\nWatchdogSec=3\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", broker)
    before = machine.show(broker, "MainPID")
    machine.run("kill", "-STOP", before)
    machine.until(broker, "NRestarts", "1")
    machine.until(broker, "ActiveState", "active")
    assert machine.show(broker, "MainPID") != before


def _refused_settings_are_not_tried_for_ever(machine: Machine, broker: str) -> None:
    machine.write("/etc/agentmqtt/broker.toml", '[server]\nlisten = ["0.0.0.0:1883"]\n')
    machine.run("systemctl", "restart", broker, check=False)
    machine.until(broker, "ActiveState", "failed")
    assert machine.show(broker, "ExecMainStatus") == "2"
    machine.run("systemctl", "reset-failed", broker)


@pytest.mark.slow
def test_a_socket_that_systemd_opened(alone: Tool) -> None:
    port = str(free_port())
    words = [need("systemd-socket-activate"), "-l", f"127.0.0.1:{port}", "--fdname=mqtt", "-E", "AGENTMQTT_STATE_DIR"]
    service = alone.program(*words, sys.executable, "-m", "agentmqtt", "broker")
    alone.broker = f"mqtt://127.0.0.1:{port}"
    code, out, err = alone("ls")  # the first connection starts it
    assert (code, out) == (0, ""), err
    assert service.line().startswith(f"ready mqtt://127.0.0.1:{port}")
