"""What an identity may not do: publish, subscribe, receive, keep."""

from __future__ import annotations

import pytest

from tests.broker import wire
from tests.broker.wire import BYE, PING, PONG, Door, arrive, engine, settle


@pytest.mark.parametrize("slow", [True, False])
async def test_rules_hold_for_publish_subscribe_and_delivery(slow: bool) -> None:
    denied = {("publish", "no"), ("subscribe", "secret"), ("receive", "open/secret")}
    door = Door(denied=denied, slow=slow)
    broker = engine()
    peer, free = await arrive(broker, "p", door=door), await arrive(broker, "free")
    await free.ask(wire.subscribe(1, ("#", 0)))
    assert await peer.ask(wire.subscribe(1, ("secret", 1), ("open/+", 1))) == wire.suback(1, 0x80, 1)
    heard = await peer.ask(wire.publish("no", b"", 1, 1), wire.publish("yes", b"", 1, 2), PING)
    assert heard == wire.puback(1) + wire.puback(2) + PONG
    assert await free.heard() == wire.publish("yes", b"")
    await free.ask(wire.publish("open/secret", b"", 1, 1), wire.publish("open/a", b"", 1, 2))
    assert await peer.heard() == wire.publish("open/a", b"", 1, 1)
    assert broker.sessions["p"].unacknowledged == 1


async def test_rules_hold_for_retained_messages() -> None:
    door = Door(denied={("receive", "s/secret")}, slow=True)
    broker = engine()
    writer = await arrive(broker, "w")
    await writer.ask(wire.publish("s/secret", b"", 1, 1, retain=True), wire.publish("s/secret", b"p", retain=True))
    peer = await arrive(broker, "p", door=door)
    assert await peer.ask(wire.subscribe(1, ("s/+", 1))) == wire.suback(1, 1)
    await writer.ask(wire.publish("s/open", b"p", 1, 1, retain=True))
    assert await peer.heard() == wire.publish("s/open", b"p", 1, 1)


async def test_a_resumed_session_loses_the_subscriptions_it_may_no_longer_have() -> None:
    broker = engine()
    peer = await arrive(broker, "p", clean=False)
    await peer.ask(wire.subscribe(1, ("a", 1), ("b", 1)), BYE)
    peer = await arrive(broker, "p", clean=False, door=Door(denied={("subscribe", "a")}))
    assert list(broker.sessions["p"].subscriptions) == ["b"]


async def test_messages_keep_their_order_while_rules_are_asked() -> None:
    broker = engine()
    peer, reader = await arrive(broker, "p", door=Door(slow=True)), await arrive(broker, "r", door=Door(slow=True))
    await reader.ask(wire.subscribe(1, ("#", 1)))
    await peer.ask(*(wire.publish(f"t/{n % 7}", b"%d" % n, 1, n) for n in range(1, 60)))
    for _ in range(30):
        await settle()
    heard = await reader.heard()
    assert [payload for _, payload, _ in wire.published(heard)] == [b"%d" % n for n in range(1, 60)]
