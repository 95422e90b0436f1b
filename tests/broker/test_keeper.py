"""What the engine tells the keeper: enough to rebuild every persistent session and retained message."""

from __future__ import annotations

from functools import partial

from agentmqtt.broker.engine import Engine
from agentmqtt.broker.keeper import InMemory
from agentmqtt.broker.limits import Limits
from agentmqtt.broker.local import LocalTransport
from agentmqtt.transport.base import Delivery, Hello
from tests.broker import wire
from tests.broker.wire import BYE, Door, arrive, settle

NOTES = ["opened", "closed", "dropped", "subscribed", "unsubscribed", "queued", "progressed", "settled", "inbound"]
NOTES += ["released", "retained"]


class Notes(InMemory):
    """Writes down every note; everything is safe at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        for name in NOTES:
            setattr(self, name, partial(self.note, name))

    def note(self, name: str, first: object, *rest: object) -> None:
        of = getattr(first, "client_id", first)
        what = [getattr(item, "number", getattr(item, "payload", item)) for item in rest]
        self.lines.append(" ".join(map(str, [name, of, *what])))

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


async def test_a_persistent_session_is_noted_step_by_step() -> None:
    notes = Notes()
    broker = Engine(Limits(), keeper=notes, unqueued=["live"])
    reader, writer = await arrive(broker, "r", clean=False), await arrive(broker, "w")
    assert notes.take() == ["opened r"]
    await reader.ask(wire.subscribe(1, ("t", 2), ("live", 1), ("gone", 1)), wire.unsubscribe(2, "gone", "never"))
    assert notes.take() == ["subscribed r t 2", "subscribed r live 1", "subscribed r gone 1", "unsubscribed r gone"]
    await writer.ask(
        wire.publish("t", b"", 0),
        wire.publish("live", b"", 1, 1),
        wire.publish("t", b"", 1, 2),
        wire.publish("t", b"", 2, 3),
    )
    assert notes.take() == ["queued r 3", "queued r 4", "progressed r 3", "progressed r 4"]
    await reader.ask(wire.puback(1), wire.puback(2), wire.pubrec(3), wire.pubcomp(3))
    assert notes.take() == ["settled r 3", "progressed r 4", "settled r 4"]
    await reader.ask(wire.publish("u", b"", 2, 9), wire.publish("u", b"", 2, 9), wire.pubrel(9), wire.pubrel(9))
    assert notes.take() == ["inbound r 9", "released r 9"]
    await reader.ask(BYE)
    await writer.ask(wire.publish("live", b"", 1, 4), wire.publish("t", b"", 1, 5))
    assert notes.take() == ["closed r", "queued r 5"]
    await arrive(broker, "r", clean=True)
    assert notes.take() == ["dropped r"]


async def test_what_a_client_may_not_receive_is_settled() -> None:
    notes = Notes()
    broker = Engine(Limits(), keeper=notes)
    reader = await arrive(broker, "r", clean=False, door=Door(denied={("receive", "t/secret")}))
    await reader.ask(wire.subscribe(1, ("t/+", 1)))
    writer = await arrive(broker, "w")
    await writer.ask(wire.publish("t/secret", b"", 1, 1))
    await settle()
    assert notes.take() == ["opened r", "subscribed r t/+ 1", "queued r 1", "settled r 1"]


async def test_a_second_acknowledgement_in_this_process_is_no_news() -> None:
    notes = Notes()
    broker = Engine(Limits(), keeper=notes)
    got: list[Delivery] = []
    here = await LocalTransport(broker).connect(Hello("j", 20, got.append))
    await here.subscribe(["t"])
    await here.publish("t", b"")
    await settle()
    for _ in range(2):
        got[0].ack()
    assert notes.take() == ["opened j", "subscribed j t 1", "queued j 1", "progressed j 1", "settled j 1"]


async def test_retained_messages_are_noted() -> None:
    notes = Notes()
    broker = Engine(Limits(), keeper=notes)
    writer = await arrive(broker, "w")
    await writer.ask(
        *(wire.publish("s", payload, retain=True) for payload in (b"", b"1", b"2", b"")), wire.publish("s", b"3")
    )
    assert notes.take() == ["retained s b'1'", "retained s b'2'", "retained s None"]
