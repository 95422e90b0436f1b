"""S55: bytes that are no topic cut off their sender alone; nothing of them is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.store import open_store
from tests.broker import wire
from tests.security.kit import Caller

BAD = {
    "0xFF": b"a/\xff",
    "U+0000": b"a/\x00b",
    "a surrogate": b"a/\xed\xa0\x80",
    "an overlong slash": b"a\xc0\xaf",
    "cut short": b"a/\xe2\x82",
    "a wildcard": b"a/+",
    "nothing": b"",
    "$SYS": b"$SYS/broker/version",
}


async def _caller(broker: Broker, client: str) -> Caller:
    caller = await Caller.at(broker)
    assert await caller.ask(wire.connect(client)) == wire.packet(0x20, b"\0\0")
    return caller


@pytest.mark.parametrize("topic", BAD.values(), ids=BAD)
@pytest.mark.parametrize("where", ["publish", "will", "subscribe"])
async def test_s55_only_the_sender_is_cut(tmp_path: Path, topic: bytes, where: str) -> None:
    if where == "subscribe" and topic in (b"a/+", b"$SYS/broker/version"):
        topic = b"a/#/b"  # those two are good filters
    store = open_store(tmp_path / "b.db")
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",)), store=store) as broker:
        reader, bad = await _caller(broker, "reader"), await Caller.at(broker)
        assert await reader.ask(wire.subscribe(1, ("#", 1))) == wire.suback(1, 1)
        if where == "will":
            connect = wire.packet(
                0x10,
                wire.text("MQTT"),
                bytes([4, 0x2E]),
                wire.number(0),
                wire.text("bad"),
                wire.text(topic),
                wire.text("x"),
            )
            assert await bad.ask(connect) in (b"", wire.packet(0x20, b"\0\x05"))
        else:
            assert await bad.ask(wire.connect("bad")) == wire.packet(0x20, b"\0\0")
            bad.writer.write(
                wire.packet(0x33, wire.text(topic), wire.number(7), b"x")
                if where == "publish"
                else wire.packet(0x82, wire.number(7), wire.text(topic) + b"\1")
            )
        assert await bad.packet() == b""
        assert await reader.ask(wire.packet(0xC0)) == wire.packet(0xD0)
        late = await _caller(broker, "late")
        assert await late.ask(wire.subscribe(1, ("#", 1))) == wire.suback(1, 1)
        assert await late.ask(wire.packet(0xC0)) == wire.packet(0xD0)
        for caller in (reader, bad, late):
            await caller.end()
    await store.close()
