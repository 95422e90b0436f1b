"""What every store promises (agentmqtt/store/base.py)."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmqtt.errors import StoreError
from agentmqtt.store import open_store
from agentmqtt.store.base import MAX, Delete, Key, Put, Store, Write
from agentmqtt.store.memory import MemoryStore
from tests.store.helpers import FIRST, LAST, everything, put, waiter, write


async def test_records_come_back_in_order(store: Store) -> None:
    await write(
        store, put("b"), put("a", 2), put("a", 1, 2), put("a", 1, 1), put("é"), put("z"), put("🙂"), put("\uffff")
    )
    keys = [tuple(key) for key, _ in await everything(store)]
    assert keys == [
        ("a", 1, 1),
        ("a", 1, 2),
        ("a", 2, 0),
        ("b", 0, 0),
        ("z", 0, 0),
        ("é", 0, 0),
        ("\uffff", 0, 0),
        ("🙂", 0, 0),
    ]


async def test_a_scan_returns_keys_and_bodies(store: Store) -> None:
    await write(store, put("a", 1, 2, b"\x00body"), put("", -MAX, MAX, b""), put("nul\0nul", MAX, -1))
    assert await everything(store) == [
        (Key("", -MAX, MAX), b""),
        (Key("a", 1, 2), b"\x00body"),
        (Key("nul\0nul", MAX, -1), b"x"),
    ]
    assert type((await everything(store))[0][0]) is Key


async def test_bounds_are_inclusive(store: Store) -> None:
    await write(store, *(put("a", n) for n in range(10)), put("b"))
    assert [key.a for key, _ in await store.scan("s", Key("a", 3), Key("a", 5))] == [3, 4, 5]
    assert await store.scan("s", Key("a", 5), Key("a", 3)) == []
    assert await store.scan("s", Key("a", 3, 1), Key("a", 3, MAX)) == []


async def test_a_scan_stops_at_its_limits_but_returns_one(store: Store) -> None:
    await write(store, *(put("a", n, body=b"x" * 10) for n in range(10)))
    assert len(await store.scan("s", FIRST, LAST, limit=3)) == 3
    assert len(await store.scan("s", FIRST, LAST, max_bytes=30)) == 3
    assert len(await store.scan("s", FIRST, LAST, max_bytes=39)) == 3
    assert len(await store.scan("s", FIRST, LAST, max_bytes=1)) == 1
    assert len(await store.scan("s", FIRST, LAST, limit=2, max_bytes=1000)) == 2


async def test_a_put_replaces_and_a_delete_takes_a_range(store: Store) -> None:
    await write(store, *(put("a", n) for n in range(10)), put("b", 3))
    await write(store, put("a", 0, body=b"new"), Delete("s", Key("a", 1), Key("a", 8)))
    assert [(key.name, key.a, body) for key, body in await everything(store)] == [
        ("a", 0, b"new"),
        ("a", 9, b"x"),
        ("b", 3, b"x"),
    ]


async def test_writes_of_one_call_take_effect_in_order(store: Store) -> None:
    await write(store, put("a"), Delete("s", FIRST, LAST), put("b"), put("b", body=b"last"))
    assert await everything(store) == [(Key("b"), b"last")]


async def test_spaces_exist_when_they_are_named_and_do_not_mix(store: Store) -> None:
    assert await everything(store, "never") == []
    await write(store, put("a", space="one"), put("a", space="two"), Delete("three", FIRST, LAST))
    await write(store, Delete("one", FIRST, LAST))
    assert await everything(store, "one") == []
    assert len(await everything(store, "two")) == 1
    assert await everything(store, "three") == []


async def test_done_is_told_later_on_the_loop_in_order(store: Store) -> None:
    told: list[int] = []
    all_told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def done(n: int, _error: Exception | None) -> None:
        assert asyncio.get_running_loop() is loop
        told.append(n)
        if n == 99:
            all_told.set()

    for n in range(100):
        store.submit([put("a", n)] if n % 3 else [], functools.partial(done, n), sync=n % 2 == 0)
    assert told == []
    await all_told.wait()
    assert told == list(range(100))


async def test_what_is_told_can_be_read(store: Store) -> None:
    for n in range(20):
        await write(store, put("a", n), sync=False)
        assert len(await everything(store)) == n + 1


async def test_an_empty_call_is_a_barrier(store: Store) -> None:
    store.submit([put("a")], sync=False)
    await write(store)
    assert len(await everything(store)) == 1


async def test_calls_may_be_submitted_while_being_told(store: Store) -> None:
    second: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    store.submit([put("a")], lambda _: store.submit([put("b")], second.set_result))
    assert await second is None
    assert len(await everything(store)) == 2


async def test_one_bad_callback_does_not_keep_the_result_from_others(store: Store) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
    store.submit([put("a")], lambda _: [][1])
    await write(store, put("b"))
    assert [type(problem["exception"]) for problem in problems] == [IndexError]


async def test_size_grows_and_what_was_deleted_does_not_count(store: Store) -> None:
    empty = await store.size()
    await write(store, *(put("a", n, body=b"x" * 10_000) for n in range(100)))
    full = await store.size()
    assert full - empty >= 1_000_000
    await write(store, Delete("s", FIRST, LAST))
    assert await store.size() < empty + 100_000


async def test_close_commits_what_waits_and_tells_everybody(tmp_path: Path) -> None:
    for path in (":memory:", tmp_path / "x"):
        store = open_store(path, commit_interval=30)
        told = [waiter(store, [put("a", n)]) for n in range(10)]
        await store.close()
        assert all(one.done() and one.exception() is None for one in told)
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            store.submit([put("a")])
        with pytest.raises(StoreError, match="closed"):
            await everything(store)
    again = open_store(tmp_path / "x")
    assert len(await everything(again)) == 10
    await again.close()


async def test_close_survives_its_cancellation(store: Store) -> None:
    told = waiter(store, [put("a")])
    task = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await store.close()
    assert told.done()


@pytest.mark.parametrize(
    "bad", [Put("s", Key("\ud800"), b""), Put("s", Key("a", 2**63), b""), Put("S;", Key("a"), b"")]
)
async def test_a_record_that_cannot_be_kept_fails_its_call_and_no_later_one(bad: Put, tmp_path: Path) -> None:
    store = open_store(tmp_path / "x")
    with pytest.raises(StoreError):
        await write(store, put("a"), bad)
    await write(store, put("b"))
    assert [key.name for key, _ in await everything(store)] == ["b"]
    await store.close()


KEYS = st.builds(Key, st.sampled_from(["a", "b", "é", "🙂", "\uffff", "a\0"]), st.integers(0, 3), st.integers(0, 2))
SPACES = st.sampled_from(["one", "two"])
WRITES = st.builds(Put, SPACES, KEYS, st.binary(max_size=5)) | st.builds(Delete, SPACES, KEYS, KEYS)


@given(st.lists(st.lists(WRITES, max_size=6), max_size=8), KEYS, KEYS, st.integers(1, 9), st.integers(0, 20))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_memory_and_disk_agree(
    tmp_path: Path, calls: list[list[Write]], first: Key, last: Key, limit: int, max_bytes: int
) -> None:
    async def outcome(store: Store) -> list[object]:
        for call in calls:
            store.submit(call, sync=False)
        await write(store, Delete("zero", first, first), sync=False)
        seen = [
            await store.scan(space, first, last, limit=limit, max_bytes=max_bytes if max_bytes else None)
            for space in ("one", "two")
        ]
        seen += [await everything(store, space) for space in ("one", "two")]
        for space in ("one", "two"):
            store.submit([Delete(space, FIRST, LAST)], sync=False)
        await store.close()
        return list(seen)

    on_disk = asyncio.run(outcome(open_store(tmp_path / "x")))
    assert asyncio.run(outcome(open_store(":memory:"))) == on_disk


async def test_memory_fails_on_demand_and_works_again() -> None:
    store = MemoryStore()
    store.fail_next(StoreError("told so"))
    first, second = waiter(store, [put("a")]), waiter(store, [put("b")])
    for one in (first, second):
        with pytest.raises(StoreError, match="told so"):
            await one
    assert await everything(store) == []
    await write(store, put("c"))
    assert len(await everything(store)) == 1


async def test_memory_pauses_and_crashes_on_demand() -> None:
    store = MemoryStore()
    await write(store, put("a"))
    store.pause()
    lost = waiter(store, [put("b")])
    await asyncio.sleep(0.01)
    assert not lost.done()
    heir = store.crash()
    assert [key.name for key, _ in await everything(heir)] == ["a"]
    heir.pause()
    late = waiter(heir, [put("c")])
    heir.resume()
    await late
    assert not lost.done()
