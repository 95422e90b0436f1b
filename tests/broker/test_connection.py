"""Login before effect, takeover, wills, keep-alive, backpressure: one connection and its neighbours."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker import wire
from tests.broker.wire import BYE, PING, PONG, WELCOME, WELCOME_BACK, Door, Peer, arrive, engine, settle

WILL = ("w", b"gone", 1, True)

# ------------------------------------------------------------------ login


async def test_nothing_happens_before_the_login_succeeded() -> None:
    door = Door({"ann": b"right"})
    broker = engine()
    ann = await arrive(broker, "a", door=door, clean=False, user="ann", password=b"right")
    await ann.ask(wire.subscribe(1, ("t", 1)))
    for clean in (True, False):
        stranger = Peer(broker, door)
        refused = await stranger.ask(wire.connect("a", clean=clean, user="ann", password=b"x", will=WILL))
        assert refused == b"\x20\x02\x00\x04"
    assert not ann.closed
    writer = await arrive(broker, "w", door=door)
    await writer.ask(wire.publish("t", b"", 1, 1))
    assert await ann.heard() == wire.publish("t", b"", 1, 1)
    assert list(broker.sessions) == ["a", "w"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("online", [True, False])
async def test_a_client_id_belongs_to_the_user_that_made_its_session(online: bool, clean: bool) -> None:
    door = Door({"ann": b"a", "eve": b"e"})
    broker = engine()
    ann = await arrive(broker, "a", door=door, clean=False, user="ann", password=b"a")
    if not online:
        await ann.ask(BYE)
    eve = Peer(broker, door)
    assert await eve.ask(wire.connect("a", clean=clean, user="eve", password=b"e")) == b"\x20\x02\x00\x05"
    assert "a" in broker.sessions
    assert ann.closed is not online


async def test_a_session_of_a_client_without_a_name_may_be_claimed_by_one_with() -> None:
    door = Door({"ann": b"a"})
    broker = engine()
    nameless = await arrive(broker, "a", door=door, clean=False)
    ann = await arrive(broker, "a", door=door, clean=False, user="ann", password=b"a")
    assert (ann.welcome, nameless.closed) == (WELCOME_BACK, True)
    again = Peer(broker, door)
    assert await again.ask(wire.connect("a", clean=False)) == b"\x20\x02\x00\x05"


async def test_requests_that_came_with_the_connect_wait_for_the_login() -> None:
    door = Door()
    door.wait = asyncio.Event()
    broker = engine()
    peer = Peer(broker, door)
    assert await peer.ask(wire.connect("a"), wire.publish("s", b"p", 1, 1, retain=True)) == b""
    assert peer.pipe.paused
    assert not broker.sessions
    assert broker._retained.get("s") is None
    door.wait.set()
    assert await peer.heard() == WELCOME + wire.puback(1)
    assert not peer.pipe.paused


async def test_a_client_that_leaves_during_its_login_leaves_nothing() -> None:
    door = Door()
    door.wait = asyncio.Event()
    broker = engine()
    peer = Peer(broker, door)
    await peer.ask(wire.connect("a", will=WILL))
    await peer.vanish()
    door.wait.set()
    await settle()
    assert not broker.sessions
    assert broker._retained.get("w") is None
    assert peer.gone == [peer.connection]


async def test_a_login_that_takes_too_long_is_cut() -> None:
    door = Door()
    door.wait = asyncio.Event()
    for said in (b"", wire.connect()[:-1], wire.connect()):
        peer = Peer(engine(connect_timeout=0.01), door)
        await peer.ask(said)
        await asyncio.sleep(0.03)
        assert peer.closed


async def test_a_gate_that_breaks_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Door):
        async def admit(self, connect: object, pipe: object) -> None:
            raise RuntimeError("no database")

    peer = Peer(engine(), Broken())
    assert await peer.ask(wire.connect()) == b""
    assert peer.closed
    assert "no database" in caplog.text


async def test_there_is_room_for_so_many_sessions_and_expired_ones_make_room() -> None:
    now = 0.0
    broker = engine(sessions=2, session_expiry=60.0)
    broker._clock = lambda: now
    for name in "ab":
        await (await arrive(broker, name, clean=False)).ask(BYE)
    peer = Peer(broker)
    assert await peer.ask(wire.connect("c")) == b"\x20\x02\x00\x03"
    now = 61.0
    assert await Peer(broker).ask(wire.connect("a", clean=False)) == WELCOME  # its session has expired
    assert await Peer(broker).ask(wire.connect("c")) == WELCOME


# ------------------------------------------------------------------ takeover


@pytest.mark.parametrize("old_clean", [True, False])
@pytest.mark.parametrize("new_clean", [True, False])
async def test_a_takeover_closes_the_old_connection_and_serves_the_new(old_clean: bool, new_clean: bool) -> None:
    """[3.1.4-2]"""
    broker = engine()
    old = await arrive(broker, "a", clean=old_clean, will=WILL)
    await old.ask(wire.subscribe(1, ("t", 1)))
    new = await arrive(broker, "a", clean=new_clean)
    resumed = not old_clean and not new_clean
    assert new.welcome == (WELCOME_BACK if resumed else WELCOME)
    assert old.closed
    assert broker._retained.get("w").payload == b"gone"
    await old.vanish()  # the end of the old socket, noticed late, does not touch the new one
    if not resumed:
        await new.ask(wire.subscribe(1, ("t", 1)))
    writer = await arrive(broker, "w")
    await writer.ask(wire.publish("t", b"p", 1, 1))
    assert await new.heard() == wire.publish("t", b"p", 1, 1)
    assert old.pipe.out == b""


async def test_bytes_of_a_connection_that_was_taken_over_are_ignored() -> None:
    broker = engine()
    old = await arrive(broker, "a")
    await arrive(broker, "a")
    assert await old.ask(wire.publish("s", b"p", 1, 1, retain=True)) == b""
    assert broker._retained.get("s") is None


async def test_a_takeover_repeats_what_the_old_connection_did_not_acknowledge() -> None:
    broker = engine()
    old, writer = await arrive(broker, "a", clean=False), await arrive(broker, "w")
    await old.ask(wire.subscribe(1, ("t", 1)))
    await writer.ask(wire.publish("t", b"p", 1, 1))
    new = await arrive(broker, "a", clean=False)
    assert new.welcome == WELCOME_BACK + wire.publish("t", b"p", 1, 1, dup=True)


# ------------------------------------------------------------------ wills


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("vanish", True),
        ("malformed", True),
        ("second connect", True),
        ("goodbye", False),
        ("stop", False),
    ],
)
async def test_the_will_is_for_an_abnormal_end_only(end: str, expected: bool) -> None:
    """[3.1.2-8, 3.1.2-10]"""
    broker = engine()
    watcher, peer = await arrive(broker, "watcher"), await arrive(broker, "p", will=WILL)
    await watcher.ask(wire.subscribe(1, ("w", 2)))
    if end == "vanish":
        await peer.vanish()
    elif end == "stop":
        peer.connection.stop()
    else:
        await peer.ask({"malformed": b"\xf0\x00", "second connect": wire.connect("p"), "goodbye": BYE}[end])
    await peer.vanish()
    assert await watcher.heard() == (wire.publish("w", b"gone", 1, 1) if expected else b"")
    assert (broker._retained.get("w") is not None) is expected


async def test_a_goodbye_right_behind_the_connect_is_a_goodbye() -> None:
    broker = engine()
    peer = Peer(broker)
    assert await peer.ask(wire.connect("p", will=WILL), BYE) == WELCOME
    await peer.vanish()
    assert broker._retained.get("w") is None


async def test_a_new_connection_replaces_the_will() -> None:
    broker = engine()
    await (await arrive(broker, "p", clean=False, will=WILL)).ask(BYE)
    peer = await arrive(broker, "p", clean=False)
    await peer.vanish()
    assert broker._retained.get("w") is None


async def test_a_will_that_may_not_be_published_is_refused_at_the_door() -> None:
    broker = engine()
    for door, topic in [(Door(denied={("publish", "w")}), "w"), (Door(), "$SYS/w")]:
        peer = Peer(broker, door)
        answer = await peer.ask(wire.connect("p", will=(topic, b"", 0, False)))
        assert answer == b"\x20\x02\x00\x05"


# ------------------------------------------------------------------ keep-alive


async def test_silence_of_one_and_a_half_keep_alives_ends_it() -> None:
    """[3.1.2-24]"""
    broker = engine()
    loop = asyncio.get_running_loop()
    silent = await arrive(broker, "silent", keepalive=1, will=WILL)
    alive, patient = await arrive(broker, "alive", keepalive=1), await arrive(broker, "patient")
    start = loop.time()
    while not silent.closed:
        assert await alive.ask(PING) == PONG
        await asyncio.sleep(0.1)
        assert loop.time() < start + 5
    assert loop.time() >= start + 1.4
    assert broker._retained.get("w") is not None
    assert not alive.closed
    assert not patient.closed


async def test_time_in_which_it_was_not_read_is_not_silence() -> None:
    held, read = await arrive(engine(), "held", keepalive=1), await arrive(engine(), "read", keepalive=1)
    held.connection.hold("local journal")
    while not read.closed:
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.1)
    assert not held.closed
    held.connection.release("local journal")
    assert await held.ask(PING) == PONG


async def test_bytes_that_never_make_a_packet_do_not_keep_it_alive() -> None:
    peer = await arrive(engine(), "p", keepalive=1)
    peer.say(b"\x30\x7f")
    for _ in range(40):
        if peer.closed:
            break
        peer.say(b"x")
        await asyncio.sleep(0.05)
    assert peer.closed


async def test_a_client_that_is_silent_because_it_does_not_read_is_silent() -> None:
    broker = engine(write_buffer=200)
    stuck, writer = await arrive(broker, "stuck", keepalive=1), await arrive(broker, "w")
    await stuck.ask(wire.subscribe(1, ("t", 0)))
    stuck.pipe.keeps = True
    await writer.ask(wire.publish("t", b"x" * 300))
    assert stuck.pipe.paused
    async with asyncio.timeout(5):
        while not stuck.closed:
            await asyncio.sleep(0.1)
