"""A session on a bus that does wrong when told to."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agentmqtt import wire
from agentmqtt.errors import LinkLost, Refused, TakenOver, Unreachable, UsageError
from agentmqtt.session import KEEP, link
from agentmqtt.transport.base import Delivery
from agentmqtt.transport.memory import MemoryBus, MemoryTransport
from tests.session.kit import ALIVE, Ears, Recorder, Ups, presence, session

# -- up and down --------------------------------------------------------------------------------------------


async def test_entering_waits_for_nobody_and_connected_tells_why_not() -> None:
    bus = MemoryBus()
    bus.stop()
    async with session(bus) as down:
        assert not down.up
        assert down.publish("a", b"") is None
        with pytest.raises(Unreachable, match="stopped"):
            await down.connected(0.05)
        assert isinstance(down.last_error, Unreachable)
        bus.start()
        await down.connected(5)
        assert down.up


async def test_connected_without_any_answer_names_the_broker() -> None:
    bus = MemoryBus()
    with bus.partition("client"):
        async with session(bus) as waiting:
            with pytest.raises(Unreachable, match=r"memory://bus was not reached within 0\.01 s"):
                await waiting.connected(0.01)


async def test_a_cut_link_comes_back_with_its_subscriptions() -> None:
    bus, ears = MemoryBus(), Ears()
    async with session(bus) as client:
        changes = Ups(client)
        client.subscribe("a/+", ears)
        first = await changes.next()
        assert client.conn == first
        bus.cut("client")
        assert isinstance(await changes.next(), LinkLost)
        second = await changes.next()
        assert client.conn == second > first
        published = client.publish("a/b", b"x")
        assert published is not None
        await published
        assert (await ears.next()).payload == b"x"


async def test_a_broker_without_memory_gets_every_subscription_again() -> None:
    bus, ears = MemoryBus(), Ears()
    async with session(bus) as client:
        changes = Ups(client)
        client.subscribe("a", ears)
        await changes.next()
        bus.restart(keep_sessions=False, keep_retained=False)
        await changes.next()
        await changes.next()
        assert bus.filters("client") == {"a"}


async def test_a_silent_link_is_given_up_and_made_again() -> None:
    bus = MemoryBus()
    async with session(bus, keepalive=0.02) as client:  # type: ignore[arg-type]
        changes = Ups(client)
        await changes.next()
        with bus.partition("client"):
            assert "silent" in str(await changes.next())
        await changes.next()


async def test_callbacks_that_fail_are_counted_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    bus = MemoryBus()
    client = session(bus)
    client.on_up.append(lambda conn: 1 // 0)
    changes = Ups(client)
    async with client:
        await changes.next()
        assert client.up
        assert client.faults == 1
        assert "callback" in caplog.text


async def test_a_session_closes_while_it_waits_or_connects() -> None:
    bus = MemoryBus()
    bus.stop()
    async with session(bus, backoff=(1000.0, 1000.0)):
        await asyncio.sleep(0)
    bus.start()
    with bus.partition("client"):
        async with session(bus):
            await asyncio.sleep(0)
    assert bus.clients == frozenset()


async def test_who_waits_is_told_when_the_session_closes() -> None:
    bus = MemoryBus()
    bus.stop()
    client = session(bus)
    async with client:
        ready = asyncio.ensure_future(client.subscribe("a", Ears()).ready())
        connected = asyncio.ensure_future(client.connected())
        await asyncio.sleep(0)
    for waiter in (ready, connected):
        with pytest.raises(LinkLost, match="session was closed"):
            await waiter
    assert client.fatal.cancelled()


# -- subscriptions ------------------------------------------------------------------------------------------


async def test_subscriptions_go_out_in_batches_and_stand_before_up() -> None:
    bus = MemoryBus()
    recorder = Recorder(MemoryTransport(bus))
    client = session(recorder)
    stood: list[int] = []
    client.on_up.append(lambda conn: stood.append(len(bus.filters("client"))))
    async with client:
        subscriptions = [client.subscribe(f"t/{i}", Ears()) for i in range(250)]
        await client.connected(5)
        assert [len(filters) for filters in recorder.asked("subscribe")] == [100, 100, 50]
        assert stood == [250]
        recorder.calls.clear()
        more = [client.subscribe(f"u/{i}", Ears()) for i in range(30)]
        await asyncio.wait_for(more[-1].ready(), 5)
        assert [len(filters) for filters in recorder.asked("subscribe")] == [30]
        for subscription in subscriptions[:120]:
            subscription.close()
        probe = client.subscribe("probe", Ears())
        await asyncio.wait_for(probe.ready(), 5)
        assert [len(filters) for filters in recorder.asked("unsubscribe")] == [100, 20]
        assert len(bus.filters("client")) == 250 + 30 - 120 + 1


async def test_handlers_share_a_filter_until_the_last_one_leaves() -> None:
    bus, first, second = MemoryBus(), Ears(), Ears()
    recorder = Recorder(MemoryTransport(bus))
    async with session(recorder) as client:
        one, two = client.subscribe("a", first), client.subscribe("a", second)
        await client.connected(5)
        bus.publish("a", b"1")
        assert (await first.next()).payload == (await second.next()).payload == b"1"
        one.close()
        one.close()
        bus.publish("a", b"2")
        assert (await second.next()).payload == b"2"
        assert first.heard.empty()
        assert recorder.asked("unsubscribe") == []
        two.close()
        await asyncio.wait_for(client.subscribe("probe", Ears()).ready(), 5)
        assert recorder.asked("unsubscribe") == [["a"]]


async def test_a_later_handler_gets_what_is_retained() -> None:
    bus, first, second = MemoryBus(), Ears(), Ears()
    bus.publish("status", b"s", retain=True)
    async with session(bus) as client:
        client.subscribe("status", first)
        assert (await first.next()).retain
        client.subscribe("status", second)
        assert (await second.next()).payload == b"s"


async def test_a_filter_that_is_wanted_again_at_once_stays() -> None:
    bus, ears = MemoryBus(), Ears()
    async with session(bus) as client:
        subscription = client.subscribe("a", ears)
        await client.connected(5)
        subscription.close()
        await asyncio.wait_for(client.subscribe("a", ears).ready(), 5)
        assert bus.filters("client") == {"a"}


async def test_a_subscription_closed_while_it_is_asked_for_is_dropped() -> None:
    bus = MemoryBus()
    async with session(bus) as client:
        await client.connected(5)
        subscription = client.subscribe("a", Ears())
        while "a" not in bus.filters("client"):
            await asyncio.sleep(0)
        subscription.close()
        with pytest.raises(LinkLost, match="closed"):
            await subscription.ready()
        await asyncio.wait_for(client.subscribe("probe", Ears()).ready(), 5)
        assert bus.filters("client") == {"probe"}


async def test_a_refused_filter_fails_alone_and_may_stand_later() -> None:
    bus = MemoryBus()
    bus.refused_filters.add("closed")
    async with session(bus) as client:
        changes = Ups(client)
        refused, open_ = client.subscribe("closed", Ears()), client.subscribe("open", Ears())
        await changes.next()
        await open_.ready()
        with pytest.raises(Refused, match="closed"):
            await refused.ready()
        bus.refused_filters.clear()
        bus.cut("client")
        await changes.next()
        await changes.next()
        await asyncio.wait_for(refused.ready(), 5)


async def test_ready_waits_over_a_loss() -> None:
    bus = MemoryBus()
    async with session(bus) as client:
        changes = Ups(client)
        subscription = client.subscribe("a", Ears())
        await changes.next()
        bus.stop()
        await changes.next()
        ready = asyncio.ensure_future(subscription.ready())
        await asyncio.sleep(0)
        assert not ready.done()
        bus.start()
        await asyncio.wait_for(ready, 5)


async def test_a_link_lost_before_everything_stands_never_counts_as_up() -> None:
    bus = MemoryBus()
    recorder = Recorder(MemoryTransport(bus))
    client = session(recorder)
    changes = Ups(client)
    async with client:
        client.subscribe("a", Ears())
        while not recorder.asked("subscribe"):
            await asyncio.sleep(0)
        bus.cut("client")
        assert await changes.next() == 2


async def test_a_filter_that_is_none_is_refused_at_once() -> None:
    async with session(MemoryBus()) as client:
        with pytest.raises(UsageError, match="not a topic filter"):
            client.subscribe("a/#/b", Ears())


async def test_what_an_earlier_process_subscribed_is_dropped_when_it_comes() -> None:
    bus, ears = MemoryBus(), Ears()
    async with session(bus) as earlier:
        earlier.subscribe("old", Ears())
        earlier.subscribe("kept", Ears())
        await earlier.connected(5)
    async with session(bus) as client:
        client.subscribe("kept", ears)
        await client.connected(5)
        for _ in range(3):
            bus.publish("old", b"x")
        bus.publish("kept", b"y")
        await ears.next()
        await asyncio.wait_for(client.subscribe("probe", Ears()).ready(), 5)
        assert bus.filters("client") == {"kept", "probe"}


# -- messages -----------------------------------------------------------------------------------------------


async def test_exact_filters_and_patterns_both_hear() -> None:
    bus, exact, pattern, rest = MemoryBus(), Ears(), Ears(), Ears()
    async with session(bus) as client:
        client.subscribe("a/b", exact)
        client.subscribe("a/+", pattern)
        client.subscribe("$share/group/c/#", rest)
        await client.connected(5)
        for topic in ("a/b", "a/c", "c/d/e"):
            bus.publish(topic, topic.encode())
        assert await exact.payloads(1) == [b"a/b"]
        assert await pattern.payloads(2) == [b"a/b", b"a/c"]
        assert await rest.payloads(1) == [b"c/d/e"]


async def test_many_topics_do_not_grow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmqtt.session.routes.MAX_CACHED", 10)
    bus, ears = MemoryBus(), Ears()
    async with session(bus) as client:
        client.subscribe("a/+", ears)
        await client.connected(5)
        for i in range(35):
            bus.publish(f"a/{i}", b"%d" % i)
        assert await ears.payloads(35) == [b"%d" % i for i in range(35)]
        assert len(client._routes._cache) <= 10


async def test_a_handler_that_fails_is_counted_and_its_message_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    bus, ears = MemoryBus(), Ears()

    def fails(delivery: object) -> None:
        raise ZeroDivisionError

    async with session(bus) as client:
        changes = Ups(client)
        client.subscribe("a", fails)
        client.subscribe("a", ears)
        await changes.next()
        bus.publish("a", b"1")
        await ears.next()
        assert client.faults == 1
        assert "handler of a failed" in caplog.text
        await asyncio.wait_for(client.subscribe("probe", Ears()).ready(), 5)
        bus.cut("client")
        await changes.next()
        await changes.next()
        bus.publish("a", b"2")
        assert (await ears.next()).payload == b"2"


async def test_garbage_is_said_ten_times_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever could publish could fill the disk with a line for each message."""
    bus, ears = MemoryBus(), Ears()

    def reads(delivery: Delivery) -> None:
        wire.decode_journal(delivery.payload)

    async with session(bus) as client:
        changes = Ups(client)
        client.subscribe("a", reads)
        client.subscribe("a", ears)
        await changes.next()
        for _ in range(100):
            bus.publish("a", b"[")
            await ears.next()
        lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(lines) == 11
        assert lines[0].startswith("ignored a message on a: ")
        assert "counted" in lines[-1]


async def test_a_kept_message_comes_again_until_it_is_acknowledged() -> None:
    bus, ears, other = MemoryBus(), Ears(KEEP), Ears()
    async with session(bus) as client:
        changes = Ups(client)
        client.subscribe("a", ears)
        client.subscribe("a", other)
        await changes.next()
        bus.publish("a", b"1")
        await ears.next()
        bus.cut("client")
        await changes.next()
        await changes.next()
        again = await ears.next()
        assert (again.payload, again.dup) == (b"1", True)
        again.ack()
        await asyncio.wait_for(client.subscribe("probe", Ears()).ready(), 5)
        bus.cut("client")
        await changes.next()
        await changes.next()
        bus.publish("a", b"2")
        assert (await ears.next()).payload == b"2"


async def test_a_handler_closed_by_another_hears_no_more() -> None:
    bus, ears = MemoryBus(), Ears()
    async with session(bus) as client:
        client.subscribe("a", lambda delivery: second.close())
        second = client.subscribe("a", ears)
        probe = Ears()
        client.subscribe("b", probe)
        await client.connected(5)
        bus.publish("a", b"1")
        bus.publish("b", b"2")
        await probe.next()
        assert ears.heard.empty()


# -- presence -----------------------------------------------------------------------------------------------


async def test_the_birth_stands_after_the_subscriptions_and_before_what_on_up_sends() -> None:
    bus, order = MemoryBus(), []
    async with session(bus, "observer") as observer:
        observer.subscribe("#", lambda delivery: order.append((delivery.topic, delivery.payload)))
        await observer.connected(5)
        client = session(bus, presence=presence("boot"))
        done = Ears()
        client.subscribe("done", done)
        client.on_up.append(lambda conn: client.publish("first", b""))
        client.on_up.append(lambda conn: client.publish("done", b""))
        async with client:
            await done.next()
            assert bus.filters("client") == {"done", ALIVE}
            bus.cut("client")
            await done.next()
        await asyncio.wait_for(observer.subscribe("probe", Ears()).ready(), 5)
    assert [item for item in order if item[0] != "done"] == [
        (ALIVE, b"boot:1:online"),
        ("first", b""),
        (ALIVE, b"boot:1:offline"),  # the will
        (ALIVE, b"boot:2:online"),
        ("first", b""),
        (ALIVE, b"boot:2:offline"),  # the goodbye
    ]
    assert bus.retained[ALIVE] == b"boot:2:offline"


async def test_a_late_will_of_our_own_does_not_stay() -> None:
    bus = MemoryBus()
    async with session(bus, presence=presence("boot")) as client:
        await client.connected(5)
        while bus.retained.get(ALIVE) != b"boot:1:online":
            await asyncio.sleep(0)
        bus.publish(ALIVE, b"boot:0:offline", retain=True)
        while bus.retained[ALIVE] != b"boot:1:online":
            await asyncio.sleep(0)


async def test_a_presence_that_the_broker_does_not_let_us_read_is_no_obstacle() -> None:
    bus = MemoryBus()
    bus.refused_filters.add(ALIVE)
    async with session(bus, presence=presence("boot")) as client:
        await client.connected(5)
    assert bus.retained[ALIVE] == b"boot:1:offline"


# -- two processes, one client ID -----------------------------------------------------------------------------


async def test_the_first_of_two_processes_stops_when_the_broker_tells_it() -> None:
    bus = MemoryBus(announce_takeover=True)
    async with session(bus, presence=presence("one")) as one:
        await one.connected(5)
        subscription = one.subscribe("a", Ears())
        async with session(bus, presence=presence("two")) as two:
            await two.connected(5)
            error = await asyncio.wait_for(asyncio.shield(one.fatal), 5)
            assert isinstance(error, TakenOver)
            assert not one.up
            assert one.publish("a", b"") is None
            with pytest.raises(TakenOver):
                await one.connected()
            with pytest.raises(TakenOver):
                await subscription.ready()
            assert two.up
            assert bus.retained[ALIVE] == b"two:1:online"


async def test_exactly_one_of_two_processes_stops_when_the_broker_tells_nobody() -> None:
    bus = MemoryBus(announce_takeover=False)
    async with session(bus, presence=presence("one")) as one:
        await one.connected(5)
        async with session(bus, presence=presence("two")) as two:
            error = await asyncio.wait_for(asyncio.shield(one.fatal), 10)
            assert isinstance(error, TakenOver)
            await two.connected(5)
            await asyncio.wait_for(two.subscribe("probe", Ears()).ready(), 5)
            assert not two.fatal.done()
            assert bus.retained[ALIVE].startswith(b"two:")
            assert bus.retained[ALIVE].endswith(b":online")


@pytest.mark.parametrize(("stable_after", "again"), [(0.0, []), (1000.0, [[ALIVE]])])
async def test_only_after_a_short_connection_the_presence_is_read_twice(
    stable_after: float, again: list[list[str]]
) -> None:
    """Found with two processes that both stopped: each wrote its birth before it had read the other's."""
    bus = MemoryBus()
    recorder = Recorder(MemoryTransport(bus))
    async with session(recorder, presence=presence("boot"), stable_after=stable_after) as client:
        changes = Ups(client)
        await changes.next()
        assert recorder.asked("subscribe") == [[ALIVE]]
        bus.cut("client")
        await changes.next()
        await changes.next()
        assert recorder.asked("subscribe")[2:] == again


async def test_what_an_earlier_process_left_is_no_rival() -> None:
    bus = MemoryBus()
    bus.publish(ALIVE, b"earlier:9:online", retain=True)
    async with session(bus, presence=presence("boot")) as client:
        await client.connected(5)
        while bus.retained[ALIVE] != b"boot:1:online":
            await asyncio.sleep(0)
        bus.publish(ALIVE, b"earlier:9:offline", retain=True)  # its will comes late
        while bus.retained[ALIVE] != b"boot:1:online":
            await asyncio.sleep(0)
        assert not client.fatal.done()


async def test_a_broker_restored_from_an_old_disk_stops_nobody() -> None:
    bus = MemoryBus()
    async with session(bus, presence=presence("boot")) as client:
        changes = Ups(client)
        await changes.next()
        for _ in range(3):
            bus.stop()
            bus.retained[ALIVE] = b"earlier:9:online"
            bus.start()
            await changes.next()
            await changes.next()
            await asyncio.wait_for(client.subscribe("probe", Ears()).ready(), 5)
        assert not client.fatal.done()


# -- when to try again --------------------------------------------------------------------------------------


async def test_a_refusal_at_the_door_is_final() -> None:
    bus = MemoryBus()
    bus.refused_clients.add("client")
    async with session(bus) as client:
        with pytest.raises(Refused):
            await client.connected(5)
        assert isinstance(client.fatal.result(), Refused)


async def test_a_refusal_after_a_loss_is_final_too() -> None:
    bus = MemoryBus()
    async with session(bus) as client:
        changes = Ups(client)
        await changes.next()
        bus.refused_clients.add("client")
        bus.cut("client")
        await changes.next()
        assert isinstance(await asyncio.wait_for(asyncio.shield(client.fatal), 5), Refused)


@pytest.mark.parametrize("error", [UsageError("not PEM"), ZeroDivisionError("a defect")])
async def test_what_trying_again_cannot_mend_is_final(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(MemoryTransport(MemoryBus()))
    recorder.failures.append(error)
    async with session(recorder) as client:
        with pytest.raises(type(error)):
            await client.connected(5)
        assert ("failed" in caplog.text) is isinstance(error, ZeroDivisionError)


class Dice:
    """Takes the longest of every range, and no time."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    def uniform(self, low: float, high: float) -> float:
        assert low == 0
        self.limits.append(round(high, 6))
        return 0.0


async def test_waits_grow_with_full_jitter_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_dice", dice := Dice())
    recorder = Recorder(MemoryTransport(MemoryBus()))
    recorder.failures += [Unreachable("no")] * 6
    async with session(recorder, backoff=(0.1, 1.5)) as client:
        await client.connected(5)
    assert dice.limits == [0.2, 0.4, 0.8, 1.5, 1.5, 1.5]


@pytest.mark.parametrize(("stable_after", "waits"), [(0.0, [0.2, 0.2, 0.2]), (1000.0, [0.2, 0.4, 0.8])])
async def test_only_a_stable_connection_starts_the_waits_again(
    stable_after: float, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_dice", dice := Dice())
    bus = MemoryBus()
    async with session(bus, backoff=(0.1, 1.5), stable_after=stable_after) as client:
        changes = Ups(client)
        for _ in range(3):
            await changes.next()
            bus.cut("client")
            await changes.next()
        await changes.next()
    assert dice.limits == waits


async def test_the_same_failure_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    recorder = Recorder(MemoryTransport(MemoryBus()))
    recorder.failures += [Unreachable("nobody there")] * 5 + [Unreachable("still nobody")]
    async with session(recorder) as client:
        await client.connected(5)
    assert [record.message for record in caplog.records] == ["nobody there", "still nobody"]


async def test_the_will_and_the_session_are_asked_for() -> None:
    recorder = Recorder(MemoryTransport(MemoryBus()))
    async with session(recorder, presence=presence("boot"), keepalive=7, session_expiry=99) as client:
        await client.connected(5)
    hello = recorder.hellos[0]
    assert (hello.client_id, hello.keepalive, hello.session_expiry) == ("client", 7, 99)
    assert hello.will is not None
    assert (hello.will.topic, hello.will.payload) == (ALIVE, b"boot:1:offline")
