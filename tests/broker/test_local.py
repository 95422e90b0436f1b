"""The client in the broker's own process: the transport seam without a socket."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agentmqtt.broker.engine import Engine
from agentmqtt.broker.keeper import InMemory
from agentmqtt.broker.limits import Limits
from agentmqtt.broker.local import LocalConnection, LocalTransport
from agentmqtt.errors import LinkLost, Refused, TakenOver, TooLarge, Unreachable
from agentmqtt.transport.base import Delivery, Hello, Transport, Will
from tests.broker import wire
from tests.broker.wire import BYE, PING, PONG, WELCOME, Door, Peer, arrive, engine, settle


class Slow(InMemory):
    """Nothing is safe before `commit`."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, tuple[object, ...]]] = []

    def then(self, call, *args) -> None:
        self.calls.append((call, args))

    def commit(self) -> None:
        calls, self.calls = self.calls, []
        for call, args in calls:
            call(*args)


class Inbox:
    """What a local client was given; it acknowledges at once unless told not to."""

    def __init__(self, *, ack: bool = True) -> None:
        self.ack = ack
        self.got: list[Delivery] = []

    def __call__(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        if self.ack:
            delivery.ack()

    @property
    def payloads(self) -> list[bytes]:
        return [delivery.payload for delivery in self.got]


async def local(broker: Engine, inbox: Inbox, name: str = "journal", **how: object) -> LocalConnection:
    return await LocalTransport(broker).connect(Hello(name, 20, inbox, **how))


async def test_it_is_a_transport() -> None:
    transport: Transport = LocalTransport(engine())
    assert transport.describe() == "the broker in this process"


async def test_it_gets_what_clients_publish_and_they_get_what_it_publishes() -> None:
    broker, inbox = engine(), Inbox()
    here, peer = await local(broker, inbox), await arrive(broker, "p")
    await here.subscribe(["root/+/in"])
    assert await peer.ask(wire.subscribe(1, ("root/x/ack", 1)), wire.publish("root/x/in", b"1", 1, 7)) == (
        wire.suback(1, 1) + wire.puback(7)
    )
    await here.publish("root/x/ack", b"2")
    assert inbox.payloads == [b"1"]
    assert await peer.heard() == wire.publish("root/x/ack", b"2", 1, 1)
    await here.unsubscribe(["root/+/in"])
    await peer.ask(wire.publish("root/x/in", b"3", 1, 8))
    assert inbox.payloads == [b"1"]


async def test_it_may_publish_from_within_a_delivery() -> None:
    broker = engine()
    echoed: list[bytes] = []

    def echo(delivery: Delivery) -> None:
        delivery.ack()
        echoed.append(delivery.payload)
        if len(echoed) < 2_000:
            here.publish("t", b"%d" % len(echoed))

    here = await LocalTransport(broker).connect(Hello("e", 20, echo))
    await here.subscribe(["t"])
    await here.publish("t", b"0")
    while len(echoed) < 2_000:
        await asyncio.sleep(0)
    assert echoed == [b"%d" % n for n in range(2_000)]


async def test_retained_messages_come_with_their_flag() -> None:
    broker, inbox = engine(), Inbox()
    here = await local(broker, inbox)
    await here.publish("s", b"p", retain=True)
    await here.subscribe(["s"])
    await settle()
    assert [(d.payload, d.retain, d.dup) for d in inbox.got] == [(b"p", True, False)]


async def test_a_session_that_is_kept_is_resumed_with_what_was_not_acknowledged() -> None:
    broker, inbox = engine(), Inbox(ack=False)
    here, peer = await local(broker, inbox), await arrive(broker, "p")
    await here.subscribe(["t"])
    await peer.ask(wire.publish("t", b"1", 1, 1))
    await here.close()
    await peer.ask(wire.publish("t", b"2", 1, 2))
    assert inbox.payloads == [b"1"]
    inbox.got[0].ack()  # too late, its connection is gone
    again = Inbox()
    await local(broker, again)
    await settle()
    assert [(d.payload, d.dup) for d in again.got] == [(b"1", True), (b"2", False)]
    assert broker.sessions["journal"].unacknowledged == 0


async def test_a_session_without_expiry_ends_with_the_connection() -> None:
    broker = engine()
    here = await local(broker, Inbox(), session_expiry=0)
    await here.subscribe(["t"])
    await here.close()
    assert not broker.sessions
    assert isinstance(here.lost.result(), LinkLost)
    with pytest.raises(LinkLost):
        await here.publish("t", b"")
    with pytest.raises(LinkLost):
        await here.subscribe(["t"])
    with pytest.raises(LinkLost):
        await here.unsubscribe(["t"])
    await here.close()


@pytest.mark.parametrize("goodbye", [True, False])
async def test_its_will_is_for_an_end_without_goodbye(goodbye: bool) -> None:
    broker = engine()
    here = await local(broker, Inbox(), will=Will("w", b"gone"))
    await here.close(goodbye=goodbye)
    assert (broker._retained.get("w") is None) is goodbye


async def test_a_second_one_with_its_name_takes_over() -> None:
    broker, inbox = engine(), Inbox()
    first = await local(broker, Inbox())
    second = await local(broker, inbox)
    assert isinstance(await first.lost, TakenOver)
    await second.subscribe(["t"])
    await second.publish("t", b"p")
    await settle()
    assert inbox.payloads == [b"p"]


async def test_nobody_on_the_network_can_be_it() -> None:
    broker = engine()
    here = await local(broker, Inbox())
    peer = Peer(broker)
    assert await peer.ask(wire.connect("journal")) == b"\x20\x02\x00\x05"
    assert not here.lost.done()
    await arrive(broker, "taken", door=Door({"ann": b"a"}), user="ann", password=b"a")
    with pytest.raises(Refused, match="taken"):
        await local(broker, Inbox(), "taken")
    with pytest.raises(Unreachable, match="no room"):
        await local(engine(sessions=0), Inbox())


async def test_what_cannot_be_is_refused_by_name() -> None:
    here = await local(engine(subscriptions=1), Inbox())
    with pytest.raises(Refused, match=r"a#") as caught:
        await here.subscribe(["ok", "a#", "more"])
    assert caught.value.filters == ("a#", "more")
    for topic in ("", "a/+", "/" * 100):
        with pytest.raises(Refused):
            await here.publish(topic, b"")
    with pytest.raises(TooLarge, match="1048577 bytes"):
        await here.publish("t", bytes((1 << 20) + 1))


async def test_a_slow_one_makes_publishers_wait_and_loses_nothing() -> None:
    broker, inbox = engine(local_window=10, queue=5), Inbox(ack=False)
    here = await local(broker, inbox)
    flood, other = await arrive(broker, "flood"), await arrive(broker, "other")
    await here.subscribe(["t"])
    heard = await flood.ask(*(wire.publish("t", b"%d" % n, 1, n + 1) for n in range(100)))
    assert len(inbox.got) == 10
    assert heard == b"".join(wire.puback(n + 1) for n in range(11))  # one beyond the window, then it is not read
    assert flood.pipe.paused
    assert await other.ask(PING) == PONG
    done = 0
    while done < 100:
        inbox.got[done].ack()
        done += 1
        await settle()
        assert broker.sessions["journal"].unacknowledged <= 11
    assert inbox.payloads == [b"%d" % n for n in range(100)]
    assert not flood.pipe.paused


async def test_when_a_slow_one_goes_its_publishers_go_on() -> None:
    broker, inbox = engine(local_window=10), Inbox(ack=False)
    here, flood = await local(broker, inbox), await arrive(broker, "flood")
    await here.subscribe(["t"])
    await flood.ask(*(wire.publish("t", b"", 1, n + 1) for n in range(50)))
    assert flood.pipe.paused
    await here.close()
    assert await flood.ask(BYE) != b""
    assert flood.closed


async def test_publishers_in_this_process_wait_too() -> None:
    broker, inbox = engine(local_window=4), Inbox(ack=False)
    slow, fast = await local(broker, inbox, "slow"), await local(broker, Inbox(), "fast")
    await slow.subscribe(["t"])
    answers = [fast.publish("t", b"%d" % n) for n in range(8)]
    await settle()
    assert [answer.done() for answer in answers] == [True] * 4 + [False] * 4
    for n in range(8):
        inbox.got[n].ack()
        await settle()
    assert all(answer.done() for answer in answers)
    more = [fast.publish("t", b"%d" % n) for n in range(8)]
    await fast.close()
    with pytest.raises(LinkLost):
        await more[-1]


async def test_it_never_waits_for_itself() -> None:
    here = await local(engine(local_window=2), Inbox(ack=False))
    await here.subscribe(["t"])
    async with asyncio.timeout(5):
        for _ in range(6):
            await here.publish("t", b"")


async def test_a_handler_that_fails_leaves_the_message_unacknowledged(caplog: pytest.LogCaptureFixture) -> None:
    broker = engine()

    def broken(delivery: Delivery) -> None:
        raise RuntimeError("full")

    here = await LocalTransport(broker).connect(Hello("b", 20, broken))
    await here.subscribe(["t"])
    with caplog.at_level(logging.ERROR):
        await here.publish("t", b"p")
        await settle()
    assert "'b' failed on a message to 't'" in caplog.text
    assert broker.sessions["b"].unacknowledged == 1


async def test_every_answer_waits_for_the_keeper() -> None:
    """Persist, then acknowledge: CONNACK, SUBACK, UNSUBACK, PUBACK, PUBREC, PUBCOMP and the futures in this process."""

    keeper = Slow()
    broker = Engine(Limits(), keeper=keeper)
    peer = Peer(broker)
    for said, answer in [
        (wire.connect("p", clean=False), WELCOME),
        (wire.subscribe(1, ("t", 0)), wire.suback(1, 0)),
        (wire.publish("u", b"", 1, 2), wire.puback(2)),
        (wire.publish("u", b"", 2, 3), wire.pubrec(3)),
        (wire.pubrel(3), wire.pubcomp(3)),
        (wire.unsubscribe(4, "t"), wire.unsuback(4)),
    ]:
        assert await peer.ask(said) == b""
        keeper.commit()
        assert await peer.heard() == answer
    here = await local(broker, Inbox())
    done = here.publish("t", b"p")
    await settle()
    assert not done.done()
    keeper.commit()
    await done


async def test_a_client_that_leaves_before_its_session_is_safe_hears_nothing_more() -> None:
    keeper = Slow()
    broker = Engine(Limits(), keeper=keeper)
    peer = Peer(broker)
    assert await peer.ask(wire.connect("p", keepalive=10, clean=False)) == b""
    await peer.vanish()
    peer.pipe.closed = True
    keeper.commit()
    assert await peer.heard() == b""
    assert broker.sessions["p"].link is None
