"""Run the cases one after the other, each in a service and a folder of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path

from agentmqtt.conformance import following, steering
from agentmqtt.conformance.site import Site
from agentmqtt.errors import AgentMQTTError, UsageError

Case = Callable[[Site], Awaitable[None]]
LIMIT = 60.0
"""Seconds that one case may take."""

CASES: dict[str, Case] = {
    "live": following.live,
    "late": following.late,
    "long": following.long,
    "from-the-end": following.from_the_end,
    "values": following.values,
    "names": following.names,
    "killed": following.killed,
    "flaky": following.flaky,
    "tunnel": following.tunnel,
    "half-open": following.half_open,
    "withdrawn": following.withdrawn,
    "withdrawn-meanwhile": following.withdrawn_meanwhile,
    "trimmed": following.trimmed,
    "lost": following.lost,
    "restarted": following.restarted,
    "moved": following.moved,
    "stored": following.stored,
    "applied": steering.applied,
    "rejected": steering.rejected,
    "first-owner": steering.waits_for_the_first_owner,
    "offline": steering.offline,
    "same-id": steering.same_id,
    "interrupt": steering.interrupt,
    "too-late": steering.too_late,
    "refused-locally": steering.refused_locally,
    "status": steering.status,
    "leaves": steering.leaves,
    "second-process": steering.second_process,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """How one case went: `why` is empty if the client passed. `seconds` is how long it took."""

    case: str
    about: str
    why: str
    complaints: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.why


async def run(command: Sequence[str], cases: Collection[str] = ()) -> AsyncIterator[Result]:
    """Drive the client that `command` starts through the cases (all of them by default).

    Raises:
        UsageError: there is no such case.
    """
    if unknown := [name for name in cases if name not in CASES]:
        raise UsageError(f"there is no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    for name, case in CASES.items():
        if not cases or name in cases:
            yield await _one(name, case, command)


async def _one(name: str, case: Case, command: Sequence[str]) -> Result:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agentmqtt-conformance-", ignore_cleanup_errors=True) as folder:
        site = Site(Path(folder), command)
        why = await _judge(site, case)
    about = (case.__doc__ or "").strip().splitlines()[0]
    return Result(name, about, why, tuple(site.complaints), round(time.monotonic() - began, 2))


async def _judge(site: Site, case: Case) -> str:
    """Why the client failed, or nothing."""
    try:
        async with site.running(), asyncio.timeout(LIMIT):
            await case(site)
    except TimeoutError:
        return f"nothing more happened within {LIMIT:g} s; the client showed: {site.seen()}"
    except KeyError as error:
        return f"what the client answered has no {error}"
    except AgentMQTTError as error:
        return str(error)
    return ""
