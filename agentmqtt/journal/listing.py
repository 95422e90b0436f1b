"""The runs of a journal, a page at a time (PROTOCOL §8.4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping

from agentmqtt.core.ledger import Ledger
from agentmqtt.core.mailbox import Row as MailboxRow
from agentmqtt.frames import CommandList, ListCommands, Listing, ListRuns, PendingCommand, Row
from agentmqtt.types import CommandState, When

MOST = 200


def listing(ledgers: Mapping[str, Ledger], request: ListRuns, visible: Callable[[str], bool]) -> Listing:
    """Runs that the asker may see after `request.after` in order of name, at most `request.limit` or 200."""
    names = sorted(filter(visible, ledgers))
    start = bisect_right(names, request.after) if request.after else 0
    count = max(1, min(request.limit, MOST))
    page = names[start : start + count]
    return Listing(request.request, tuple(_row(ledgers[name]) for name in page), start + count < len(names))


def _row(ledger: Ledger) -> Row:
    return Row(ledger.workflow, ledger.state, ledger.owner, ledger.epoch, ledger.chain.tail, ledger.updated)


def commands(ledger: Ledger | None, request: ListCommands) -> CommandList:
    """The commands of one run that have no outcome."""
    rows = [] if ledger is None else sorted(ledger.mailbox.open, key=lambda row: row.seq)[:MOST]
    return CommandList(request.request, request.workflow, tuple(_pending(row) for row in rows))


def _pending(row: MailboxRow) -> PendingCommand:
    state = CommandState.RECEIVED if row.received else CommandState.ACCEPTED
    return PendingCommand(row.id, row.kind, row.sender, state, row.deadline, When(row.when))
