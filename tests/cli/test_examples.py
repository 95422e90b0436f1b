"""What the examples promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Tool, environment, text
from tests.servers import need

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["bundled", "mosquitto"])
def test_the_demo_is_exact(broker: str, tmp_path: Path) -> None:
    if broker == "mosquitto":
        need("mosquitto")
    words = [sys.executable, "-m", "examples.demo", "--broker", broker]
    done = subprocess.run(words, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EXACT: 3 kills" in done.stdout


def test_agent_and_watcher(tool: Tool, name: str) -> None:
    def start(program: str, *words: str) -> subprocess.Popen[str]:
        code = (ROOT / "examples" / program).read_text().replace("asyncio.sleep(0.1)", "asyncio.sleep(0.01)")
        script = tool.folder / program
        script.write_text(code)
        env = environment(tool.state, tool.broker)
        return subprocess.Popen([sys.executable, script, name, *words], stdout=subprocess.PIPE, text=True, env=env)

    watcher = start("watch.py", "hello")
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "the message is accepted\n"
    agent = start("agent.py")
    out, _ = watcher.communicate(timeout=20)
    assert out.count("word") == 100
    assert agent.wait(20) == watcher.returncode == 0
    agent.stdout and agent.stdout.close()
    assert text(tool.read(name)).count("word") == 100
