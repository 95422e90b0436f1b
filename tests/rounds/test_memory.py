"""100,000 events of 100 bytes to one channel: the memory of agent, journal and watcher stays bounded (P10)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.rounds.harness import Process
from tests.servers import free_port

EVENTS = 100_000
LIMIT_MB = 160
"""A client with everything imported takes about 50 MB, broker and journal about 70 MB."""

ROLE = """
import asyncio, resource, sys
import agentmqtt
async def agent(client):
    async with client.own("much") as run:
        for n in range({events}):
            await run.emit("text", f"{{n:0100d}}")
        await run.end()
async def watcher(client):
    count = 0
    async with client.watch("much") as run:
        async for event in run:
            count += event.span
            if event.type == "am.end":
                break
    assert count == {events} + 1, count
async def main():
    async with agentmqtt.connect(sys.argv[2], state=sys.argv[3]) as client:
        await (agent if sys.argv[1] == "agent" else watcher)(client)
asyncio.run(main())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_memory_stays_bounded(tmp_path: Path) -> None:
    port = free_port()
    url = f"mqtt://127.0.0.1:{port}"
    place = Process(["-m", "tests.rounds.place", "bundled", str(port), str(tmp_path)], tmp_path / "log", ready=True)
    place.start()
    try:
        peaks = dict(zip(("agent", "live", "late"), await roles(url, tmp_path), strict=True))
        peaks["broker and journal"] = peak(place)
    finally:
        place.kill()
    print(peaks)
    assert max(peaks.values()) < LIMIT_MB, peaks


async def roles(url: str, folder: Path) -> list[int]:
    agent, live = await asyncio.gather(role("agent", url, folder / "a.db"), role("watcher", url, folder / "w.db"))
    return [agent, live, await role("watcher", url, folder / "late.db")]


async def role(kind: str, url: str, state: Path) -> int:
    """Peak resident memory of a role in MB, once it is done."""
    code = ROLE.format(events=EVENTS)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, kind, url, str(state), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    return int(out)


def peak(process: Process) -> int:
    assert process.child is not None
    status = Path(f"/proc/{process.child.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) // 1024
