"""What an owner does with its name: steps once, questions, children, commands when they are due."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentmqtt import Event, Mode, TooLarge, Unanswered, UsageError, When
from agentmqtt.asking import same
from agentmqtt.errors import BadValue
from agentmqtt.owner import child_name
from agentmqtt.types import CommandState
from tests.channels.site import Site, until

LIMIT = 25.0


@pytest.fixture(autouse=True)
async def _bounded() -> Any:
    async with asyncio.timeout(LIMIT):
        yield


class Counter:
    """A function that is dear."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def __call__(self, *args: Any) -> dict[str, Any]:
        self.calls.append(args)
        return {"n": len(self.calls), "args": list(args)}


# ---- steps


async def test_a_step_is_done_once_whoever_owns_the_name(site: Site) -> None:
    dear = Counter()
    async with site.connect("a") as a, a.own("work") as run:
        first = await run.step("plan", dear, "x")
        assert await run.step("plan", dear, "x") == {"n": 2, "args": ["x"]}
    async with site.connect("b") as b, b.own("work") as run:  # another disk
        assert await run.step("plan", dear, "x") == first
        assert await run.step("plan", dear, "x") == {"n": 2, "args": ["x"]}
        assert await run.step("plan", dear, "y") == {"n": 3, "args": ["y"]}
        assert await run.step("other", lambda: 7) == 7
    assert len(dear.calls) == 3


async def test_a_withdrawn_attempt_takes_its_steps_with_it(site: Site) -> None:
    dear = Counter()
    async with site.connect("a") as a, a.own("work") as run:
        await run.step("plan", dear)
    async with site.connect("a") as a, a.own("work", retry="withdraw_attempt") as run:
        await run.step("plan", dear)
    assert len(dear.calls) == 2


async def test_a_living_owner_that_withdraws_counts_again(site: Site) -> None:
    """What is done, asked and announced after a withdraw is found by the next owner."""
    dear = Counter()
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run, p.watch("work") as phone:
        kept = await run.step("plan", dear, "kept")
        await run.flush()
        place = run.stored
        await run.step("plan", dear, "gone")
        async with run.child("search"):
            pass
        await run.withdraw(place)
        assert await run.step("plan", dear, "gone") == {"n": 3, "args": ["gone"]}
        async with run.child("search"):
            pass
        asking = asyncio.create_task(run.ask("Deploy?"))
        await phone.answer((await until(phone, _asks))[-1].data["id"], "yes")
        assert await asking == "yes"
        await run.withdraw()
        asking = asyncio.create_task(run.ask("Deploy?"))
        await phone.answer((await until(phone, _asks))[-1].data["id"], "no")
        assert await asking == "no"
        again = await run.step("plan", dear, "kept")  # the attempt began behind the first: that one counts
    async with site.connect("b") as b, b.own("work") as run:
        assert await run.ask("Deploy?") == "no"
        assert [await run.step("plan", dear, "kept") for _ in range(2)] == [kept, again]
        assert not [event async for event in run.history() if event.type == "am.child"]
    assert len(dear.calls) == 4


async def test_an_answer_that_comes_while_the_expiry_waits_is_late(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run, p.watch("work") as phone:
        gate, emit = asyncio.Event(), run._emit

        async def held(entries: Any) -> None:
            if entries[0].type == "am.answer":
                await gate.wait()
            await emit(entries)

        run._emit = held  # type: ignore[method-assign]
        asking = asyncio.create_task(run.ask("Deploy?", timeout=0.2, default="later"))
        id_ = (await until(phone, _asks))[-1].data["id"]
        await asyncio.sleep(0.3)
        receipt = await phone.answer(id_, "yes")
        assert await receipt.outcome() is CommandState.EXPIRED
        gate.set()
        assert await asking == "later"
        await run.flush()
        answers = [event.data async for event in run.history() if event.type == "am.answer"]
        assert answers == [{"id": id_, "value": "later", "expired": True}]


async def test_an_answer_is_at_the_journal_when_ask_returns(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run, p.watch("work") as phone:
        asking = asyncio.create_task(run.ask("Deploy?"))
        id_ = (await until(phone, _asks))[-1].data["id"]
        await phone.answer(id_, "yes")
        assert await asking == "yes"
        assert run.unsent == 0


@pytest.mark.parametrize(
    ("value", "choice", "equal"),
    [
        ([True], [1], False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ([1, 2], (1, 2), True),
        ("1", 1, False),
        (None, None, True),
    ],
)
def test_choices_are_compared_all_the_way_down(value: Any, choice: Any, equal: bool) -> None:
    assert same(value, choice) is equal


async def test_what_cannot_be_stored_is_said_once(site: Site) -> None:
    async with site.connect("a") as a, a.own("work") as run:
        with pytest.raises(TooLarge, match="32768"):
            await run.step("big", lambda: "x" * 40_000)
        with pytest.raises(BadValue):
            await run.step("odd", lambda: object())
        with pytest.raises(BadValue, match="args"):
            await run.step("odd", print, object())
        with pytest.raises(ZeroDivisionError):
            await run.step("bad", lambda: 1 // 0)
        assert await run.step("small", lambda: 1) == 1


async def test_the_owner_reads_what_it_said(site: Site) -> None:
    async with site.connect("a") as a, a.own("work") as run:
        await run.emit("text", "one ")
        await run.emit("n", 2)
    async with site.connect("b") as b, b.own("work") as run:
        await run.emit("text", "three")
        found = [(event.type, event.data) async for event in run.history()]
    assert [part for part in found if not part[0].startswith("am.")] == [("text", "one "), ("n", 2), ("text", "three")]


# ---- questions


async def test_the_first_answer_that_fits_wins(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, site.connect("q") as q, a.own("work") as run:
        async with p.watch("work") as phone, q.watch("work") as tablet:
            asking = asyncio.create_task(run.ask("Deploy?", choices=["yes", "no", 1]))
            id_ = (await until(phone, _asks))[-1].data["id"]
            assert (await phone.status()).state == "waiting"
            odd = await tablet.answer(id_, True)
            assert await odd.outcome() is CommandState.REJECTED
            won = await phone.answer(id_, "yes")
            assert await asking == "yes"
            assert await won.outcome() is CommandState.APPLIED
            late = await tablet.answer(id_, "no")
            assert await late.outcome() is CommandState.SUPERSEDED
            answered = (await until(tablet, lambda item: item.type == "am.answer"))[-1].data
            assert answered == {"id": id_, "value": "yes", "by": p.client_id}
            assert (await phone.status()).state == "running"


def _asks(item: Any) -> bool:
    return isinstance(item, Event) and item.type == "am.ask"


async def test_an_answer_survives_its_owner(site: Site) -> None:
    """Asked by one process, answered while nobody lives, asked again by the next one."""
    async with site.connect("p") as p, p.watch("work") as phone:
        async with site.connect("a") as a, a.own("work") as run:
            asking = asyncio.create_task(run.ask("Deploy?"))
            id_ = (await until(phone, _asks))[-1].data["id"]
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        receipt = await phone.answer(id_, {"ok": True})
        async with site.connect("b") as b, b.own("work") as run:
            assert await run.ask("Deploy?") == {"ok": True}
            assert await receipt.outcome() is CommandState.APPLIED
        async with site.connect("c") as c, c.own("work") as run:
            assert await run.ask("Deploy?") == {"ok": True}
        asked = [item async for item in _all(p, "work") if _asks(item)]
        assert len(asked) == 1


async def _all(client: Any, name: str) -> Any:
    status = await client.status(name)
    async with client.watch(name, resume=False) as run:
        async for item in run:
            yield item
            if item.cursor.position >= status.tail:
                return


async def test_nobody_answers_in_time_and_that_is_no_denial(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run:
        with pytest.raises(Unanswered, match="no denial"):
            await run.ask("Deploy?", timeout=0.1)
        assert await run.ask("Go on?", timeout=0.1, default="later") == "later"
        async with p.watch("work", stored=True) as phone:
            id_ = (await until(phone, _asks))[-1].data["id"]
            assert await (await phone.answer(id_, "yes")).outcome() is CommandState.EXPIRED
    async with site.connect("b") as b, b.own("work") as run:
        assert await run.ask("Go on?", timeout=0.1, default="never") == "never"  # it had no answer then


async def test_who_and_what_may_answer(site: Site) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    async with site.connect("a") as a, site.connect("p") as p, site.connect("q") as q, a.own("work") as run:
        async with p.watch("work") as phone, q.watch("work") as tablet:
            asking = asyncio.create_task(run.ask("How many?", schema=schema, by=[p.client_id]))
            id_ = (await until(phone, _asks))[-1].data["id"]
            for handle, value in ((tablet, {"n": 1}), (phone, {"n": "x"}), (phone, 3)):
                assert await (await handle.answer(id_, value)).outcome() is CommandState.REJECTED
            await phone.answer(id_, {"n": 4})
            assert await asking == {"n": 4}
        with pytest.raises(UsageError, match="no JSON Schema"):
            await run.ask("?", schema={"type": 3})
        with pytest.raises(UsageError, match="leaves no answer"):
            await run.ask("?", choices=[])


# ---- children


async def test_a_family_is_followed_and_resumed_as_one(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run:
        async with p.watch("work", children=True) as family:
            await run.emit("text", "parent")
            async with run.child("a/b%") as sub, sub.child("deep") as deep:
                await sub.emit("text", "child")
                await deep.emit("text", "grandchild")
                told = [(told.run, told.item.data) async for told in _texts(family, 3)]
                assert sorted(told) == [
                    ("work", "parent"),
                    ("work/a%2Fb%25", "child"),
                    ("work/a%2Fb%25/deep", "grandchild"),
                ]
                await family.__aexit__(None, None, None)
                await sub.emit("text", " again")
        async with p.watch("work", children=True) as family:
            assert [(told.run, told.item.data) async for told in _texts(family, 1)] == [("work/a%2Fb%25", " again")]
            async with run.child("a/b%") as sub:  # announced once
                await sub.emit("text", "!")
            assert [told.item.data async for told in _texts(family, 1)] == ["!"]


async def _texts(family: Any, count: int) -> Any:
    async for told in family:
        if isinstance(told.item, Event) and told.item.type == "text":
            yield told
            count -= 1
            if not count:
                return


def test_names_of_children_do_not_collide() -> None:
    assert child_name("a", "b/c") != child_name(child_name("a", "b"), "c")
    with pytest.raises(UsageError):
        child_name("a", "")


# ---- commands


async def test_each_step_of_a_command_is_seen(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p:
        receipt = await p.send("work", "go")
        assert receipt.state is CommandState.ACCEPTED
        async with a.own("work") as run, p.watch("work") as phone:
            async for command in run.commands():
                seen = [state async for state in _first(receipt, CommandState.RECEIVED)]
                assert seen[-1] is CommandState.RECEIVED
                async with command.apply() as effect:
                    effect.emit("text", "done")
                break
            assert await receipt.outcome() is CommandState.APPLIED
            items = await until(phone, lambda item: item.type == "am.receipt")
            assert [item.type for item in items] == ["am.received", "text", "am.receipt"]


async def _first(receipt: Any, wanted: CommandState) -> Any:
    async for state in receipt.steps():
        yield state
        if state is wanted:
            return


async def test_an_effect_and_its_receipt_are_one(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run:
        await p.send("work", "go", id="c-1")
        async for command in run.commands():
            with pytest.raises(TooLarge):
                async with command.apply() as effect:
                    effect.emit("text", "x" * 40_000)
            with pytest.raises(RuntimeError):
                async with command.apply() as effect:
                    effect.emit("text", "half")
                    raise RuntimeError("boom")
            with pytest.raises(UsageError, match="reserved"):
                async with command.apply() as effect:
                    effect.emit("am.end")
            assert not command.settled
            async with command.apply() as effect:
                effect.emit("text", "small")
            break
        await run.flush()
        texts = [event.data async for event in run.history() if event.type == "text"]
        assert texts == ["small"]


async def test_a_withdraw_is_withdrawn_or_too_late_and_never_both(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p:
        waiting = await p.send("work", "waits")
        assert await p.withdraw("work", waiting.id) is CommandState.WITHDRAWN
        assert await waiting.outcome() is CommandState.WITHDRAWN
        assert await p.withdraw("work", "never-sent") is CommandState.WITHDRAWN
        async with a.own("work") as run:
            begun = await p.send("work", "begun")
            unread = await p.send("work", "unread", when="next_turn")
            async for command in run.commands():
                assert command.id == begun.id
                assert await p.withdraw("work", begun.id) is CommandState.RECEIVED
                assert await p.withdraw("work", unread.id) is CommandState.WITHDRAWN
                break
            await run.end()
        assert await begun.outcome() is CommandState.APPLIED
        assert await unread.outcome() is CommandState.WITHDRAWN
        assert await p.withdraw("work", begun.id) is CommandState.APPLIED


async def test_commands_come_when_they_are_due(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run:
        for when in (When.NEXT_TURN, When.NEXT_STEP, When.NOW):
            receipt = await p.send("work", str(when), when=when)
            async for _ in _first(receipt, CommandState.RECEIVED):
                pass
        assert _taken(run.inbox()) == ["now"]
        assert _taken(run.inbox("next_step")) == ["next_step"]
        assert _taken(run.inbox("next_turn")) == ["next_turn"]
        step = await p.send("work", "later", when="next_step")
        async for _ in _first(step, CommandState.RECEIVED):
            pass
        commands = run.commands()
        taking = asyncio.create_task(anext(commands))
        await asyncio.sleep(0.05)
        assert not taking.done()
        await run.mark("step")
        assert (await taking).data == "later"
        with pytest.raises(UsageError, match="'soon'"):
            run.inbox("soon")
        with pytest.raises(UsageError, match="'soon'"):
            await p.send("work", "x", when="soon")
        await commands.aclose()


def _taken(commands: Any) -> list[Any]:
    for command in commands:
        command.applied()
    return [command.data for command in commands]


async def test_an_interrupt_says_how_and_ends_when_the_work_has(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run, p.watch("work") as phone:
        torn_down = asyncio.Event()
        receipts = {}

        async def press() -> None:
            receipts["stop"] = await phone.interrupt("enough", mode="pause")

        pressing = asyncio.create_task(press())
        async with run.interruptible() as block:
            try:
                await asyncio.Event().wait()
            finally:
                await pressing
                assert receipts["stop"].state in (CommandState.ACCEPTED, CommandState.RECEIVED)
                torn_down.set()
        assert (block.interrupted, block.reason, block.mode) == (True, "enough", Mode.PAUSE)
        assert await receipts["stop"].outcome() is CommandState.APPLIED
        assert torn_down.is_set()
        with pytest.raises(UsageError, match="'gently'"):
            await phone.interrupt(mode="gently")


async def test_an_interrupt_can_wait_for_the_step(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run:
        receipt = await p.send("work", {"reason": "r", "mode": "after_step"}, kind="interrupt")
        async for _ in _first(receipt, CommandState.RECEIVED):
            pass
        async with run.interruptible() as block:
            await asyncio.sleep(0.05)
            assert not block.interrupted
            await run.mark("done")
            await asyncio.Event().wait()
        assert (block.reason, block.mode) == ("r", Mode.AFTER_STEP)


async def test_an_outer_cancellation_stays_one(site: Site) -> None:
    async with site.connect("a") as a, a.own("work", offline=True) as run:
        inside = asyncio.Event()

        async def work() -> None:
            async with run.interruptible():
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_who_watches_is_known_while_it_does(site: Site) -> None:
    async with site.connect("a") as a, site.connect("p") as p, a.own("work") as run:
        assert await run.watchers() == ()
        async with p.watch("work"):
            while not (rows := await run.watchers()):
                await asyncio.sleep(0.05)
            assert [row.client for row in rows] == [p.client_id]
            assert await p.watched_by("work") == rows
            assert await p.watched_by("other") == ()
        while await run.watchers():
            await asyncio.sleep(0.05)


async def test_what_waits_for_a_run_can_be_listed(site: Site) -> None:
    async with site.connect("p") as p:
        assert await p.commands("work") == ()
        receipt = await p.send("work", "go", kind="steer", when="next_turn")
        (row,) = await p.commands("work")
        assert (row.id, row.kind, row.sender, row.state, row.when) == (
            receipt.id,
            "steer",
            p.client_id,
            CommandState.ACCEPTED,
            When.NEXT_TURN,
        )


async def test_a_sender_that_is_offline_keeps_its_withdraw_too(site: Site) -> None:
    async with site.connect("p") as p:
        receipt = await p.send("work", "go")
    await site.stop_journal()
    async with site.connect("p") as p:
        with pytest.raises(TimeoutError):
            await p.withdraw("work", receipt.id, timeout=0.2)
    await site.start_journal()
    async with site.connect("p") as p:
        assert await p.withdraw("work", receipt.id) is CommandState.WITHDRAWN
