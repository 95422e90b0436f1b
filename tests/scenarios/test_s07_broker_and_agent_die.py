"""S07: broker and agent die at once; the broker alone comes back. Nobody may read that the agent is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.kit import Tool, until
from tests.servers import free_port

AGENT = """
import asyncio, sys, agentmqtt

async def main():
    options = agentmqtt.ClientOptions(keepalive=4)
    async with agentmqtt.connect(state=":memory:", options=options) as client, client.own("s07") as run:
        await run.emit("text", "here")
        await run.flush()
        print("here", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
def test_s07_a_status_after_both_died_is_not_online(tmp_path: Path) -> None:
    tool = Tool(tmp_path, f"mqtt://127.0.0.1:{free_port()}")
    quick = {"AGENTMQTT_JOURNAL__LEASE": "6", "AGENTMQTT_JOURNAL__GRACE": "1"}
    try:
        script = tmp_path / "agent.py"
        script.write_text(AGENT)
        listen = tool.broker.removeprefix("mqtt://")
        broker = tool.start("broker", "--listen", listen, **quick)
        assert broker.line().startswith("ready")
        agent = tool.program(sys.executable, script)
        assert agent.line() == "here\n"
        assert tool.status("s07")["owner"] == "online"
        agent.popen.kill()
        broker.kill()
        agent.popen.wait()
        assert tool.start("broker", "--listen", listen, **quick).line().startswith("ready")
        seen = [tool.status("s07")]
        until(lambda: seen.append(tool.status("s07")) or seen[-1]["state"] == "interrupted", "interrupted")
        assert all(status["owner"] == "lost" for status in seen)
    finally:
        tool.end()
