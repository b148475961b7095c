"""What a forked child can do with its parent's store: nothing, and it is told why."""

from pathlib import Path

import pytest

from fakes.forking_program import run_forking


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_every_handle_refuses_in_a_forked_child(tmp_path: Path, durability: str) -> None:
    body = f"""
    store = cordwood.open(sys.argv[1])
    topic = store.create_topic("t", config={{"durability": {durability!r}}})
    topic.append(b"parent 0")
    log, group = topic.partition(0), store.group("g")
    group.commit({{("t", 0): 1}})
    reading = log.follow(0)
    next(reading)

    # Locks that another thread holds at the fork stay held in the child.
    log._holder.lock.acquire()
    threading.Thread(target=log._holder.sync_lock.acquire).start()

    def child():
        for action in (
            lambda: topic.append(b"child"),
            lambda: topic.append_many([(None, b"child")]),
            lambda: log.append(b"child"),
            lambda: log.roll(),
            lambda: log.sync(),
            lambda: log.truncation.truncate_to(0),
            lambda: list(log.read()),
            lambda: next(reading),
            lambda: store.topic("t"),
            lambda: store.create_topic("u"),
            lambda: store.publish("app", 1, {{("t", 0): [(None, b"child")]}}),
            lambda: group.commit({{("t", 0): 0}}),
            lambda: group.committed("t", 0),
            lambda: store.maintain(),
            lambda: store.compact("t"),
        ):
            refused(action)

    in_child(child)
    log._holder.lock.release()
    log._holder.sync_lock.release()
    assert topic.append(b"parent 1").offset == 1
    store.close()
    """
    run_forking(body, tmp_path / "data")


def test_the_lock_stays_with_the_parent_when_a_child_closes_and_ends(tmp_path: Path) -> None:
    body = """
    store = cordwood.open(sys.argv[1])
    topic = store.create_topic("t")

    def child():
        with store:
            pass
        store.close()
        store.abandon()
        try:
            cordwood.open(sys.argv[1])
        except DirectoryLockedError as error:
            assert str(os.getppid()) in str(error)
        else:
            raise AssertionError("two writers")
        with cordwood.open(sys.argv[1], read_only=True) as reading:
            assert reading.topics() == ["t"]

    def ends():
        global store, topic
        del store, topic

    in_child(child)
    in_child(ends)
    for how in ("fork", "spawn"):
        process = multiprocessing.get_context(how).Process(target=os.getpid)
        process.start()
        process.join()
        assert process.exitcode == 0
    assert os.path.exists(os.path.join(sys.argv[1], ".lock"))
    assert topic.append(b"still").offset == 0
    in_child(child)
    store.close()
    in_child(lambda: cordwood.open(sys.argv[1]).close())
    """
    run_forking(body, tmp_path / "data")


def test_a_child_leaves_its_parents_broker_alone(tmp_path: Path) -> None:
    body = """
    import socket
    with cordwood.Broker(topics=["t"]) as broker:
        directory, address = broker.data_dir, (broker.host, broker.port)

        def child():
            refused(lambda: broker.store)
            refused(lambda: broker.create_topic("u"))
            broker.kill()
            broker.stop()
            with broker:
                pass

        in_child(child)
        assert os.path.isdir(directory)
        socket.create_connection(address, 5).close()
        broker.store.topic("t").append(b"still")
    """
    run_forking(body, tmp_path)


_ARCHIVED = """
    from cordwood.archive.objects.local_objects import LocalObjects

    data, archive = sys.argv[1] + "/data", "file://" + sys.argv[1] + "/archive"
    with cordwood.open(data) as store:
        keys = {"archive.url": archive, "segment.records": 100, "local.retention.bytes": 0,
                "retention.ms": -1, "file.delete.delay.ms": 0}
        topic = store.create_topic("t", config=keys)
        local = store.create_topic("local")
        for first in range(0, 1000, 100):
            numbers = range(first, first + 100)
            topic.append_many([(None, b"%04d" % number * 250) for number in numbers])
            local.append_many([(None, b"%04d" % number) for number in numbers])
        assert [status.last_error for status in store.archive_now()] == [None]
        store.maintain()
        assert topic.partition(0).local_start_offset > 0

    def values(log):
        return [record.value[:4] for record in log.read()]

    expected = [b"%04d" % number for number in range(1000)]

    get_range, get_manifest, parent = LocalObjects.get_range, LocalObjects.read, os.getpid()
    slow, asked, answering = threading.Event(), threading.Event(), threading.Event()

    def slowly(get):
        def answer(*arguments, **keys):
            if slow.is_set() and os.getpid() == parent:
                asked.set()
                answering.wait()
            return get(*arguments, **keys)
        return answer

    LocalObjects.get_range, LocalObjects.read = slowly(get_range), slowly(get_manifest)
"""


@pytest.mark.parametrize("moment", ["fetching", "idle", "locked"])
def test_a_child_of_a_reader_is_told_that_the_archive_is_its_parents(
    tmp_path: Path, moment: str
) -> None:
    body = f"""{_ARCHIVED}
    moment = {moment!r}
    readers = [cordwood.open(data, read_only=True), cordwood.open_archive(archive)]
    for reader in readers:
        log = reader.topic("t").partition(0)
        reading = log.read()
        assert next(reading).value[:4] == b"0000"
        cache = next(iter(log.view().segments))._cache
        assert os.path.isdir(cache.directory)
        files = [segment._ranged for segment in log.view().segments if segment.is_archived]
        locks = [cache._lock, *(lock for file in files for lock in (file._lock, file._opening))]
        locks += [file._partial._lock for file in files if file._partial is not None]
        found = []
        scan = threading.Thread(target=lambda: found.extend(values(log)))
        asked.clear()
        answering.clear()
        if moment == "fetching":
            slow.set()
            scan.start()
            asked.wait()
        elif moment == "locked":
            holding, done = threading.Event(), threading.Event()

            def hold():
                for lock in locks:
                    lock.acquire()
                holding.set()
                done.wait()
                for lock in locks:
                    lock.release()

            holder = threading.Thread(target=hold)
            holder.start()
            holding.wait()

        def child():
            for action in (
                lambda: values(log),
                lambda: list(reading),
                lambda: log[500],
                lambda: log.offset_for_time(1),
                lambda: values(reader.topic("t").partition(0)),
            ):
                refused(action)
            with reader:
                pass
            reader.close()
            with cordwood.open(data, read_only=True) as own:
                assert values(own.topic("t").partition(0)) == expected
            with cordwood.open_archive(archive) as own:
                assert values(own.topic("t").partition(0)) == expected[:900]

        in_child(child)
        slow.clear()
        answering.set()
        if moment == "fetching":
            scan.join()
            assert found == expected[:len(found)] and len(found) >= 900
        elif moment == "locked":
            done.set()
            holder.join()
        assert os.path.isdir(cache.directory)
        assert [b"0000", *(record.value[:4] for record in reading)] == expected[:len(values(log))]
        reader.close()
        assert not os.path.exists(cache.directory)
    """
    run_forking(body, tmp_path)


def test_a_child_of_a_reader_reads_what_is_not_archived(tmp_path: Path) -> None:
    body = f"""{_ARCHIVED}
    with cordwood.open(data, read_only=True) as reader:
        log = reader.topic("local").partition(0)
        values(reader.topic("t").partition(0))

        def child():
            assert values(log) == expected
            assert reader.topics() == ["local", "t"]
            assert values(reader.topic("local").partition(0)) == expected
            refused(lambda: values(reader.topic("t").partition(0)))

        in_child(child)
    """
    run_forking(body, tmp_path)


def test_a_child_that_is_forked_while_archives_are_loaded_loads_its_own(tmp_path: Path) -> None:
    body = f"""{_ARCHIVED}
    from cordwood.archive import store_archives

    begun, loading = threading.Event(), threading.Event()

    class Slow(store_archives.StoreArchives):
        def __init__(self, **keys):
            if os.getpid() == parent:
                begun.set()
                loading.wait()
            super().__init__(**keys)

    os.rename(data + "/t-0", data + "/away")
    with cordwood.open(data, read_only=True) as reader:
        os.rename(data + "/away", data + "/t-0")
        store_archives.StoreArchives = Slow
        thread = threading.Thread(target=reader.topics)
        thread.start()
        begun.wait()

        def child():
            log = reader.topic("t").partition(0)
            assert values(log) == expected

        in_child(child)
        loading.set()
        thread.join()
        assert values(reader.topic("t").partition(0)) == expected
    """
    run_forking(body, tmp_path)
