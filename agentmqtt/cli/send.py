"""`agentmqtt send` and `agentmqtt interrupt`: steer a run."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentmqtt.cli import common
from agentmqtt.cli.common import BrokerURL, Config, Root, Verbose, Workflow, complete, prepare, say
from agentmqtt.received import INTERRUPT, interrupt_data
from agentmqtt.types import CommandState, OwnerState, Value

if TYPE_CHECKING:
    from agentmqtt.settings import Settings

BECAUSE = {
    CommandState.TOO_LATE: "the run had ended before the command came",
    CommandState.EXPIRED: "nobody took the command in time",
    CommandState.SUPERSEDED: "another answer came first",
    CommandState.WITHDRAWN: "it was taken back",
    CommandState.UNKNOWN: "its owner died with the command; it may have been applied",
}
When = Annotated[
    str, typer.Option("--when", metavar="WHEN", help="now, next_step or next_turn: when the agent is to take it.")
]
Json = Annotated[bool, typer.Option("--json", help="One object: id, state and reason.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the outcome; the exit code is 0 only if it is applied.")]
Expires = Annotated[
    float | None, typer.Option(metavar="S", help="Seconds for it to be taken.  [default: a day]", min=0.001)
]


def send(
    workflow: Workflow,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.", show_default=False)
    ],
    broker: BrokerURL = None,
    kind: Annotated[str, typer.Option(metavar="KIND", help="What the agent takes it for.")] = "message",
    when: When = "now",
    wait: Wait = False,
    expires: Expires = None,
    json: Json = False,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> int:
    """Send a command to whoever owns a run now, or first. Prints where it is: accepted, applied, …"""
    settings = prepare(config, verbose, broker=broker, root=root)
    data = sys.stdin.read() if text == "-" else text
    return complete(_send(settings, workflow, data, kind, expires, when, wait=wait, machine=json))


def interrupt(
    workflow: Workflow,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Why; the agent gets it.")] = "",
    broker: BrokerURL = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="stop, pause or after_step: how it is to stop.")
    ] = "stop",
    wait: Wait = False,
    expires: Expires = None,
    json: Json = False,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> int:
    """Ask the owner of a run to stop what it is doing."""
    settings = prepare(config, verbose, broker=broker, root=root)
    data = interrupt_data(reason, mode)
    return complete(_send(settings, workflow, data, INTERRUPT, expires, "now", wait=wait, machine=json))


async def _send(
    settings: Settings,
    workflow: str,
    data: Value,
    kind: str,
    expires: float | None,
    when: str,
    *,
    wait: bool,
    machine: bool,
) -> int:
    async with common.one_shot(settings) as client:
        await client.require_journal()
        receipt = await client.send(workflow, data, kind=kind, expiry=expires, when=when)
        if wait and (await client.status(workflow)).owner is not OwnerState.ONLINE:
            say(f"{workflow!r} has no owner now; the command waits for one. Ctrl-C leaves it there")
        state = await common.unless_fatal(client, receipt.outcome()) if wait else receipt.state
    if machine:
        typer.echo(json.dumps({"id": receipt.id, "state": state, "reason": receipt.reason}, default=str))
    else:
        typer.echo(state)
    reason = receipt.reason if receipt.reason is not None else BECAUSE.get(state or CommandState.QUEUED)
    if reason is not None:
        say(reason if isinstance(reason, str) else json.dumps(reason, default=str))
    begun = (CommandState.ACCEPTED, CommandState.RECEIVED)
    good = (CommandState.APPLIED,) if wait else (*begun, CommandState.APPLIED)
    return 0 if state in good else 1
