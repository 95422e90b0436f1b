"""Faults that the core had until a world showed them, planted again. `PINNED` holds a seed that shows each."""

from __future__ import annotations

import json
from pathlib import Path

from tests.worlds.faults import Fault

ONCE = (
    Fault(
        "a receipt of an earlier process is given once, whatever store it went to",
        "inbox",
        "return self._once(handed, self._receipted[handed.id])",
        "return None",
        profile="amnesia",
    ),
    Fault(
        "a restarted journal takes its predecessor's word for the owner",
        "ledger",
        "OwnerState.ONLINE if self.online else",
        "OwnerState.ONLINE if self.live else",
    ),
    Fault(
        "a restarted journal believes any will",
        "leases",
        "if lease is None or lease.lost or conn != lease.conn:",
        "if lease is None or lease.lost or (lease.conn is not None and conn < lease.conn):",
    ),
    Fault(
        "a receipt is withdrawn with its effect",
        "outbox",
        "gone = [row for row in about if not row.receipts]\n        changed = [row for row in about if 0 < len(row.receipts) < len(row.entries)]",
        "gone = [row for row in about if len(row.receipts) < len(row.entries)]\n        self.rows = type(self.rows)(row for row in self.rows if row not in gone)\n        changed = []",
    ),
    Fault(
        "the seal goes with the row that made it",
        "outbox",
        "            self.header.base = gone[-1].last\n",
        "            self.header.base = gone[-1].last\n            self.sealed = any(row.ends or row.releases for row in self.rows)\n",
    ),
    Fault(
        "a release of an earlier process releases its successor",
        "outbox",
        "gone = [row for row in self.rows if row.releases and row.seq <= self._inherited]",
        "gone: list[Row] = []",
    ),
    Fault(
        "a withdraw of nothing leaves no mark",
        "ledger",
        "cuts = claim.attempt or cut is not None",
        "cuts = cut is not None",
    ),
    Fault(
        "a refusal names an incarnation that is not written down",
        "ledger",
        "return [*minted, Tell(client, self._refuse(claim, why))]",
        "return [Tell(client, self._refuse(claim, why))]",
    ),
    Fault(
        "a stored reader asks about an old receipt for ever",
        "reader",
        "receipt, self._receipt = self._receipt, None",
        "receipt = self._receipt",
    ),
    Fault(
        "a rewound page is followed over trimmed history",
        "reader",
        "if page.start != self.position or page.kind is PageKind.REWOUND:",
        "if False:",
    ),
    Fault("receipts that were set aside still count", "outbox", "        self.receipted.clear()\n", ""),
    Fault(
        "a frame is judged before what it says about the fork",
        "reader",
        "        self._learn(frame.epoch, frame.parent)\n        if self._follows(frame):\n            self._put_frame(frame)\n",
        "        follows = self._follows(frame)\n        self._learn(frame.epoch, frame.parent)\n        if follows:\n            self._put_frame(frame)\n",
    ),
    Fault(
        "a cut loses the question that it uncovers",
        "fold",
        "        if asks and name in still:\n            return\n        self.asks.append((at, name, asks))",
        "        self.asks = [ask for ask in self.asks if ask[1] != name]\n        self.asks.append((at, name, asks))",
        profile="withdraw",
    ),
    Fault(
        "a withdraw to what is not yet stored is asked for",
        "writer",
        "        if isinstance(intent, Position) and intent > self.stored:\n            return None\n",
        "",
    ),
    Fault(
        "an owner goes on though its refusal named another epoch",
        "writer",
        "        if self.state is WriterState.WITHDRAWING and refusal.inc == header.inc and refusal.epoch != header.epoch:\n            return self._fence(Word.STALE, instance)\n",
        "",
        profile="withdraw",
    ),
    Fault(
        "an owner goes on though its refusal came from another store",
        "writer",
        "        if refusal.inc != header.inc:\n            self._void(request, refusal.epoch)\n        return Save",
        "        return Save",
        profile="amnesia",
    ),
    Fault(
        "what may have been forgotten is called expired",
        "mailbox",
        "state = CommandState.EXPIRED if now <= deadline + SLACK else CommandState.UNKNOWN",
        "state = CommandState.EXPIRED",
    ),
    Fault(
        "a withdraw leaves rows without numbers",
        "writer",
        "holds = self.state in (WriterState.OWNING, WriterState.WITHDRAWING)",
        "holds = self.state is WriterState.OWNING",
    ),
)

PINS = Path(__file__).with_name("pinned.json")
PINNED: dict[str, int] = json.loads(PINS.read_text(encoding="utf-8"))
"""The seed of the first world that notices, in the profile of its fault. `mutate --pin` looks for them anew."""
