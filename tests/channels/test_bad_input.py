"""Bad input and broken surroundings: a clear error of the documented type, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import agentmqtt
from agentmqtt import (
    BadURL,
    BadValue,
    Client,
    ClientOptions,
    NoJournal,
    Refused,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreUnusable,
    Unreachable,
    UsageError,
)
from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.journal import Journal, JournalRunning
from agentmqtt.store.memory import MemoryStore
from agentmqtt.transport.mqtt import MqttTransport
from tests.channels.site import BRISK, QUICK, bundled, ended, text, until
from tests.servers import free_port, mosquitto


@pytest.mark.parametrize("url", ["", "gateway", "http://gateway", "mqtt://", "mqtt://h:99999", "ftp://x/y"])
def test_a_wrong_url_says_what_to_write(url: str) -> None:
    with pytest.raises(BadURL):
        agentmqtt.connect(url or "://", state=":memory:")


@pytest.mark.slow
async def test_nobody_there() -> None:
    async with agentmqtt.connect(f"mqtt://127.0.0.1:{free_port()}", state=":memory:") as client:
        with pytest.raises(Unreachable, match="127"):
            await client.connected(1)
        with pytest.raises(Unreachable):
            async with client.own("x"):
                pass


async def test_a_refused_password_is_fatal_and_does_not_show_the_password() -> None:
    with mosquitto(users={"edge": "right"}) as server:
        url = server.url.replace("mqtt://", "mqtt://edge:wr0ng-secret@")
        async with agentmqtt.connect(url, state=":memory:") as client:
            with pytest.raises(Refused) as caught:
                await client.connected(5)
            assert "wr0ng-secret" not in str(caught.value)
            assert not caught.value.retryable


@pytest.mark.slow
async def test_no_journal_is_said_in_time_with_the_command_that_starts_one() -> None:
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",))) as broker:
        url = str(broker.addresses[0])
        async with agentmqtt.connect(url, state=":memory:") as client:
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(NoJournal, match="agentmqtt journal --broker"):
                await client.status("x")
            with pytest.raises(NoJournal, match="agentmqtt journal --broker"):
                await client.send("x", "hello")
            with pytest.raises(NoJournal):
                async with client.own("x"):
                    pass
            assert loop.time() - began < 4 * 3.5


async def test_a_second_journal_refuses_to_start(tmp_path: Path) -> None:
    async with bundled(tmp_path) as site:
        with pytest.raises(JournalRunning):
            async with Journal(MqttTransport(site.url), MemoryStore()):
                pass


async def test_a_state_file_in_use_names_its_holder(tmp_path: Path) -> None:
    async with bundled(tmp_path) as site, site.connect("same"):
        with pytest.raises(StoreInUse, match=str(os.getpid())):
            async with site.connect("same"):
                pass


async def test_a_state_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    client = agentmqtt.connect("mqtt://127.0.0.1:1", state=tmp_path / "file" / "state.db")
    with pytest.raises(StoreUnusable, match="file"):
        async with client:
            pass


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "data"), [("", None), ("x" * 200, None), ("ok", {1: 2}), ("ok", float("nan"))])
async def test_an_event_that_cannot_be_sent_is_refused(tmp_path: Path, kind: str, data: object) -> None:
    async with bundled(tmp_path) as site, site.connect("agent") as agent, agent.own("picky") as run:
        with pytest.raises((BadValue, UsageError)):
            await run.emit(kind, data)
        await run.emit("text", "fine")
        await run.end()
        async with agent.watch("picky") as watched:
            assert text(await until(watched, ended)) == "fine"


async def test_a_full_disk_at_the_owner_is_said_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    async with bundled(tmp_path) as site:
        store = MemoryStore()
        async with Client(MqttTransport(site.url), lambda: store, options=QUICK) as agent, agent.own("full") as run:
            await run.emit("text", "before ")
            await run.flush()
            store.fail_next(StoreFull("no room"))
            await run.emit("text", "accepted ")
            while run._spool.disk_error is None:
                await asyncio.sleep(0.01)
            with pytest.raises(StoreFull):
                await run.emit("text", "refused ")
            while run._spool.disk_error is not None:  # there is room again
                await asyncio.sleep(0.01)
            await run.emit("text", "after")
            await run.end()
        async with site.connect("phone") as phone, phone.watch("full") as watched:
            assert text(await until(watched, ended)) == "before accepted after"


async def test_a_full_disk_at_the_journal_stops_receipts_and_heals_without_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",))) as broker:
        url = str(broker.addresses[0])
        async with (
            Journal(broker.transport(), store, options=BRISK),
            agentmqtt.connect(url, state=tmp_path / "a.db", options=QUICK) as agent,
            agentmqtt.connect(url, state=tmp_path / "p.db", options=QUICK) as phone,
            phone.watch("journal full") as watched,
            agent.own("journal full") as run,
        ):
            reading = asyncio.create_task(until(watched, ended))
            for n in range(50):
                await run.emit("text", f"{n} ")
                if n in (10, 20, 30):
                    store.fail_next(StoreFull("no room"))
                    await asyncio.sleep(0.05)
            await run.flush(10)
            await run.end(timeout=10)
            assert text(await reading) == "".join(f"{n} " for n in range(50))


async def test_a_store_error_is_one_of_ours() -> None:
    assert issubclass(StoreFull, StoreError)
    assert StoreFull.retryable


async def test_a_full_outbox_makes_emit_wait(tmp_path: Path) -> None:
    async with bundled(tmp_path) as site:
        await site.stop_journal()
        small = ClientOptions(keepalive=2, resend=0.5, outbox=1000)
        async with site.connect("agent", small) as agent, agent.own("bounded", offline=True) as run:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    for _ in range(1000):
                        await run.emit("text", "x" * 50)
            assert run._spool.writer.outbox.bytes < 1200
            await site.start_journal()
            await run.flush(10)
            await run.end()
