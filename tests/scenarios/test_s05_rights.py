"""S05: what a user may not see never arrives, whatever it subscribes to and whatever its session once had."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmqtt.broker.rights import Role
from agentmqtt.names import Topics
from tests.broker import wire
from tests.security.kit import Caller, Place

T = Topics()
ME = "a" * 23
ACCEPTED, PRESENT = (wire.packet(0x20, bytes([present, 0])) for present in (0, 1))
PING, PONG = wire.packet(0xC0), wire.packet(0xD0)
OF_B = [T.status("b"), T.out("b"), "#", "+/#", f"{T.root}/#", f"{T.root}/+/status", f"{T.root}/+/+", "agentmqtt/+/b/#"]


async def _place(place: Place) -> Caller:
    """Workflow B has a retained status; whoever may do everything can publish more."""
    root = await place.login("root", client="root")
    assert await root.packet() == ACCEPTED
    assert await root.ask(wire.publish(T.status("b"), b"secret of b", 1, 1, retain=True)) == wire.puback(1)
    return root


async def _publishes_b(root: Caller) -> None:
    for topic in (T.status("b"), T.out("b")):
        assert await root.ask(wire.publish(topic, b"secret of b", 1, 2, retain=topic == T.status("b"))) == wire.puback(
            2
        )


def _accounts(folder: Path) -> Place:
    place = Place(folder)
    place.account("ann", workflows=("a",))
    place.account("root", role=Role.ADMIN)
    return place


async def test_s05_a_user_of_a_connects_only(tmp_path: Path) -> None:
    place = _accounts(tmp_path)
    async with place.running():
        root = await _place(place)
        ann = await place.login("ann", client=ME)
        assert await ann.packet() == ACCEPTED
        await _publishes_b(root)
        assert await ann.ask(PING) == PONG


@pytest.mark.parametrize("pattern", OF_B)
async def test_s05_it_subscribes_to_more_than_it_may(tmp_path: Path, pattern: str) -> None:
    place = _accounts(tmp_path)
    async with place.running():
        root = await _place(place)
        ann = await place.login("ann", client=ME)
        assert await ann.packet() == ACCEPTED
        assert await ann.ask(wire.subscribe(1, (pattern, 1))) == wire.suback(1, 0x80)
        await _publishes_b(root)
        assert await ann.ask(PING) == PONG


@pytest.mark.parametrize("pattern", [T.out("b"), T.status("b"), T.all_out()])
async def test_s05_a_kept_session_comes_back_after_its_right_was_withdrawn(tmp_path: Path, pattern: str) -> None:
    place = _accounts(tmp_path)
    place.account("ann", workflows=("*",))
    async with place.running():
        root = await _place(place)
        ann = await place.login("ann", client=ME, clean=False)
        assert await ann.packet() == ACCEPTED
        ann.writer.write(wire.subscribe(1, (pattern, 1)))
        assert await ann.packet() == wire.suback(1, 1)
        ann.close()
        await _publishes_b(root)  # queued for it
        place.account("ann", workflows=("a",))
        place.broker.reload()
        await _publishes_b(root)
        again = await place.login("ann", client=ME, clean=False)
        assert await again.packet() == PRESENT
        assert await again.ask(PING) == PONG
        await _publishes_b(root)
        assert await again.ask(PING) == PONG


async def test_s05_it_is_cut_off_when_its_right_is_withdrawn_while_it_is_there(tmp_path: Path) -> None:
    place = _accounts(tmp_path)
    place.account("ann", workflows=("*",))
    async with place.running():
        await _place(place)
        ann = await place.login("ann", client=ME)
        assert await ann.packet() == ACCEPTED
        place.account("ann", workflows=("a",))
        place.broker.reload()
        assert await ann.packet() == b""
