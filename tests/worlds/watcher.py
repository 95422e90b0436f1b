"""The watcher of a world: it keeps its saved state together with what the application shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentmqtt.core.reader import Reader, Saved
from agentmqtt.frames import Ack, Fetch, Frame, Page
from agentmqtt.types import Event, Gap, Value
from tests.worlds.events import numbers
from tests.worlds.facts import WatcherFacts
from tests.worlds.journal import NAME

if TYPE_CHECKING:
    from tests.worlds.world import World


class SimWatcher:
    """A thin shell around a reader, and an application that may be slow."""

    kind = "watcher"

    def __init__(self, world: World, *, stored: bool, live: bool, capacity: int, slow: bool, at_end: bool) -> None:
        self.world = world
        self.hits = world.hits
        self.client = f"watcher{len(world.watchers)}"
        self.stored, self.live, self.capacity, self.slow, self.at_end = stored, live, capacity, slow, at_end
        self.saved: Value = None
        self.told = self.kept = (b"", 0)
        self.facts = WatcherFacts(self.client, stored)
        world.facts.watchers.append(self.facts)
        self.up = False
        self.start()

    def start(self) -> None:
        saved = None if self.saved is None else Saved.unpack(self.saved)
        self.reader = Reader(
            NAME,
            saved,
            at_end=self.at_end,
            live=self.live,
            stored=self.stored,
            capacity=self.capacity,
            held_limit=self.world.held,
            first_request=self.world.fresh_number(),
        )
        self.told = self.kept
        if self.reader.inc == self.told[0] and self.reader.epoch < self.told[1]:
            self.world.facts.lies.append("P5 a watcher forgot in a restart which epoch is the newest")
        self.up = self.ready = self.linked = True
        self.unread = 0
        self.world.bus.subscribe(self, "out", "status", "res:" + self.client, *(["ack"] if self.stored else []))
        self.waiting = self.world.random() < 0.4
        if not self.waiting:
            self._fetch(self.reader.fetch())

    def save(self) -> None:
        """Application state and cursor in one transaction."""
        if self.reader.saved != Saved():
            self.saved, self.kept = self.reader.saved.pack(), self.told
            self.facts.story.append(("s",))

    def crash(self) -> None:
        self.hits["watcher crashed"] += 1
        self.up = self.ready = False
        self.facts.story.append(("c",))
        self.world.bus.unsubscribe(self)
        self.world.bus.lose(self, 0.8)

    def relink(self) -> None:
        """The link breaks, or comes back."""
        if self.linked:
            self.world.bus.lose(self, 0.8)
        self.linked = self.ready = not self.linked
        if self.linked:
            self.world.bus.redeliver(self)
            self._fetch(self.reader.probe())

    def on(self, topic: str, _source: str, message: Any) -> None:
        reader = self.reader
        if topic == "out":
            self._on_frame(message)
        elif topic == "status":
            if message.inc == reader.inc and message.epoch >= reader.epoch and message.inc:  # older ones say nothing
                self.facts.story.append(("t", message.inc, message.epoch, message.parent))
                self.told = (message.inc, message.epoch)
            reader.on_status(message)
        elif isinstance(message, Page):
            self._on_page(message)
        elif isinstance(message, Ack):
            reader.on_ack(message)
        if not self.slow:
            self.take(1000)
        if not self.waiting:  # not every subscription stands yet
            self._fetch(reader.fetch())

    def _on_frame(self, frame: Frame) -> None:
        reader = self.reader
        full = len(reader.buffer) >= self.capacity and self.live and not self.stored and not reader.behind
        if self.live and (self.stored or reader.asking):
            self.hits["stored frame held" if self.stored else "frame held during a fetch"] += 1
        reader.on_frame(frame)
        if full and reader.behind:
            self.hits["reader left live mode"] += 1

    def _on_page(self, page: Page) -> None:
        reader = self.reader
        if not reader.asking:
            self.hits["page that nobody asked for"] += 1
        before, at_end = reader.asking, reader._at_end
        reader.on_page(page)
        if at_end and not reader._at_end:
            self.facts.story.append(("b", page.inc, page.tail))
        if before and not reader.asking:
            self.hits["reader met " + page.kind] += 1

    def _fetch(self, fetch: Fetch | None) -> None:
        if fetch is not None and self.ready:
            self.world.bus.publish(self.client, "req", fetch)

    def take(self, count: int) -> None:
        """The application takes what waits."""
        story = self.facts.story
        while count > 0 and (item := self.reader.take()) is not None:
            count -= 1
            inc, position = item.cursor.inc, item.cursor.position
            if isinstance(item, Event):
                story.append(("e", inc, *position, item.span, numbers(item.type, item.data)))
                self.hits["merged text on replay"] += item.span > 1
            elif isinstance(item, Gap):
                story.append(("g", inc, position, item.reason))
            else:
                story.append(("r", inc, position))
        if self.world.random() < 0.5:
            self.save()

    def tick(self) -> None:
        """Its timers: nobody answered, or it was silent for long."""
        self.take(3)
        self.waiting = False
        self._fetch(self.reader.retry() if self.reader.asking else self.reader.probe())


FINAL = {"applied", "rejected", "expired", "too_late", "unknown"}


class SimSender:
    """Somebody who sends commands until it knows what became of them."""

    kind = "sender"

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = "sender"
        self.ready = True
        self.open: dict[str, Any] = {}
        self.asleep: dict[str, Any] = {}
        world.bus.subscribe(self, "res:sender")

    def send(self, command: Any) -> None:
        self.open[command.id] = command
        self.world.bus.publish(self.client, "in", command)

    def relink(self) -> None:
        """Its link breaks, and what was on its way is lost; or it comes back."""
        if self.ready:
            self.world.bus.lose(self, 1)
        self.ready = not self.ready

    def on(self, _topic: str, _source: str, outcome: Any) -> None:
        self.world.facts.told[outcome.id].append(str(outcome.state))
        if outcome.state not in ("queued", "accepted"):
            self.open.pop(outcome.id, None)

    def doze(self) -> list[str]:
        """One of its commands is not asked about for hours: its phone is off."""
        if self.open:
            name = next(iter(self.open))
            self.asleep[name] = self.open.pop(name)
        return list(self.asleep)

    def wake(self) -> None:
        self.open |= {name: command for name, command in self.asleep.items() if not FINAL & set(self._told(name))}
        self.tick()

    def _told(self, name: str) -> list[str]:
        return self.world.facts.told.get(name, [])

    def tick(self) -> None:
        for command in self.open.values():
            self.world.bus.publish(self.client, "in", command)
