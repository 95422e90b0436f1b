"""Logins on real sockets: who gets in, as whom, for how long, and what nobody may do."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import agentmqtt
from agentmqtt.broker import accounts as acc
from agentmqtt.broker import throttle, tokens
from agentmqtt.broker.gate import VERIFIERS
from agentmqtt.broker.rights import Role
from agentmqtt.errors import LinkError, UsageError
from agentmqtt.names import Topics
from tests.broker import wire
from tests.security.kit import LIMIT, PASSWORD, Place

ACCEPTED, BAD_LOGIN, NOT_AUTHORISED = (wire.packet(0x20, bytes([0, code])) for code in (0, 4, 5))
PRESENT = wire.packet(0x20, bytes([1, 0]))
ME = "a" * 23
T = Topics()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_the_right_password_gets_in_and_no_other(place: Place) -> None:
    place.account("ann")
    async with place.running():
        assert await (await place.login("ann")).packet() == ACCEPTED
        assert await (await place.login("ann", "wrong horse")).packet() == BAD_LOGIN
        assert await (await place.login("eve")).packet() == BAD_LOGIN
        assert await (await place.login("ann", None)).packet() == BAD_LOGIN
        assert await (await place.login(None, None)).packet() == NOT_AUTHORISED


async def test_a_wrong_login_touches_nobodys_session(place: Place) -> None:
    """Neither a takeover nor a clean start, whatever client ID it names."""
    place.account("ann")
    place.account("eve")
    async with place.running():
        ann = await place.login("ann", client="phone", clean=False)
        assert await ann.packet() == ACCEPTED
        assert await ann.ask(wire.subscribe(1, (T.status("r"), 1))) == wire.suback(1, 1)
        for name, password in (("ann", "wrong"), ("nobody", PASSWORD), (None, None)):
            assert await (await place.login(name, password, client="phone")).packet() in (BAD_LOGIN, NOT_AUTHORISED)
        assert await (await place.login("eve", client="phone")).packet() == BAD_LOGIN
        assert await ann.ask(wire.packet(0xC0)) == wire.packet(0xD0)
        ann.close()
        again = await place.login("ann", client="phone", clean=False)
        assert await again.packet() == PRESENT


async def test_a_client_id_belongs_to_its_first_user_across_restarts(place: Place) -> None:
    place.account("ann")
    place.account("eve")
    async with place.running():
        caller = await place.login("ann", client=ME)
        assert await caller.packet() == ACCEPTED
        caller.close()
        assert await (await place.login("eve", client=ME)).packet() == BAD_LOGIN
    async with place.running():
        assert await (await place.login("eve", client=ME)).packet() == BAD_LOGIN
        assert await (await place.login("ann", client=ME)).packet() == ACCEPTED


async def test_a_revoked_account_is_cut_off_and_its_session_forgotten(place: Place) -> None:
    place.account("ann")
    async with place.running():
        ann = await place.login("ann", client=ME, clean=False)
        assert await ann.packet() == ACCEPTED
        place.account("ann", revoked=True)
        assert await ann.packet() == b""
        await _until(lambda: place.broker.counters["sessions"] == 0)
        assert await (await place.login("ann", client=ME)).packet() == BAD_LOGIN
        place.account("eve")
        place.broker.reload()
        assert await (await place.login("eve", client=ME)).packet() == ACCEPTED


async def test_another_password_cuts_off_who_has_the_old_one(place: Place) -> None:
    place.account("ann")
    async with place.running():
        ann = await place.login("ann")
        assert await ann.packet() == ACCEPTED
        place.account("ann", hash=acc.hash_password("a new password"))
        assert await ann.packet() == b""
        assert await (await place.login("ann")).packet() == BAD_LOGIN
        assert await (await place.login("ann", "a new password")).packet() == ACCEPTED


async def test_a_damaged_accounts_file_leaves_what_was_known_in_force(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.account("ann")
    async with place.running():
        place.file.write_text("{")
        place.broker.reload()
        assert "stays in force" in caplog.text
        assert await (await place.login("ann")).packet() == ACCEPTED
    with pytest.raises(UsageError, match="is damaged"):
        async with place.running():
            pass


async def test_an_account_is_bound_to_its_client_id(place: Place) -> None:
    place.account("ann", client="phone")
    async with place.running():
        assert await (await place.login("ann", client="other")).packet() == BAD_LOGIN
        assert await (await place.login("ann", client="phone")).packet() == ACCEPTED


async def test_rights_hold_for_publish_subscribe_and_wills(place: Place) -> None:
    place.account("ann", workflows=("report-*",))
    place.account("root", role=Role.ADMIN)
    async with place.running():
        ann, root = await place.login("ann", client=ME), await place.login("root", client="root")
        assert await ann.packet() == await root.packet() == ACCEPTED
        wanted = [T.out("report-1"), T.out("other"), "#", "$SYS/#", T.client_res("b" * 23), T.client_res(ME)]
        granted = wire.suback(1, 1, 0x80, 0x80, 0x80, 0x80, 1)
        assert await ann.ask(wire.subscribe(1, *((topic, 1) for topic in wanted))) == granted
        assert await root.ask(wire.subscribe(1, ("#", 1))) == wire.suback(1, 1)
        assert await ann.ask(wire.publish(T.out("report-1"), b"forged", 1, 2)) == wire.puback(2)
        assert await ann.ask(wire.publish(T.inbox("report-1", "b" * 23), b"forged", 1, 3)) == wire.puback(3)
        assert await ann.ask(wire.publish(T.inbox("report-1", ME), b"mine", 1, 4)) == wire.puback(4)
        assert b"mine" in await root.packet()
        will = await place.login("ann", client="w", will=(T.out("report-1"), b"forged", 1, True))
        assert await will.packet() == NOT_AUTHORISED


async def test_a_resumed_session_loses_what_its_account_lost(place: Place) -> None:
    place.account("ann")
    place.account("root", role=Role.ADMIN)
    async with place.running():
        ann = await place.login("ann", client=ME, clean=False)
        assert await ann.packet() == ACCEPTED
        assert await ann.ask(wire.subscribe(1, (T.out("b"), 1), (T.out("a"), 1))) == wire.suback(1, 1, 1)
        ann.close()
        place.account("ann", workflows=("a",))
        place.broker.reload()
        root = await place.login("root", client="root")
        assert await root.packet() == ACCEPTED
        for topic in (T.out("b"), T.out("a")):
            assert await root.ask(wire.publish(topic, topic.encode(), 1, 7)) == wire.puback(7)
        ann = await place.login("ann", client=ME, clean=False)
        assert await ann.packet() == PRESENT
        assert T.out("a").encode() in await ann.packet()
        assert await ann.ask(wire.packet(0xC0)) == wire.packet(0xD0)


async def test_wrong_logins_are_slowed_down_and_right_ones_elsewhere_are_not(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.account("ann")
    async with place.running():
        assert await (await place.login("ann")).packet() == ACCEPTED
        for _ in range(8):
            assert await (await place.login("ann", "wrong")).packet() == BAD_LOGIN
        assert "too many wrong logins" in caplog.text
        assert await (await place.login("ann")).packet() == ACCEPTED  # it was right before: nobody can lock it out


async def test_many_wrong_logins_at_once_are_no_way_around_the_throttle(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.account("ann")
    checked: list[str] = []

    def verify(account: Any, password: str) -> bool:
        checked.append(password)
        return False

    monkeypatch.setattr(acc, "verify", verify)
    async with place.running():
        callers = [await place.login("ann", f"wrong {n}") for n in range(30)]
        assert [await caller.packet() for caller in callers] == [BAD_LOGIN] * 30
    assert len(checked) <= throttle.FREE + VERIFIERS


async def test_a_gate_that_was_closed_stays_closed(place: Place) -> None:
    place.account("ann")
    async with place.running():
        acc.edit(place.file, lambda known: known.without("ann"))
        place.broker.reload()
        assert await (await place.login(None, None)).packet() == NOT_AUTHORISED
        place.file.unlink()
        place.broker.reload()
        assert await (await place.login(None, None)).packet() == NOT_AUTHORISED


async def test_a_login_lists_only_the_runs_that_it_may_see(place: Place) -> None:
    from agentmqtt.journal import Journal
    from agentmqtt.store.memory import MemoryStore

    place.account("bot", role=Role.AGENT)
    place.account("ann", workflows=("a*",))
    async with asyncio.timeout(LIMIT), place.running():
        url, see = str(place.broker.addresses[0]), place.broker.may_see
        journal = Journal(place.broker.transport(), MemoryStore(), alone=True, visible=see)
        bot = agentmqtt.connect(url, state=":memory:", username="bot", password=PASSWORD)
        ann = agentmqtt.connect(url, state=":memory:", username="ann", password=PASSWORD)
        async with journal, bot as bot, ann as ann:
            for name in ("a1", "b", "a2"):
                async with bot.own(name) as run:
                    await run.end()
            assert [row.workflow async for row in ann.runs()] == ["a1", "a2"]
            assert [row.workflow async for row in bot.runs()] == ["a1", "a2", "b"]


def test_an_account_of_odd_types_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for fields in ('"workflows": "a*"', '"workflows": [1]', '"workflows": [], "revoked": "no"', '"hash": 3'):
        path.write_text(f'{{"v": 1, "accounts": {{"ann": {{"role": "watcher", {fields}}}}}}}')
        with pytest.raises(UsageError, match="is damaged"):
            acc.read(path)


def test_two_who_edit_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"

    def add(n: int) -> None:
        acc.edit(path, lambda known: known.with_account(acc.Account(name=f"u{n}")))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    assert len(acc.read(path).by_name) == 16


# ---- tokens


def _token(place: Place, role: Role = Role.WATCHER, ttl: float = 60, **more: Any) -> str:
    key = tokens.read_key(place.key, make=True)
    return tokens.issue(key, "guest", role, ("report-*",), ttl, **more)


async def test_a_token_gives_its_role_and_workflows_and_no_more(place: Place) -> None:
    text = _token(place)
    async with place.running():
        guest = await place.login("guest", text, client=ME)
        assert await guest.packet() == ACCEPTED
        asked = wire.subscribe(1, (T.out("report-1"), 0), (T.out("other"), 0))
        assert await guest.ask(asked) == wire.suback(1, 0, 0x80)
        assert await (await place.login("ann", text)).packet() == BAD_LOGIN


async def test_a_token_ends_while_it_is_connected(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    text = _token(place)
    async with place.running():
        guest = await place.login("guest", text)
        assert await guest.packet() == ACCEPTED
        later = time.time() + 60 + tokens.LEEWAY + 1
        monkeypatch.setattr(time, "time", lambda: later)
        assert await guest.packet() == b""
        assert await (await place.login("guest", text)).packet() == BAD_LOGIN


async def test_a_revoked_token_counts_no_more(place: Place) -> None:
    text = _token(place)
    async with place.running():
        guest = await place.login("guest", text)
        assert await guest.packet() == ACCEPTED
        acc.write(place.file, acc.read(place.file).with_revoked_token(*tokens.unverified(text)))
        assert await guest.packet() == b""
        assert await (await place.login("guest", text)).packet() == BAD_LOGIN


async def test_a_token_without_a_clock_is_refused_and_said(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = _token(place)
    monkeypatch.setattr(time, "time", lambda: 86_400.0)
    async with place.running():
        assert await (await place.login("guest", text)).packet() == BAD_LOGIN
    assert "clock of this machine is not set" in caplog.text


def test_only_our_algorithm_and_key_count(tmp_path: Path) -> None:
    import jwt

    key = tokens.read_key(tmp_path / "key", make=True)
    good = jwt.decode(tokens.issue(key, "g", Role.AGENT, ("*",), 60), options={"verify_signature": False})
    forged = [
        jwt.encode(good, None, "none"),
        jwt.encode(good, key, "HS512"),
        jwt.encode(good, b"x" * 32, "HS256"),
        jwt.encode({name: value for name, value in good.items() if name != "exp"}, key, "HS256"),
        jwt.encode(good | {"aud": "elsewhere"}, key, "HS256"),
        jwt.encode(good | {"role": "king"}, key, "HS256"),
        jwt.encode(good | {"exp": int(time.time()) - 100}, key, "HS256"),
    ]
    for role in (Role.ADMIN, Role.JOURNAL, Role.NONE):
        with pytest.raises(UsageError, match="cannot have the role"):
            tokens.issue(key, "g", role, ("*",), 60)
        forged.append(jwt.encode(good | {"role": role.value}, key, "HS256"))
    for text in forged:
        with pytest.raises(tokens.BadToken):
            tokens.verify(key, text)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


# ---- strangers


async def test_strangers_may_everything_on_loopback_until_there_are_accounts(place: Place) -> None:
    async with place.running():
        stranger = await place.login(None, None, client="s")
        assert await stranger.packet() == ACCEPTED
        assert await stranger.ask(wire.subscribe(1, ("#", 0))) == wire.suback(1, 0)
        place.account("ann")
        assert await stranger.packet() == b""
        assert await (await place.login(None, None, client="s")).packet() == NOT_AUTHORISED


async def test_strangers_that_are_wanted_get_what_the_rules_say_of_everyone(place: Place) -> None:
    place.account("ann")
    place.rules.write_text("everyone read time\n")
    async with place.running(anonymous=True):
        stranger = await place.login(None, None, client="s")
        assert await stranger.packet() == ACCEPTED
        assert await stranger.ask(wire.subscribe(1, ("time", 0), (T.out("r"), 0))) == wire.suback(1, 0, 0x80)


def test_a_broker_that_everybody_could_reach_wants_accounts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="agentmqtt user add"):
        agentmqtt.broker.BrokerSettings(listen=("0.0.0.0:1883",), accounts=tmp_path / "none.json")


# ---- the whole way


async def test_agent_and_watcher_with_accounts_meet_and_a_stranger_of_the_name_does_not(place: Place) -> None:
    place.account("bot", role=Role.AGENT, workflows=("report-*",))
    place.account("phone", workflows=("report-*",))
    async with place.running():
        await _meet(place)


async def _meet(place: Place) -> None:
    from agentmqtt.journal import Journal
    from agentmqtt.store.memory import MemoryStore

    url = str(place.broker.addresses[0])

    def client(name: str, password: str = PASSWORD) -> agentmqtt.Client:
        return agentmqtt.connect(url, state=place.folder / f"{name}.db", username=name, password=password)

    async with asyncio.timeout(LIMIT):
        async with Journal(place.broker.transport(), MemoryStore(), alone=True), client("bot") as bot:
            async with client("phone") as phone, bot.own("report-1") as run, phone.watch("report-1") as watched:
                receipt = await watched.send("focus")
                async for command in run.commands():
                    assert command.data == "focus"
                    await run.emit("text", "hello")
                    break
                async for item in watched:
                    if isinstance(item, agentmqtt.Event) and item.data == "hello":
                        break
                await run.end()
                assert receipt.id
        async with client("bot", "wrong horse") as wrong:
            with pytest.raises(LinkError, match="password"):
                await wrong.connected(LIMIT)


async def test_secrets_are_in_no_log(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    place.account("ann")
    text = _token(place)
    async with place.running():
        for name, password in (("ann", PASSWORD), ("ann", "wrong secret"), ("guest", text), ("guest", text + "x")):
            await (await place.login(name, password)).packet()
    for secret in (PASSWORD, "wrong secret", text, text.rpartition(".")[2]):
        assert secret not in caplog.text


async def _until(done: Any) -> None:
    async with asyncio.timeout(LIMIT):
        while not done():
            await asyncio.sleep(0.05)


def test_an_accounts_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    made = acc.Account(name="ann", kind="device", role=Role.AGENT, workflows=("a", "b*"), client=ME, certificate=True)
    known = acc.Accounts().with_account(made).with_revoked_token("t", int(time.time()) + 60)
    acc.write(tmp_path / "a.json", known)
    assert acc.read(tmp_path / "a.json") == known
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600
    assert acc.read(tmp_path / "none.json") == acc.Accounts()
    assert known.get("ann") == made
    assert known.with_account(dataclasses.replace(made, revoked=True)).get("ann") is None
