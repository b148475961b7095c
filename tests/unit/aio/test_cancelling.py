"""Tasks that are cancelled, loops that end, forks, full disks: nothing is lost, nothing hangs."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.aio.async_store import open_async
from cordwood.errors import (
    DiskFullError,
    LogClosedError,
    UnknownPartitionError,
)
from cordwood.log.store.store import Store
from fakes.forking_program import run_forking
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

TIMEOUT_S = 30


def _run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(bounded())


def test_a_cancelled_anext_loses_nothing_and_the_follower_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t", partitions=2)
            every: tuple[Any, ...] = (topic.follow("start"), topic[0].follow(0))
            for records in every:
                for _ in range(3):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(anext(records), 0.005)
            await topic.append(b"1", partition=0)

            assert (await anext(records)).value == b"1"

    _run(main)


def test_cancelling_a_read_at_every_moment_gives_each_record_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            await topic.append_many([(None, b"%d" % n) for n in range(2000)])
            records = topic[0].read()
            found = []
            for turns in range(10_000):
                task = asyncio.ensure_future(anext(records, None))
                for _ in range(turns % 4):
                    await asyncio.sleep(0)
                if not task.done():
                    task.cancel()
                try:
                    record = await task
                except asyncio.CancelledError:
                    continue
                if record is None:
                    break
                found.append(int(record.value or b""))

            assert found == list(range(2000))

    _run(main)


def test_two_tasks_do_not_share_an_iterator(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            records = (await store.create_topic("t"))[0].follow()
            first = asyncio.create_task(anext(records))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="give each its own iterator"):
                await anext(records)
            first.cancel()

    _run(main)


def test_a_chunk_is_bounded_in_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t", config={"durability": "os"})
            for _ in range(8):
                await topic.append_many([(None, bytes(200_000)) for _ in range(8)])
            records = topic[0].read()
            await anext(records)
            held = sum(len(record.value or b"") for record in records._chunk)
            assert held <= 1_200_000
            batches = topic[0].scan()
            await anext(batches)
            assert sum(batch.nbytes for batch in batches._chunk) == 0

    _run(main)


def test_a_follower_that_is_dropped_stops_listening(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            await topic.append(b"1")
            records = topic.follow("start")
            await anext(records)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.001)
            holder = store.store["t"][0]._holder
            assert len(holder._listeners) == 1

            del records
            gc.collect()
            await asyncio.sleep(0)

            assert holder._listeners == ()

    _run(main)


def test_a_store_whose_opening_is_cancelled_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, is_opening = threading.Event(), threading.Event()
    real = cordwood.library.open_store

    def slow(*args: Any, **kwargs: Any) -> Any:
        is_opening.set()
        gate.wait(TIMEOUT_S)
        return real(*args, **kwargs)

    monkeypatch.setattr("cordwood.aio.async_store.open_store", slow)

    async def main() -> None:
        async def use() -> None:
            async with open_async(tmp_path):
                raise AssertionError("it was cancelled")

        task = asyncio.create_task(use())
        await asyncio.to_thread(is_opening.wait, TIMEOUT_S)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    _run(main)
    with cordwood.open(tmp_path) as store:  # the writer lock is free
        assert store.topics() == []


def test_closing_is_completed_although_the_task_is_cancelled_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, is_closing = threading.Event(), threading.Event()
    real = Store.close

    def slow(store: Store) -> None:
        is_closing.set()
        gate.wait(TIMEOUT_S)
        real(store)

    async def main() -> None:
        async def use() -> None:
            async with cordwood.aio.open(tmp_path) as store:
                monkeypatch.setattr(Store, "close", slow)
                await store.create_topic("t")

        task = asyncio.create_task(use())
        await asyncio.to_thread(is_closing.wait, TIMEOUT_S)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    _run(main)
    monkeypatch.undo()
    with cordwood.open(tmp_path) as store:
        assert store.topics() == ["t"]


def test_closing_while_tasks_append_refuses_the_rest_and_keeps_the_others(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t", partitions=3)

            async def append_all() -> list[Any]:
                return [await topic.append(b"%d" % n) for n in range(100_000)]

            tasks = [asyncio.create_task(append_all()) for _ in range(20)]
            many = asyncio.create_task(_append_until_closed(topic))
            while sum(log.end_offset for log in store.store["t"].partitions) < 100:
                await asyncio.sleep(0.001)
        for call in (topic.append_many([(None, b"x")]), store.commit("g", {("t", 0): 1})):
            with pytest.raises(LogClosedError):
                await call
        with pytest.raises(LogClosedError):
            await store.call(len, "")
        return [*await asyncio.gather(*tasks, return_exceptions=True), await many]

    results = _run(main)

    assert all(isinstance(result, LogClosedError) for result in results)


async def _append_until_closed(topic: Any) -> LogClosedError:
    while True:
        try:
            await topic.append_many([(None, b"many")])
        except LogClosedError as error:
            return error


def test_tasks_of_two_loops_in_two_threads_share_a_store(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")

            async def other_loop() -> list[int]:
                placed = await asyncio.gather(*(topic.append(b"b") for _ in range(200)))
                return [each.offset for each in placed]

            beside = asyncio.to_thread(asyncio.run, other_loop())
            here = asyncio.gather(*(topic.append(b"a") for _ in range(200)))
            theirs, ours = await asyncio.gather(beside, here)

            assert sorted(theirs + [each.offset for each in ours]) == list(range(400))

    _run(main)


def test_a_store_that_nobody_closed_is_closed_with_its_loop(tmp_path: Path) -> None:
    opened = cordwood.aio.open(tmp_path)

    async def main() -> Any:
        store = await opened.__aenter__()
        topic = await store.create_topic("t")
        asyncio.ensure_future(topic.append(b"1"))  # noqa: RUF006 (the loop ends before it does)
        await asyncio.sleep(0)

    asyncio.run(main())

    with cordwood.open(tmp_path) as store:
        assert [r.value for r in store["t"]] in ([], [b"1"])


def test_a_forked_child_is_refused_instead_of_waiting_for_threads_it_does_not_have(
    tmp_path: Path,
) -> None:
    body = """
    import asyncio

    def use(store, topic):
        asyncio.events._set_running_loop(None)  # the child was forked inside a loop
        for call in (
            lambda: topic.append(b"x"),
            lambda: topic.append_many([(None, b"x")]),
            lambda: store.call(len, ""),
            lambda: anext(topic[0].read()),
            lambda: store.group("g").commit({("t", 0): 1}),
        ):
            async def wait():
                await call()

            refused(lambda: asyncio.run(wait()))

    async def main():
        async with cordwood.aio.open(sys.argv[1]) as store:
            topic = await store.create_topic("t")
            await topic.append(b"1")
            in_child(lambda: use(store, topic))
            assert (await topic.append(b"2")).offset == 1

    asyncio.run(main())
    """
    run_forking(body, tmp_path)


def test_a_full_disk_reaches_the_tasks_and_the_log_goes_on_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = SimulatedFileSystem()
    simulated = open_store(fs)
    monkeypatch.setattr("cordwood.aio.async_store.open_store", lambda *_, **__: simulated)

    async def main() -> None:
        async with cordwood.aio.open("anywhere") as store:
            topic = await store.create_topic("t")
            await topic.append(b"before")
            fs.capacity_bytes = 0
            results = await asyncio.gather(
                *(topic.append(b"%d" % n) for n in range(20)), return_exceptions=True
            )
            assert {type(result) for result in results} == {DiskFullError}
            fs.capacity_bytes = None

            assert (await topic.append(b"after")).offset == 1
            assert [r.value async for r in topic] == [b"before", b"after"]

    _run(main)


def test_unused_partitions_are_opened_by_a_thread(tmp_path: Path) -> None:
    async def main() -> None:
        with cordwood.open(tmp_path) as before:
            before.create_topic("t", partitions=3)
        async with cordwood.aio.open(tmp_path) as store:
            topic = store["t"]
            opened_by: list[str] = []
            topic.topic._open_log = _noting(topic.topic._open_log, opened_by)
            await topic.append(b"1", partition=2)
            with pytest.raises(UnknownPartitionError):
                await topic.append(b"1", partition=3)

            assert opened_by
            assert all(name.startswith("cordwood-aio") for name in opened_by)

    _run(main)


def _noting(call: Any, names: list[str]) -> Any:
    def noted(*args: Any) -> Any:
        names.append(threading.current_thread().name)
        return call(*args)

    return noted


def test_durability_can_be_chosen_for_one_append(tmp_path: Path) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            placed = await topic.append(b"1", durability="os")
            assert placed.offset == 0
            with pytest.raises(ValueError, match="durability"):
                await topic.append(b"1", durability="none")  # type: ignore[arg-type]

    _run(main)


def test_a_follower_of_a_topic_sees_partitions_that_are_added_and_ends_when_it_is_deleted(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with cordwood.aio.open(tmp_path) as store:
            topic = await store.create_topic("t")
            records = topic.follow()
            await store.alter_topic("t", partitions=2)
            await topic.append(b"new", partition=1)
            assert (await anext(records)).value == b"new"

            waiting = asyncio.ensure_future(anext(records, None))
            await store.delete_topic("t")
            assert await waiting is None

    _run(main)


PROGRAM = """
import asyncio, sys, cordwood

async def main():
    async with cordwood.aio.open(sys.argv[1]) as store:
        topic = await store.create_topic("t")
        async def follow():
            async for record in topic.follow():
                pass
        following = asyncio.create_task(follow())
        for n in range(10**9):
            await asyncio.gather(*(topic.append(b"x") for _ in range(50)))
            if n == 3:
                print("ready", flush=True)

asyncio.run(main())
"""


def test_an_interrupt_closes_the_store(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"

    program.send_signal(signal.SIGINT)
    try:
        _, errors = program.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGABRT)  # it prints where each thread is
        _, errors = program.communicate()

    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert "never retrieved" not in errors
    with cordwood.open(tmp_path / "data") as store:
        assert len(store["t"][0]) >= 200
