"""What arrives at a journal, handed to the ledger that decides, and what the ledger decided (PROTOCOL §5)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import TypeVar

from agentmqtt import names, wire
from agentmqtt.core import effects as fx
from agentmqtt.core.audience import Audience
from agentmqtt.core.leases import Leases
from agentmqtt.core.ledger import Ledger
from agentmqtt.errors import BadName, WireError
from agentmqtt.frames import (
    AboutName,
    Claim,
    Command,
    Describe,
    Fetch,
    ListCommands,
    ListRuns,
    ListWatchers,
    Outcome,
    Renew,
    Request,
    Response,
    WatcherList,
    WatcherRow,
    Watching,
    Withdraw,
)
from agentmqtt.journal.batch import Batch
from agentmqtt.journal.clock import Clock
from agentmqtt.journal.listing import MOST, commands, listing
from agentmqtt.journal.shelf import Shelf
from agentmqtt.names import Kind, Parsed, Topics
from agentmqtt.options import JournalOptions
from agentmqtt.session import KEEP
from agentmqtt.sparing import Sparing
from agentmqtt.transport.base import Delivery
from agentmqtt.types import CommandState

log = logging.getLogger("agentmqtt.journal")
T = TypeVar("T")
Publish = Callable[[str, bytes, bool], None]


class Desk:
    """Takes deliveries one by one, in order, without waiting; `publish(topic, payload, retain)` sends.

    `closed` is true while the disk does not work: then nothing is decided and nothing answered.
    `visible` says whether a client may know of a run: requests about no name carry no name that a broker could judge.
    """

    def __init__(self, shelf: Shelf, batch: Batch, publish: Publish, options: JournalOptions) -> None:
        self.topics = Topics(options.root)
        self.leases = Leases(options.lease, options.grace)
        self.audience = Audience(options.lease)
        self.clock = Clock()
        self.closed = False
        self.visible: Callable[[str, str], bool] = lambda _client, _workflow: True
        self._sparing = Sparing(log)
        self.fetch: Callable[[str, Fetch], None] = lambda _client, _fetch: None
        self.tails: dict[str, float] = {}
        self._shelf, self._batch, self._publish, self._options = shelf, batch, publish, options
        self._deferred: list[Callable[[], None]] = []
        self._waiting = 0

    # ---- frames

    def on_frame(self, delivery: Delivery) -> object:
        parsed = self.topics.parse(delivery.topic)
        frame = self._decoded(wire.decode_frame, delivery)
        if parsed is None or frame is None or self.closed:
            return None
        ledger = self._shelf.at_level(parsed.level) or self._stranger(parsed)
        if ledger is not None:
            was_online, holder = ledger.online, ledger.holder
            decided = ledger.on_frame(frame, self.clock.now())
            if ledger.holder is None and holder is not None:  # it ended or released
                self.leases.drop(holder, ledger.workflow)
            elif ledger.holder is not None and frame.epoch == ledger.epoch:
                self._seen_by_frame(ledger, was_online)
            self.apply(ledger, decided)
        return self._hold_back(delivery)

    def _seen_by_frame(self, ledger: Ledger, was_online: bool) -> None:
        if ledger.holder is not None:
            for name in self.leases.seen(ledger.holder, self.clock.monotonic()):
                self._revive(self._shelf.ledgers[name])
        if not was_online and ledger.online:
            self.apply(ledger, [fx.Restate(urgent=True), *ledger.hand(), *ledger.hand_again()])

    def _stranger(self, parsed: Parsed) -> Ledger | None:
        """A channel that this journal does not know, only to answer with; it is not kept."""
        try:
            return Ledger(names.decode_name(parsed.level))
        except BadName:
            self._sparing.warning(
                "a frame on %r, whose full name is not known here; its owner has to claim", parsed.level
            )
            return None

    def _hold_back(self, delivery: Delivery) -> object:
        """Above the backlog the broker gets its acknowledgement only after the commit (§9.3)."""
        self._waiting += 1
        self._batch.say_latest("release", self.release)
        if self._waiting <= self._options.backlog:
            return None
        self._deferred.append(delivery.ack)
        return KEEP

    def release(self) -> None:
        """The disk caught up, or gave up."""
        deferred, self._deferred, self._waiting = self._deferred, [], 0
        for ack in deferred:
            ack()

    # ---- commands

    def on_command(self, delivery: Delivery) -> None:
        parsed = self.topics.parse(delivery.topic)
        if parsed is None or self.closed or delivery.retain:  # a command is never retained (§7.1)
            return
        workflow, sender = self._workflow_of(parsed.level), parsed.client
        now = self.clock.now()
        command = self._decoded(
            lambda data: wire.decode_command(data, workflow=workflow, sender=sender, now=now), delivery
        )
        if command is None or not self._belongs(parsed, command.workflow):
            return
        if len(delivery.payload) > self._options.page:  # it would not fit where it is handed on
            reason = f"a command has at most {self._options.page} bytes; send a reference"
            self.answer(sender, Outcome(command.workflow, command.id, CommandState.REJECTED, reason, now))
        else:
            self._accept(command, sender)

    def _accept(self, command: Command, sender: str) -> None:
        ledger = self._shelf.open(command.workflow)
        if ledger is None:
            self._sparing.warning("no room for another channel: command %s for %r waits", command.id, command.workflow)
            return
        self.apply(ledger, ledger.on_command(command, sender, self.clock.now(), secrets.token_bytes(8)))

    def _workflow_of(self, level: str) -> str:
        known = self._shelf.at_level(level)
        if known is not None:
            return known.workflow
        return "" if names.is_hashed(level) else names.decode_name(level)

    def _belongs(self, parsed: Parsed, workflow: str) -> bool:
        if names.matches(parsed.level, workflow):
            return True
        self._sparing.warning("a message for %r came on the topic of another workflow; it was ignored", workflow)
        return False

    # ---- requests

    def on_request(self, delivery: Delivery) -> None:
        parsed = self.topics.parse(delivery.topic)
        request = self._decoded(lambda data: wire.decode_request(data, workflow=self._named(parsed)), delivery)
        if parsed is None or request is None or self.closed:
            return
        if parsed.kind is Kind.CLIENT_REQ:
            known = self._about_no_name(request, parsed.client)
        else:
            known = self._about_a_name(request, parsed)
        if not known:
            log.warning("%s does not belong on %s; it was ignored", type(request).__name__, delivery.topic)

    def _about_no_name(self, request: Request, client: str) -> bool:
        """Whether it was a request that a client makes on its own topic."""
        match request:
            case Watching(boot, conn, names):
                seen = [name for name in names if self.visible(client, name)]
                self.audience.seen(client, boot, conn, seen, self.clock.monotonic(), self.clock.now())
            case Renew(boot, conn):
                self._seen(client, boot, conn)
            case ListRuns():
                found = listing(self._shelf.ledgers, request, lambda name: self.visible(client, name))
                self.answer(client, found)
            case _:
                return False
        return True

    def _about_a_name(self, request: Request, parsed: Parsed) -> bool:
        """Whether it was a request that belongs on the topic of its name."""
        if not isinstance(request, AboutName) or not self._belongs(parsed, request.workflow):
            return isinstance(request, AboutName)
        ledger, client = self._shelf.ledgers.get(request.workflow), parsed.client
        match request:
            case Claim() if parsed.kind is Kind.OWN:
                self._claim(request, client)
            case _ if parsed.kind is Kind.OWN:
                return False
            case Fetch():
                self.fetch(client, request)
            case Describe():
                known = ledger or Ledger(request.workflow)
                self.answer(client, known.status(self.clock.now(), request.request))
            case ListCommands():
                self.answer(client, commands(ledger, request))
            case ListWatchers():
                self.answer(client, self._watchers(request))
            case Withdraw():
                self._withdraw(request, client)
            case _:
                return False
        return True

    def _watchers(self, request: ListWatchers) -> WatcherList:
        found = sorted(self.audience.of(request.workflow, self.clock.monotonic()), key=lambda row: row[1])[:MOST]
        return WatcherList(request.request, request.workflow, tuple(WatcherRow(*row) for row in found))

    def _withdraw(self, request: Withdraw, client: str) -> None:
        ledger = self._shelf.open(request.workflow)
        if ledger is not None:
            self.apply(ledger, ledger.on_withdraw(request, client, self.clock.now(), secrets.token_bytes(8)))

    def _named(self, parsed: Parsed | None) -> str:
        return "" if parsed is None or parsed.kind is Kind.CLIENT_REQ else self._workflow_of(parsed.level)

    def _claim(self, claim: Claim, client: str) -> None:
        ledger = self._shelf.open(claim.workflow)
        if ledger is None:
            self._sparing.warning("no room for another channel: %r cannot be claimed; raise `channels`", claim.workflow)
            return
        old = ledger.holder
        decided = ledger.on_claim(claim, client, self.clock.now(), secrets.token_bytes(8))
        if old is not None and ledger.holder != old:
            self.leases.drop(old, ledger.workflow)
        if ledger.holder == (client, claim.boot):
            self.leases.hold(ledger.holder, ledger.workflow, self.clock.monotonic(), claim.conn)
        self.apply(ledger, decided)

    # ---- presence (§5.4)

    def on_alive(self, delivery: Delivery) -> None:
        parsed = self.topics.parse(delivery.topic)
        alive = self._decoded(wire.decode_alive, delivery) if delivery.payload else None
        if parsed is None or alive is None or self.closed:
            return
        if not alive.online:
            self.audience.lost(parsed.client, alive.boot, alive.conn, self.clock.monotonic())
            for name in self.leases.died((parsed.client, alive.boot), alive.conn, self.clock.monotonic()):
                self.lost(self._shelf.ledgers[name])
        elif not delivery.retain:  # an old birth proves nothing
            self._seen(parsed.client, alive.boot, alive.conn)

    def _seen(self, client: str, boot: bytes, conn: int) -> None:
        holder = (client, boot)
        news = self.leases.seen(holder, self.clock.monotonic(), conn)
        for name in self.leases.names(holder):
            ledger = self._shelf.ledgers[name]
            if name in news or not ledger.heard:
                self._revive(ledger)

    def _revive(self, ledger: Ledger) -> None:
        changed = ledger.owner_seen()
        again = [*ledger.hand(), *ledger.hand_again()]
        self.apply(ledger, [*again, fx.Restate(urgent=True)] if changed else again)

    def lost(self, ledger: Ledger) -> None:
        ledger.owner_lost()
        self.apply(ledger, [fx.Restate(urgent=True)])

    def hold_all(self) -> None:
        """After a restart every owner has one lease to come back."""
        now = self.clock.monotonic()
        for ledger in self._shelf.ledgers.values():
            if ledger.holder is not None:
                self.leases.hold(ledger.holder, ledger.workflow, now)

    # ---- persist, then tell

    def apply(self, ledger: Ledger, decided: list[fx.Effect]) -> None:
        """Queue what a ledger decided: the writes now, everything else after their commit."""
        name = ledger.workflow
        for effect in decided:
            match effect:
                case fx.Append(epoch, first, time, entries):
                    self._batch.write(self._shelf.append(name, epoch, first, time, entries))
                case fx.Truncate(after):
                    self._batch.write(self._shelf.truncate(name, after))
                case fx.Trim(upto):
                    self._batch.write(self._shelf.trim(name, upto))
                case fx.SaveCommand(seq):
                    self._batch.write(self._shelf.command(name, seq))
                case fx.DropCommand(seq):
                    self._batch.write(self._shelf.drop_command(name, seq))
                case fx.SaveChannel():
                    self._batch.save(name)
                case _:
                    self._say(ledger, effect)

    def _say(self, ledger: Ledger, effect: fx.Effect) -> None:
        match effect:
            case fx.Receipt(ack):
                topic, data = self.topics.ack(ledger.workflow), wire.encode(ack)
                key = f"ack {ledger.workflow} {ack.why or ''}"
                self._batch.say_latest(key, lambda: self._publish(topic, data, False))
            case fx.Tell(client, message):
                self.answer(client, message)
            case fx.Restate(urgent):
                if urgent:
                    self.state(ledger)
                else:
                    self.tails.setdefault(ledger.workflow, self.clock.monotonic() + self._options.status_delay)
            case _:
                raise AssertionError(f"{effect!r} is a write")

    def answer(self, client: str, message: Response, *, deflate: bool = False) -> None:
        """Send to one client after the commit of everything decided so far."""
        topic, data = self.topics.client_res(client), wire.encode(message, deflate=deflate)
        self._batch.say(lambda: self._publish(topic, data, False))

    def state(self, ledger: Ledger) -> None:
        """Publish the retained status, as decided now, after the commit."""
        self.tails.pop(ledger.workflow, None)
        if not ledger.inc:
            return
        topic, data = self.topics.status(ledger.workflow), wire.encode(ledger.status(self.clock.now()))
        self._batch.say_latest(topic, lambda: self._publish(topic, data, True))

    def state_tails(self) -> None:
        """Publish statuses whose tail moved, on the trailing edge (§8.2)."""
        now = self.clock.monotonic()
        for name in [name for name, due in self.tails.items() if due <= now]:
            if (ledger := self._shelf.ledgers.get(name)) is not None:
                self.state(ledger)

    def _decoded(self, decode: Callable[[bytes], T], delivery: Delivery) -> T | None:
        try:
            return decode(delivery.payload)
        except WireError as error:
            self._sparing.warning("ignored a message on %s: %s", delivery.topic, error)
            return None
