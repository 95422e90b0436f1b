"""`agentmqtt run`: any program becomes an agent."""

from __future__ import annotations

import enum
import json
import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from agentmqtt.cli import common
from agentmqtt.cli.agent import Task, supervise
from agentmqtt.cli.common import BrokerURL, Config, Root, Verbose, Workflow, complete, prepare
from agentmqtt.errors import Ended, Fenced, Owned, StoreInUse, UsageError

if TYPE_CHECKING:
    from agentmqtt.owner import Retry
    from agentmqtt.settings import Settings


class OnRetry(enum.StrEnum):
    """What becomes of the output of an attempt that broke."""

    WITHDRAW = "withdraw"
    CONTINUE = "continue"


def run(
    workflow: Workflow,
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The program and its arguments, after a --.", show_default=False),
    ],
    broker: BrokerURL = None,
    retry: Annotated[OnRetry, typer.Option(help="What a broken attempt's output becomes.")] = OnRetry.WITHDRAW,
    again: Annotated[bool, typer.Option("--again", help="Start an ended run; its output is withdrawn.")] = False,
    takeover: Annotated[bool, typer.Option("--takeover", help="Take the name from a living owner.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Start without a broker; output waits on disk.")] = False,
    chunks: Annotated[bool, typer.Option("--chunks", help="Send what comes; do not wait for newlines.")] = False,
    grace: Annotated[float, typer.Option(metavar="S", help="Seconds from SIGINT to SIGTERM to SIGKILL.", min=0)] = 5.0,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> int:
    """Run a program as the agent of a workflow.

    Its stdout becomes `text` events, its stderr `log`. Commands go to its stdin, an interrupt is SIGINT.
    Started again after a crash it resumes by name. Exits with the program's code.
    """
    settings = prepare(config, verbose, broker=broker, root=root)
    if shutil.which(command[0]) is None:
        raise UsageError(f"there is no program {command[0]!r}; check its name and PATH")
    on_retry: Retry = "withdraw_attempt" if retry is OnRetry.WITHDRAW else "continue"
    task = Task(workflow, command, on_retry, again, takeover, offline, grace, chunks)
    return complete(_main(settings, task))


async def _main(settings: Settings, task: Task) -> int:
    try:
        async with common.client(settings, "run", task.workflow) as client:
            common.tell_reconnects(client)
            if not task.offline:
                await client.require_journal()
            return await common.unless_fatal(client, supervise(client, task))
    except StoreInUse as error:
        raise StoreInUse(f"{task.workflow!r} is run on this machine already: {error}") from None
    except Ended as error:
        how = f"{error.outcome}{_shown(error.result)}"
        raise Ended(f"{task.workflow!r} has ended: {how}; --again starts it anew") from None
    except Owned:
        raise Owned(f"{task.workflow!r} has a living owner; --takeover takes the name from it") from None
    except Fenced as error:
        lost = f"; {error.unsent} events were left unsent" if error.unsent else ""
        raise Fenced(f"{task.workflow!r} was taken by another owner, so the program was killed{lost}") from None


def _shown(result: object) -> str:
    return "" if result is None else f" {json.dumps(result, default=str)}"
