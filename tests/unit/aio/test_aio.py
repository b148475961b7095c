"""A store for asyncio: the same promises, shared syncs, no thread for each call."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.errors import LogClosedError, ReadOnlyError, UnexpectedOffsetError
from fakes.own_threads import OwnThreads


def _run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(bounded())


def test_records_are_appended_and_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("orders", partitions=2)
            placed = await topic.append(b"paid", key=b"user:42", headers={"h": b"1"})
            await topic.append_many([(b"user:42", b"sent")])
            log = topic[placed.partition]

            assert [r.value async for r in log.read()] == [b"paid", b"sent"]
            assert [r.value async for r in log] == [b"paid", b"sent"]
            assert [r.value async for r in topic] == [b"paid", b"sent"]
            record = await log.get(placed.offset)
            assert record is not None
            assert record.value == b"paid"
            newest = await log.find(b"user:42")
            assert newest is not None
            assert newest.value == b"sent"
            tables = [batch.num_rows async for batch in log.scan(columns=["offset"])]
            assert sum(tables) == 2
            await store.commit("billing", {("orders", 0): 1})
            assert await store.committed("billing") == {("orders", 0): 1}
            assert "orders" in store
            assert (await store.create_topic("orders", exist_ok=True)).name == "orders"
        with pytest.raises(LogClosedError):
            await topic.append(b"late")

    _run(main)


def test_a_thousand_tasks_share_their_syncs_and_the_threads_stay_few(tmp_path: Path) -> None:
    async def main() -> tuple[list[int], int, int]:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            await topic.append(b"first")
            syncs = store.store.sync_times.view().count
            placed = await asyncio.gather(*(topic.append(b"%d" % n) for n in range(1000)))
            made = store.store.sync_times.view().count - syncs
            threads = sum(name.startswith("cordwood-aio") for name in own.names)
            return [each.offset for each in placed], made, threads

    with OwnThreads() as own:
        offsets, syncs, threads = _run(main)

    assert offsets == list(range(1, 1001))
    assert syncs < 100
    assert threads <= 8


def test_a_follower_gets_records_as_they_come_and_ends_with_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        found: list[bytes] = []
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t", partitions=3)

            async def follow(records: AsyncIterator[Any]) -> None:
                async for record in records:
                    found.append(record.value or b"")

            one = asyncio.create_task(follow(topic[0].follow(0)))
            every = asyncio.create_task(follow(topic.follow("start")))
            for n in range(9):
                await topic.append(b"%d" % n, partition=n % 3)
            while len(found) < 12:
                await asyncio.sleep(0.001)
        await asyncio.gather(one, every)
        assert sorted(found) == sorted([b"%d" % n for n in range(9)] + [b"0", b"3", b"6"])

    _run(main)


def test_following_ends_after_a_quiet_time_and_listeners_are_removed(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            await topic.append(b"1")
            log = topic[0]

            assert [r.value async for r in log.follow(0, idle_timeout_ms=20)] == [b"1"]
            assert store.store["t"][0]._holder._listeners == ()

    _run(main)


def test_a_reader_in_another_store_follows_the_files(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            async with cordwood.aio.open(tmp_path, read_only=True) as beside:
                records = beside["t"][0].follow(0)
                await topic.append(b"1")
                assert (await anext(records)).value == b"1"
                await records.aclose()
                with pytest.raises(ReadOnlyError):
                    await beside["t"].append(b"x")

    _run(main)


def test_errors_reach_the_task_and_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            results = await asyncio.gather(
                topic.append(b"a"),
                topic.append(b"b", partition=0, expected_offset=77),
                topic.append(b"c"),
                topic.append("text"),  # type: ignore[arg-type]
                return_exceptions=True,
            )
            assert isinstance(results[1], UnexpectedOffsetError)
            assert isinstance(results[3], TypeError)
            assert [r.value async for r in topic[0]] == [b"a", b"c"]

    _run(main)


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_cancelled_append_is_whole_or_absent_and_others_go_on(
    tmp_path: Path, durability: str
) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t", config={"durability": durability})
            tasks = [asyncio.create_task(topic.append(b"%d" % n)) for n in range(200)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            kept = {r.value: r.offset async for r in topic[0]}

            for n, result in enumerate(results):
                if not isinstance(result, asyncio.CancelledError):
                    assert not isinstance(result, BaseException)
                    assert kept[b"%d" % n] == result.offset
            assert all(not isinstance(r, BaseException) for r in results[1::2])
            await topic.append(b"after")

    _run(main)


def test_a_transaction_in_one_call(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            await store.in_transaction("tx", lambda txn: txn.append("t", b"paid", partition=0))

            committed = [r.value async for r in topic[0].read(isolation="read_committed")]
            assert committed == [b"paid"]

    _run(main)


def test_the_loop_goes_on_while_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            await topic.append(b"first")
            gate = threading.Event()
            syncing = topic[0].log.syncing  # type: ignore[attr-defined]
            run = syncing.run
            monkeypatch.setattr(syncing, "run", lambda: (gate.wait(30), run()))
            task = asyncio.create_task(topic.append(b"slow"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not task.done()
            assert [r.value async for r in topic[0].read()] == [b"first"]
            gate.set()
            assert (await task).offset == 1

    _run(main)
