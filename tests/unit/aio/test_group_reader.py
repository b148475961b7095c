"""Readers of a group for tasks: the promises of the reader for threads, without a thread each."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.errors import (
    ConfigError,
    LogClosedError,
    ReadOnlyError,
    TopicDeletedError,
    UnknownTopicError,
)
from fakes.own_threads import OwnThreads


def _run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(bounded())


async def _fill(store: Any, *, partitions: int = 1, count: int = 6) -> Any:
    topic = await store.create_topic("orders", partitions=partitions, config={"durability": "os"})
    for number in range(partitions):
        values = [(None, b"%d" % n) for n in range(number, count, partitions)]
        await topic.append_many(values, partition=number)
    return topic


async def _read_all(store: Any, **options: Any) -> list[int]:
    options = {"idle_timeout_ms": 0} | options
    async with store.group("g").reader("orders", **options) as reader:
        return sorted([int(record.value or b"") async for record in reader])


def test_a_group_gets_each_record_and_then_only_new_ones(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await _fill(store, partitions=3, count=20)
            assert await _read_all(store) == list(range(20))
            await topic.append(b"20")
            assert await _read_all(store) == [20]
            assert sum((await store.group("g").committed()).values()) == 21
            await store.group("g").forget()
            assert await _read_all(store, isolation="read_committed") == list(range(21))

    _run(main)


def test_a_block_that_raises_or_is_cancelled_commits_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            await _fill(store)

            async def fail() -> None:
                async with store.group("g").reader("orders") as reader:
                    async for record in reader:
                        if record.offset == 1:
                            await reader.commit()
                        if record.offset == 3:
                            await asyncio.sleep(0 if is_error else 60)
                            raise ValueError(record.offset)

            is_error = True
            with pytest.raises(ValueError, match="3"):
                await fail()
            assert await store.committed("g") == {("orders", 0): 2}
            is_error = False
            task = asyncio.create_task(fail())
            while not store.store.group("g").committed("orders", 0):
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await _read_all(store) == [2, 3, 4, 5]

    _run(main)


def test_a_cancelled_anext_at_any_moment_skips_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            await _fill(store, partitions=2, count=600)
            found: list[int] = []
            group = store.group("g")
            async with group.reader("orders", idle_timeout_ms=50, commit_interval_ms=1) as reader:
                for turns in range(100_000):
                    task = asyncio.ensure_future(anext(reader, None))
                    for _ in range(turns % 5):
                        await asyncio.sleep(0)
                    if not task.done():
                        task.cancel()
                    try:
                        record = await task
                    except asyncio.CancelledError:
                        await asyncio.sleep(0.0005)
                        continue
                    if record is None:
                        break
                    found.append(int(record.value or b""))

            assert sorted(found) == list(range(600))
            assert sum((await group.committed()).values()) == 600

    _run(main)


def test_records_are_committed_after_the_interval_and_with_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            await _fill(store)
            group = store.group("g")
            seen = []
            async with group.reader("orders", commit_interval_ms=0) as reader:
                async for record in reader:
                    seen.append((await group.committed()).get(("orders", 0), 0))
                    if record.offset == 4:
                        reader.stop()
            assert seen == [0, 1, 2, 3, 4]
            assert await group.committed() == {("orders", 0): 5}
            assert reader.is_closed
            with pytest.raises(LogClosedError):
                await anext(reader)

    _run(main)


def test_tasks_and_threads_share_the_partitions_while_readers_come_and_go(tmp_path: Path) -> None:
    async def main() -> Counter[int]:
        handled: Counter[int] = Counter()
        async with cordwood.aio.open(tmp_path) as store:
            await _fill(store, partitions=6, count=3000)

            async def work(number: int) -> None:
                # Each leaves after a while, and another one takes its place.
                while True:
                    async with store.group("g").reader("orders", idle_timeout_ms=200) as reader:
                        count = 0
                        async for record in reader:
                            handled[int(record.value or b"")] += 1
                            count += 1
                            if count % 10 == 0:
                                await asyncio.sleep(0)
                            if count == 100 + number * 10:
                                break
                        else:
                            return

            def work_in_thread() -> None:
                reader = store.store.group("g").reader("orders", idle_timeout_ms=200)
                with reader:
                    for record in reader:
                        handled[int(record.value or b"")] += 1

            thread = asyncio.to_thread(work_in_thread)
            await asyncio.gather(*(work(number) for number in range(4)), thread)
        return handled

    handled = _run(main)

    assert sorted(handled) == list(range(3000))
    assert set(handled.values()) == {1}


def test_a_reader_that_waits_needs_no_thread_and_is_woken_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path, threads=1) as store:
            topic = await _fill(store, partitions=8, count=0)
            found: asyncio.Queue[bytes | None] = asyncio.Queue()

            async def work() -> None:
                async with store.group("g").reader("orders") as reader:
                    async for record in reader:
                        found.put_nowait(record.value)

            tasks = [asyncio.create_task(work()) for _ in range(8)]
            for n in range(16):
                await topic.append(b"%d" % n, partition=n % 8)
                assert await asyncio.wait_for(found.get(), 10) == b"%d" % n
            assert sum(name.startswith("cordwood-aio") for name in own.names) <= 2
        await asyncio.gather(*tasks)  # closing the store ends them

    with OwnThreads() as own:
        _run(main)


def test_a_slow_handler_keeps_its_partition_until_it_asks_for_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            await _fill(store, partitions=2, count=20)
            group = store.group("g")
            async with group.reader("orders", idle_timeout_ms=50) as slow:
                first = await anext(slow)
                async with group.reader("orders", idle_timeout_ms=50) as other:
                    assert [record async for record in other] == []  # slow has both yet
                    assert first.partition in slow.partitions
                    assert (await anext(slow)).partition == first.partition
                    theirs = [record.partition async for record in other]
                    assert len(theirs) == 10
                    assert set(theirs).isdisjoint(slow.partitions)
                rest = [record.offset async for record in slow]
            assert len(rest) == 8
            assert await group.committed() == {("orders", 0): 10, ("orders", 1): 10}

    _run(main)


def test_a_deleted_topic_and_wrong_names_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            await _fill(store)
            with pytest.raises(UnknownTopicError):
                async with store.group("g").reader("others"):
                    pass
            with pytest.raises(ConfigError, match="idle_timeout_ms = soon"):
                store.group("g").reader("orders", idle_timeout_ms="soon")  # type: ignore[arg-type]
            for wrong, error in ((b"g", TypeError), ("", ConfigError), ("x" * 40_000, ConfigError)):
                with pytest.raises(error):
                    store.group(wrong)  # type: ignore[arg-type]
            with pytest.raises(RuntimeError, match="async with"):
                await anext(store.group("g").reader("orders"))
            async with cordwood.aio.open(tmp_path, read_only=True) as beside:
                with pytest.raises(ReadOnlyError):
                    async with beside.group("g").reader("orders"):
                        pass
            async with store.group("g").reader("orders") as reader:
                await anext(reader)
                await store.delete_topic("orders")
                with pytest.raises(TopicDeletedError):
                    await anext(reader)
            assert await store.committed("g") == {}

    _run(main)


def test_a_reader_that_nobody_closed_gives_its_partitions_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            await _fill(store)
            reader = store.group("g").reader("orders")
            await reader.__aenter__()
            await anext(reader)
            del reader
            gc.collect()

            assert await _read_all(store, idle_timeout_ms=20) == [0, 1, 2, 3, 4, 5]
            await asyncio.sleep(0)
            assert store.store._group_readers.members._listeners == ()
            assert store.store["orders"][0]._holder._listeners == ()

    _run(main)


def test_one_task_at_a_time_iterates_a_reader(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            await _fill(store, count=0)
            async with store.group("g").reader("orders") as reader:
                waiting = asyncio.ensure_future(anext(reader, None))
                await asyncio.sleep(0.01)
                with pytest.raises(RuntimeError, match="already being iterated"):
                    await anext(reader)
                reader.stop()
                assert await waiting is None

    _run(main)
